//! `sfs-umount`: unmounts a volume and waits until all data is on its device.

use std::process::ExitCode;

use sfs::command_line::UmountArguments;
use sfs::unmount::{self, UnmountRequest};

fn main() -> ExitCode {
    sfs::program::run(|arguments: UmountArguments| {
        let UmountArguments { path, verbose, lazy, force, read_only, .. } = arguments;
        let is_helper = sfs::program::is_called("umount.");
        let path = &path;
        unmount::unmount(&UnmountRequest { path, verbose, lazy, force, read_only, is_helper })
    })
}
