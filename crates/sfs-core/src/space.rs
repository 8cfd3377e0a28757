//! Space: decides the next step of a mounted volume when Clean segments or memory are short.
//!
//! [`SpaceControl`] runs the leaf steps: commit, checkpoint, cleaning, release, deletion. A step
//! that lacks segments returns a [`Shortage`](crate::writeback::Shortage), and
//! `SpaceControl::reclaim` is the only loop that makes segments Clean. [`Admission`] admits a
//! writer only if its blocks can be written later, so that ENOSPC is returned before anything has
//! changed. Deleting is never refused. The thresholds of checkpoints are in `checkpoint_due`, those
//! of writers in `throttle`, and the pace of cleaning in `cleaning_pace`.

mod admission;
mod asked_work;
mod background_steps;
mod checkpoint_due;
mod cleaning_pace;
mod control;
mod defragment;
mod idle_defragmentation;
mod log_steps;
mod log_work;
mod outlook;
mod reading_in_order;
mod resize;
mod rounds;
mod throttle;
mod writers;

pub(crate) use admission::Admitted;
pub(crate) use control::{SpaceControl, SpaceControlParts};
