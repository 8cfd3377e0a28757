//! `sfs-mount`: mounts a volume.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sfs::ExitError;
use sfs::mount_options::MountOptions;
use sfs::mount_options::remount::asks_for_remount;
use sfs::mount_session::{self, MountRequest};
use sfs::program::IgnoredFlags;
use sfs::remount::RemountRequest;
use sfs::transport;

const OPTIONS: &str = "\
Mount options:
  ro, rw, nosuid, nodev, noexec, nosymfollow, noatime
                        as for every filesystem; reading changes no times; only root can say
                        nosymfollow
  sync, dirsync         make every operation, or every one on names, durable before it returns
  write_buffer=SIZE     memory for data that waits to be written (64M, less where
                        memory is short)
  cache=SIZE            memory for metadata (128M, less where memory is short)
  commit=SECONDS        longest time that written data waits (5)
  checkpoint=SECONDS    longest time between checkpoints (30)
  policy=NAME           which blocks are written together: sfs, sfs-fast12, sepbit, none, ... (sfs)
  groups=N              most groups of the policy, where they can be chosen (8 for sfs)
  victim=NAME           which segment is cleaned first (what goes with the policy)
  remainder=pure|mixed  what does not fill a segment goes to its own group, or all to one (pure)
  cleaning=yielding|eager  clean in the background when nothing else is asked for, or at once
                        (yielding)
  discard, nodiscard    tell the device what holds nothing any more, or do not (discard)
  errors=continue|remount-ro  when damage is met, go on, or write nothing any more (continue)
  writeback=on|off      let the kernel gather writes before SFS sees them (on); off, also said
                        nowriteback: a full volume is told at write(2), and holes are reported
  async_dio=auto|on|off  let libaio and io_uring have several direct requests under way (auto: from
                        Linux 7.3 on); with an older kernel, on may lose direct writes to a file
                        that is also read through the page cache
  threads=N             threads that serve requests, 1..64 (one for each core, two to 14, and two;
                        with io_uring twice as many)
  allow_other           let other users in, where an ordinary user mounts
  remount               change ro, rw, suid, dev, exec and symfollow of what is mounted; only root
                        can";

#[derive(Parser)]
#[command(name = "sfs-mount", version, disable_version_flag = true, after_help = OPTIONS)]
/// Mounts an SFS volume. Returns when the mount answers.
struct Arguments {
    /// The block device or image file
    device: PathBuf,
    /// The directory to mount it on; alone, it can be remounted
    dir: Option<PathBuf>,
    /// Mount options, separated by commas; listed below
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Transport of requests from the kernel: auto, uring (io_uring), dev (/dev/fuse), or fuser (the
    /// same through a library, which syncfs(2) does not reach)
    #[arg(long, value_name = "TRANSPORT", default_value = "auto", hide_possible_values = true)]
    transport: transport::TransportChoice,
    /// Stay in the foreground, and log to the terminal
    #[arg(long)]
    foreground: bool,
    /// Say more
    #[arg(short, long)]
    verbose: bool,
    /// Do everything but mount
    #[arg(short, long)]
    fake: bool,
    /// Pass over unknown mount options
    #[arg(short, long)]
    sloppy: bool,
    #[command(flatten)]
    accepted: IgnoredFlags,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

fn main() -> ExitCode {
    sfs::program::run(mount)
}

fn mount(arguments: Arguments) -> Result<(), ExitError> {
    let lists = || arguments.options.iter().map(String::as_str);
    if asks_for_remount(lists()) {
        let (device, dir) = match &arguments.dir {
            Some(dir) => (Some(arguments.device.as_path()), dir),
            None => (None, &arguments.device),
        };
        return sfs::remount::remount(&RemountRequest {
            device,
            dir,
            options: &arguments.options.join(","),
            sloppy: arguments.sloppy,
            fake: arguments.fake,
        });
    }
    let options = MountOptions::parse(lists(), arguments.sloppy)?;
    let Some(dir) = arguments.dir else {
        let device = arguments.device.display();
        return Err(ExitError::usage(format_args!(
            "{device}: <DIR>, the directory to mount it on, is missing"
        )));
    };
    mount_session::run(&MountRequest {
        device: arguments.device,
        dir,
        options,
        transport: arguments.transport,
        foreground: arguments.foreground,
        verbose: arguments.verbose,
        fake: arguments.fake,
    })
}
