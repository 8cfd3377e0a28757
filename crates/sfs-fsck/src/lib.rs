//! Checks an SFS volume, as a second reader of the format.
//!
//! Owns: the traversal of a volume and everything that must be true of it.
//! Promises: terminates on any bytes, with memory bounded by what the device holds; every finding
//! is a value; nothing is written.
//! Never: uses the code that wrote the volume. Of `sfs_core` it knows the `format` only.
#![deny(unsafe_code)]

mod check;
mod content;
mod error;
mod findings;
mod items;
mod log;
mod mappings;
mod namespace;
mod node;
mod progress;
mod report;
mod roll_forward;
mod tree;
mod usage;
mod volume;
mod xattrs;

pub use check::{Options, check};
pub use error::FsckError;
pub use findings::{Copy, Finding, Findings, Severity};
pub use progress::{Progress, Stage};
pub use report::Report;
