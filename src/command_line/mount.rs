//! The command line of `sfs-mount`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::exit_error::ExitError;
use crate::monitor::TakeOver;
use crate::mount_options::table;
use crate::program::IgnoredFlags;
use crate::transport;

#[derive(Parser)]
#[command(name = "sfs-mount", version, disable_version_flag = true, after_help = table::help())]
/// Mounts an SFS volume. Returns when the mount answers.
pub struct MountArguments {
    /// The block device or image file
    pub device: PathBuf,
    /// The mount point; a remount needs only this argument
    pub dir: Option<PathBuf>,
    /// Mount options, separated by commas; listed below
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Transport of requests from the kernel: auto, uring (io_uring), dev (/dev/fuse), or fuser
    /// (/dev/fuse through a library, without syncfs(2))
    #[arg(long, value_name = "TRANSPORT", default_value = "auto", hide_possible_values = true)]
    pub transport: transport::TransportChoice,
    /// Stay in the foreground, and log to the terminal
    #[arg(long)]
    pub foreground: bool,
    /// Log more
    #[arg(short, long)]
    pub verbose: bool,
    /// Check everything, but do not mount
    #[arg(short, long)]
    pub fake: bool,
    /// Ignore unknown mount options
    #[arg(short, long)]
    pub sloppy: bool,
    /// Take over a mount from the program at the other end of the standard input
    #[arg(long, value_name = "MOUNT", hide = true)]
    take_over: Option<OsString>,
    /// Mount with 'survive' as on a kernel that does not send requests again; for tests
    #[arg(long, hide = true)]
    pub no_resend: bool,
    #[command(flatten)]
    accepted: IgnoredFlags,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

impl MountArguments {
    /// Returns the mount that another program hands over.
    ///
    /// # Errors
    ///
    /// The value is not one of such a program.
    pub fn take_over(&self) -> Result<Option<TakeOver>, ExitError> {
        let wrong = || ExitError::usage("--take-over is for sfs itself; see sfs-ctl upgrade");
        self.take_over.as_ref().map(|given| TakeOver::parse(given).ok_or_else(wrong)).transpose()
    }
}
