//! Errors that a volume has recorded, as JSON and as text; `docs/sfs-ctl.md` states names and units.
//!
//! The name of a kind in a daemon's reply is mapped to a known kind or number before it is printed.

use std::fmt;

use serde::{Deserialize, Serialize};
use sfs_core::format::{ErrorCount, ErrorKind, Failure, Occurrence};

/// Errors of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// Name of the kind, or its number if only a newer program knows it.
    pub kind: String,
    /// Number of errors.
    pub count: u64,
    /// First error.
    pub first: OccurrenceReport,
    /// Last error.
    pub last: OccurrenceReport,
}

/// Time and place of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OccurrenceReport {
    /// Time, in seconds since 1970.
    pub secs: i64,
    /// Block, inode or segment, depending on the kind; 0 if no place is known.
    pub at: u64,
}

/// Error that ended writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// Name of the kind, or its number.
    pub kind: String,
    /// Block, inode or segment, depending on the kind; 0 if no place is known.
    pub at: u64,
    /// Time, in seconds since 1970.
    pub secs: i64,
}

fn name(kind: ErrorKind) -> String {
    kind.name().map_or_else(|| kind.code().to_string(), str::to_owned)
}

fn kind_of(name: &str) -> ErrorKind {
    let by_number = || ErrorKind::Unknown(name.parse().unwrap_or_default());
    ErrorKind::of_name(name).unwrap_or_else(by_number)
}

impl From<Occurrence> for OccurrenceReport {
    fn from(Occurrence { secs, at }: Occurrence) -> Self {
        Self { secs, at }
    }
}

impl From<&ErrorCount> for ErrorReport {
    fn from(count: &ErrorCount) -> Self {
        let ErrorCount { kind, count, first, last } = *count;
        Self { kind: name(kind), count, first: first.into(), last: last.into() }
    }
}

impl From<Failure> for FailureReport {
    fn from(Failure { kind, at, secs }: Failure) -> Self {
        Self { kind: name(kind), at, secs }
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |OccurrenceReport { secs, at }| Occurrence { secs, at };
        let (first, last) = (place(self.first), place(self.last));
        ErrorCount { kind: kind_of(&self.kind), count: self.count, first, last }.fmt(f)
    }
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Failure { kind: kind_of(&self.kind), at: self.at, secs: self.secs }.fmt(f)
    }
}
