//! Write-back: dirty data and changed metadata become batches of the log, and checkpoints.
//!
//! A commit goes through these steps: [`CommitRequest`] (the selected data), `plan` (blocks of each
//! file), `staged` (blocks with groups), [`data_layout`] and `budget` (whether they fit),
//! [`BatchBuilder`] (addresses, delta, chunks), [`Committer`] (writing). [`Checkpointer`] writes
//! the tree.
//!
//! Committer and checkpointer are leaf steps, which return a [`Shortage`] to their caller and never call each
//! other. Module `space` decides which step follows a shortage.

mod budget;
mod builder;
mod checkpoint;
mod commit;
mod commit_request;
pub(crate) mod data_layout;
mod plan;
mod staged;
mod step_error;

pub(crate) use budget::spare_blocks;
pub(crate) use builder::BatchBuilder;
pub(crate) use checkpoint::{CheckpointReason, Checkpointer, CheckpointerParts};
pub(crate) use commit::{Committer, Resolver};
pub(crate) use commit_request::{CommitRequest, Merging, MovedBlock, Progress, Reserve, Selection};
pub(crate) use step_error::{Shortage, StepError};
