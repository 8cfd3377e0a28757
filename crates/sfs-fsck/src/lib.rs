//! Checks an SFS volume, as a second reader of the format.
//!
//! Owns: the traversal of a volume and everything that must be true of it.
//! Promises: terminates on any bytes; memory grows with names and segments, not with data; every finding
//! is a value; nothing is written.
//! Never: uses the code that wrote the volume. Of `sfs_core` it knows the `format` only.
#![deny(unsafe_code)]
#![expect(dead_code, reason = "a repair, which comes next, needs it")]

mod bits;
mod check;
mod edits;
mod error;
mod file;
mod findings;
mod log;
mod namespace;
mod node;
mod progress;
mod references;
mod report;
mod roll_forward;
mod survey;
mod usage;
mod view;
mod volume;
mod walk;
mod xattrs;

pub use check::{Options, check};
pub use error::FsckError;
pub use findings::{Copy, Finding, Findings, Severity};
pub use progress::{Progress, Stage};
pub use report::Report;
