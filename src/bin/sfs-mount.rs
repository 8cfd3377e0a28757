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
  ro, rw, nosuid, nodev, noexec, nosymfollow
                        as for every filesystem; only root can use nosymfollow
  relatime, noatime, strictatime  reading moves a file's time of access once after each change and
                        once a day, never, or always (relatime); the time waits in memory
  norecovery            mount the last checkpoint, read-only, without the log since then, and write
                        nothing
  sync, dirsync         make every operation, or every operation on names, durable before it returns
  write_buffer=SIZE     memory for data that waits to be written (64M, less where
                        memory is short)
  cache=SIZE            memory for metadata and read-ahead (128M, less where memory is short); below
                        16M the kernel alone reads ahead
  commit=SECONDS        longest time that written data waits (5)
  checkpoint=SECONDS    longest time between checkpoints (30; 300 while little is written)
  policy=NAME           which blocks are written together: sfs, sfs-fast12, sepbit, none, ... (sfs)
  groups=N              maximum number of groups, if the policy lets the user choose it (8 for sfs)
  victim=NAME           which segment is cleaned first (the default of the policy)
  remainder=pure|mixed  blocks that do not fill a segment go to their own group, or all to one group
                        (pure)
  cleaning=yielding|eager  clean in the background between requests, or at once (yielding)
  wear_levelling=N      move data that never changes once its segment is N erase cycles behind the most
                        used one (off): for flash without a controller that levels wear itself
  discard, nodiscard    discard unused segments on the device, or do not (discard)
  grow, nogrow          grow a volume that is smaller than its device, or do not (nogrow)
  errors=continue|remount-ro  after damage is found, continue, or stop all writes (continue)
  writeback=on|off      let the kernel gather writes before SFS sees them (on); off, also written as
                        nowriteback: write(2) fails on a full volume, and holes are reported
  async_dio=auto|on|off  let libaio and io_uring have several direct requests in flight (auto: from
                        Linux 7.3 on); with an older kernel, on may lose direct writes to a file
                        that is also read through the page cache
  async_read=auto|on|off  let the kernel send several reads of a file at a time (auto: if the device
                        reads 200 MiB in a second, and the daemon does not read ahead or the mount
                        is not root's); off: reads do not wait behind queued writes
  acl, noacl            enforce access control lists (where the kernel and the transport can); acl: or
                        do not mount; noacl: the mode alone decides, and other users than the owner
                        of a directory cause fewer requests
  threads=N             threads that serve requests, 1..64 (one for each core, two to 14, and two;
                        with io_uring twice as many)
  metrics=ADDRESS:PORT  serve metrics to Prometheus at a loopback address, to every user of the machine
                        and without names (not); root and the mounting user need no option for it:
                        see sfs-ctl metrics
  allow_other           let other users access the mount of an ordinary user
  remount               change ro, rw, suid, dev, exec, symfollow and the times of access of a
                        mount; only root can";

#[derive(Parser)]
#[command(name = "sfs-mount", version, disable_version_flag = true, after_help = OPTIONS)]
/// Mounts an SFS volume. Returns when the mount answers.
struct Arguments {
    /// The block device or image file
    device: PathBuf,
    /// The mount point; a remount needs only this argument
    dir: Option<PathBuf>,
    /// Mount options, separated by commas; listed below
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Transport of requests from the kernel: auto, uring (io_uring), dev (/dev/fuse), or fuser
    /// (/dev/fuse through a library, without syncfs(2))
    #[arg(long, value_name = "TRANSPORT", default_value = "auto", hide_possible_values = true)]
    transport: transport::TransportChoice,
    /// Stay in the foreground, and log to the terminal
    #[arg(long)]
    foreground: bool,
    /// Log more
    #[arg(short, long)]
    verbose: bool,
    /// Check everything, but do not mount
    #[arg(short, long)]
    fake: bool,
    /// Ignore unknown mount options
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
            "{device}: the mount point <DIR> is missing; see --help"
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
