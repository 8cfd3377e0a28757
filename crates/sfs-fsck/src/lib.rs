//! Checks and repairs an SFS volume, as a second reader of the format.
//!
//! Owns: the traversal of a volume and everything that must be true of it.
//! Promises: terminates on any bytes; memory grows with names and segments, not with data; every finding
//! is a value; nothing is written.
//! Never: uses the code that wrote the volume. Of `sfs_core` it knows the `format` only.
#![deny(unsafe_code)]

mod bits;
mod check;
mod deltas;
mod dump;
mod edits;
mod error;
mod file;
mod findings;
mod log;
mod loss;
mod lost_found;
mod namespace;
mod node;
mod origin;
mod progress;
mod references;
mod remedy;
mod remembered;
mod repair;
mod report;
mod rewrite;
mod roll_forward;
mod salvage;
mod scan;
mod survey;
mod usage;
mod view;
mod volume;
mod walk;
mod xattrs;

pub use check::{Options, check};
pub use dump::{Subject, dump, in_words};
pub use error::FsckError;
pub use findings::{Copy, Finding, Findings, Severity};
pub use loss::Loss;
pub use progress::{Progress, Stage};
pub use remembered::{lines as remembered_lines, to_json as remembered_to_json};
pub use repair::{Repair, Repaired, is_unmounted, repair};
pub use report::Report;
