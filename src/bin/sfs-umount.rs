//! `sfs-umount`: unmounts a volume and waits until everything is on its device.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sfs::program::IgnoredFlags;
use sfs::unmount::{self, UnmountRequest};

#[derive(Parser)]
#[command(name = "sfs-umount", version, disable_version_flag = true)]
/// Unmounts an SFS volume. Returns when everything is on the device; fails if it is not, with 64 if all is well but
/// data that did not fit was lost and no program has been told
struct Arguments {
    /// Mount point, block device or image file of the volume
    #[arg(value_name = "DIR|DEVICE")]
    path: PathBuf,
    /// Say what is done
    #[arg(short, long)]
    verbose: bool,
    /// Take the mount out of the tree though it is in use, and do not wait
    #[arg(short, long)]
    lazy: bool,
    #[command(flatten)]
    accepted: IgnoredFlags,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

fn main() -> ExitCode {
    sfs::program::run(|Arguments { path, verbose, lazy, .. }| {
        unmount::unmount(&UnmountRequest { path: &path, verbose, lazy })
    })
}
