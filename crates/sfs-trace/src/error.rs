//! Errors of reading a trace.

use std::io;

/// Reason why a line is not part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line has fewer than eight fields or more than ten.
    #[error("a request has 8 to 10 fields")]
    Fields,
    /// A field must be a number and is none.
    #[error("not a number")]
    Number,
    /// Offset and length are beyond the largest file, or the time is beyond 292 years.
    #[error("time, or offset and length, are too large")]
    Range,
    /// The operation is unknown.
    #[error("unknown operation")]
    Operation,
    /// A name has a wrong escape.
    #[error("wrong escape in a name")]
    Name,
    /// The line is too long, or not UTF-8.
    #[error("not a line of a trace")]
    Text,
    /// The heading or the columns are not those of this version.
    #[error("not a trace of version 1, which begins with '# sfs-trace 1'")]
    Heading,
}

/// Error of reading a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is malformed.
    #[error("line {line}: {reason}")]
    Line {
        /// Number of the line, from 1 on.
        line: u64,
        /// Reason.
        reason: LineError,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}
