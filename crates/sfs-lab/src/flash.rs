//! Requests on the models of flash devices in `sfs-ssd`, in virtual time.
//!
//! [`FlashReplay`] replays a block trace. [`Comparison`] records the requests of a real filesystem
//! under a job, and replays these requests on any number of models. [`RecordedFilesystem`] and
//! [`sfs`] run the job of the traces `peers/` on a model. [`ModelProbe`] measures a model as
//! `sfs-mkfs` measures a device, and [`CostModel`] fits the write cost model of the FAST 2009
//! paper. A replay gives the same result every time.

mod comparison;
mod cost_model;
mod probe;
mod recorded_job;
mod recorded_runs;
mod replay;

pub use comparison::{Comparison, ModelOutcome, RecordedRequests, scaled};
pub use cost_model::{CostModel, block_us};
pub use probe::{BUDGET, ModelProbe};
pub use recorded_job::{JobOnFlash, RecordedFilesystem, pages, sfs, sfs_reading};
pub use recorded_runs::{is_in_place, runs_by_order, runs_of_trace};
pub use replay::{FlashOutcome, FlashReplay};
