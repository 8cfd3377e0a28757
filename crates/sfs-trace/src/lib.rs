//! The trace of the requests of a mounted volume: a text format, its writer and its reader.
//!
//! `sfs-ctl trace` writes traces, `sfs-lab` reads them. A trace is lines of text: [`HEADING`], [`TraceProperties`],
//! the columns, a line for each [`TraceRequest`], and a [`TraceEnd`]. `docs/trace-format.md` is the specification.
//! The reader accepts no line longer than [`LINE_LEN_MAX`], and keeps one line in memory.
#![forbid(unsafe_code)]

mod error;
mod frame;
mod name;
mod operation;
mod reader;
mod request;

pub use error::{LineError, TraceError};
pub use frame::{COLUMNS, HEADING, TraceEnd, TraceProperties};
pub use operation::TraceOperation;
pub use reader::{LINE_LEN_MAX, TraceReader};
pub use request::TraceRequest;
