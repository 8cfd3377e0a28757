//! Workloads: endless streams of writes and deletions of numbered blocks.
//!
//! [`Source`] names a workload and makes its stream. A stream follows from its name, the number of
//! blocks and the seed; a recorded trace starts again after its last operation.

mod generators;
mod operation;
mod source;
mod tpcc;
mod trace;
mod zipf;

pub use generators::{HotCold, Pieces, Sequential, Shift, Streams};
pub use operation::{BlockOperation, Workload};
pub use source::Source;
pub use tpcc::TpccLike;
pub use trace::{TraceFile, TraceReplay};
pub use zipf::Zipf;
