//! Checks and repairs an SFS volume that is not mounted.
//!
//! The crate is a second reader of a volume. A check shares only `sfs_core::format` with the filesystem: the
//! encoding of single structures. Tree nodes, directory entries, the log and the usage table have their own
//! readers here. A repair hands its result to [`sfs_core::Rebuild`], so that the tree has one writer.
//!
//! [`check()`] and [`dump()`] write nothing, terminate for any content of the device, and report
//! damage as values. The memory of a check grows with directories and segments, and with two bits
//! for each used block.
//!
//! The modules form four layers, each with imports from the layers below it only:
//!
//! | layer | |
//! |---|---|
//! | `cli` | arguments, output, JSON, exit codes, `dump` |
//! | `repair` | fixes for findings, salvage of lost keys, writing of the result |
//! | `check` | rules of a sound volume, and the check against them |
//! | `read` | structures of the volume, read with tolerance of damage; changes of the tree in memory |
//!
//! All layers report in terms of three modules below them: `error`, `finding` with `findings`,
//! `progress`. The imports of modules form no cycle. Modules name each other by full path: the
//! re-exports here are for other crates.
#![deny(unsafe_code)]

mod error;
mod finding;
mod findings;
mod progress;

mod read;

mod check;

mod repair;

mod cli;

pub use check::quick::is_unmounted;
pub use check::report::CheckReport;
pub use check::volume::{CheckOptions, check};
pub use cli::dump::{DumpSubject, dump};
pub use cli::dump_text::dump_to_text;
pub use cli::json::report_to_json;
pub use cli::outcome::EXIT_STATUSES;
pub use cli::run::{command, run_program};
pub use error::FsckError;
pub use finding::{Finding, Severity, SuperblockCopy};
pub use findings::Findings;
pub use progress::{CheckProgress, Stage};
pub use repair::loss::Loss;
pub use repair::options::RepairOptions;
pub use repair::run::{RepairOutcome, repair};
