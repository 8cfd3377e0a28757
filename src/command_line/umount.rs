//! The command line of `sfs-umount`.

use std::path::PathBuf;

use clap::Parser;

use crate::program::IgnoredFlags;

#[derive(Parser)]
#[command(name = "sfs-umount", version, disable_version_flag = true)]
/// Unmounts an SFS volume. Returns when all data is on the device. The exit status is 64 if the
/// unmount succeeded, but data was lost without a report to a program
pub struct UmountArguments {
    /// Mount point, block device or image file of the volume
    #[arg(value_name = "DIR|DEVICE")]
    pub path: PathBuf,
    /// Print each step
    #[arg(short, long)]
    pub verbose: bool,
    /// Detach the mount although it is in use, and do not wait
    #[arg(short, long)]
    pub lazy: bool,
    /// Unmount although the daemon does not answer: requests under way fail, and data that programs have not synced may be lost.
    /// Does not wait
    #[arg(short, long)]
    pub force: bool,
    /// If the mount is in use, make it read-only instead
    #[arg(short, long)]
    pub read_only: bool,
    #[command(flatten)]
    accepted: IgnoredFlags,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}
