//! Block traces: the requests that a host sent to a device, in their order.
//!
//! [`BlockTrace::open`] reads the requests of a mounted volume, CSV, the text of blkparse, fio's iolog and system calls.
//! Every request of a file is in the trace; a malformed request is an error that names the line.
//! [`TraceStatistics`] describes a trace, and [`TraceFolder`] finds the recorded traces of a user.

mod blkparse;
mod csv;
mod folder;
mod iolog;
mod record;
mod recording;
mod requests;
mod statistics;
mod trace;

pub use folder::{TraceFolder, files_in};
pub use record::TraceRecord;
pub use statistics::{Syncs, TraceStatistics};
pub use trace::BlockTrace;
