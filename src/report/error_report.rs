//! The errors that a volume remembers, as JSON and text have them.
//!
//! Owns: names and units, which `docs/sfs-ctl.md` states.
//! Promises: text that a daemon has sent becomes numbers before it is shown.
//! Never: judges.

use std::fmt;

use serde::{Deserialize, Serialize};
use sfs_core::format::{ErrorCount, ErrorKind, Failure, Occurrence};

/// The errors of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// The name of the kind, or its number if only a newer program knows it.
    pub kind: String,
    /// How many there were.
    pub count: u64,
    /// The first of them.
    pub first: OccurrenceReport,
    /// The last of them.
    pub last: OccurrenceReport,
}

/// When and where an error was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OccurrenceReport {
    /// When, in seconds since 1970.
    pub secs: i64,
    /// Where: a block, inode or segment, by the kind; 0 if no place is known.
    pub at: u64,
}

/// The error that ended writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// The name of the kind, or its number.
    pub kind: String,
    /// Where.
    pub at: u64,
    /// When, in seconds since 1970.
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
