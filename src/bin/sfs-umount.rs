//! `sfs-umount`: unmounts a volume and waits until all data is on its device.

use std::process::ExitCode;

use sfs::command_line::UmountArguments;
use sfs::unmount::{self, UnmountRequest};

fn main() -> ExitCode {
    sfs::program::run(|UmountArguments { path, verbose, lazy, .. }| {
        unmount::unmount(&UnmountRequest { path: &path, verbose, lazy })
    })
}
