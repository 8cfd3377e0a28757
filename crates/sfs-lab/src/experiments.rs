//! The experiments that make the tables and figures of `docs/lab.md` and `docs/lab/`, one in each
//! file.
//!
//! An experiment chooses policies, workloads and models, runs them with the library, and prints a
//! table with a paper's figures beside ours. With `--docs` the table replaces its section of the
//! documents. No experiment draws a conclusion: the text around the section does.

pub(crate) mod atc09;
pub(crate) mod evidence;
pub(crate) mod fast09;
pub(crate) mod fast09_schemes;
pub(crate) mod file_runs;
pub(crate) mod hard_drive;
mod informed_cleaning;
mod installed;
pub(crate) mod kernel_filesystems;
pub(crate) mod n_hybrid;
pub(crate) mod objects;
pub(crate) mod policy_table;
pub(crate) mod postmark;
pub(crate) mod random_writes;
pub(crate) mod segment_size;
pub(crate) mod sfs;
pub(crate) mod sfs_flash;
pub(crate) mod shin_cases;
pub(crate) mod sync_remainder;
mod workloads;
