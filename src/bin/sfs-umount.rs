//! `sfs-umount`: unmounts a volume and waits until all data is on its device.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sfs::program::IgnoredFlags;
use sfs::unmount::{self, UnmountRequest};

#[derive(Parser)]
#[command(name = "sfs-umount", version, disable_version_flag = true)]
/// Unmounts an SFS volume. Returns when all data is on the device. The exit status is 64 if the
/// unmount succeeded, but data was lost without a report to a program
struct Arguments {
    /// Mount point, block device or image file of the volume
    #[arg(value_name = "DIR|DEVICE")]
    path: PathBuf,
    /// Print each step
    #[arg(short, long)]
    verbose: bool,
    /// Detach the mount although it is in use, and do not wait
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
