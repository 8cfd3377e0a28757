//! The experiments that make the tables and figures of `docs/lab.md` and `docs/lab/`, a file each.
//!
//! An experiment chooses policies, workloads and models, runs them with the library and prints a table with
//! the paper's figures beside ours. It judges nothing: the documents do.

pub(crate) mod atc09;
pub(crate) mod fast09;
pub(crate) mod informed_cleaning;
pub(crate) mod kernel_filesystems;
pub(crate) mod policy_table;
pub(crate) mod postmark;
pub(crate) mod sfs;
pub(crate) mod sfs_flash;
pub(crate) mod sync_remainder;
