//! Advice for a volume by the load that was recorded on it: settings, and what each would write to the device.
//!
//! Every candidate runs the load on the whole core in RAM ([`crate::in_memory::TracedJob`]), exactly, on a volume that is
//! as full as the traced one. A volume that does not fit into memory is scaled down, and the load with it. First the
//! grouping policies are compared, then segment sizes and write buffers under the best one.

mod candidate;
mod model;
mod search;

pub use candidate::{Candidate, CandidateOutcome};
pub use model::{Assumptions, VolumeModel};
pub use search::{Advice, advise};
