//! `sfs-fsck`: checks and repairs an SFS volume.

use std::process::ExitCode;

fn main() -> ExitCode {
    sfs_fsck::run_program()
}
