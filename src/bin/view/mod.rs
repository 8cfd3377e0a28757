//! The commands of `sfs-ctl` that draw. Only this program uses the crate `sfs-view`, so the commands are not in the library.
//!
//! As `view.rs` beside this folder the file would be a program of its own.

pub(crate) mod report_command;
pub(crate) mod top_command;
