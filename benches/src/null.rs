//! The null filesystem: a FUSE filesystem in RAM that does the least work per request, as the
//! ceiling for SFS.
//!
//! Its mount options are those of `sfs-mount`. The filesystem stores no data durably, and checks no
//! permission.

mod below;
mod filesystem;
mod own;
mod store;

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, thread};

use clap::ValueEnum;
use fuser::{Config, MountOption, Session, SessionACL};

/// Settings of the kernel's backing-device entry for the mount, as `sfs-mount` makes them.
const BDI: [(&str, &str); 3] =
    [("read_ahead_kb", "1024"), ("strict_limit", "0"), ("max_bytes", "536870912")];

/// Transport of requests from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// io_uring, by sfs-fuse.
    Uring,
    /// `/dev/fuse`, by sfs-fuse.
    Dev,
    /// `/dev/fuse`, by fuser.
    Fuser,
}

/// Mounts at `dir` and serves until the mount ends. `writeback` asks for the kernel's write-back
/// cache. File content is on `below` if it is given, with the transports of sfs-fuse, and else in
/// RAM.
pub fn serve(
    dir: &Path,
    transport: Transport,
    writeback: bool,
    threads: Option<usize>,
    below: Option<&Path>,
) -> io::Result<()> {
    let cores = || thread::available_parallelism().map_or(2, usize::from);
    // At least as many threads as sfs-mount starts: with fewer, the result would be no ceiling.
    let threads = threads.unwrap_or_else(|| cores().clamp(2, 14) + 2);
    let mounted = dir.to_owned();
    if transport != Transport::Fuser {
        let rings = transport == Transport::Uring;
        return own::serve(dir, writeback, rings, threads, below, || {
            thread::spawn(move || tune(&mounted));
        });
    }
    if below.is_some() {
        return Err(io::Error::other("--device needs --transport dev or uring"));
    }
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("nullfs".into()),
        MountOption::Subtype("nullfs".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(threads);
    config.clone_fd = true;
    let session = Session::new(filesystem::NullFs::new(writeback), dir, &config)?;
    // A separate thread, because the session below has to answer the stat in `tune`.
    thread::spawn(move || tune(&mounted));
    session.run()
}

/// Writes the settings in [`BDI`], for which the process has to run as root.
fn tune(dir: &Path) {
    let Ok(dev) = fs::metadata(dir).map(|meta| meta.dev()) else { return };
    let bdi = format!("/sys/class/bdi/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    for (name, value) in BDI {
        if let Err(error) = fs::write(format!("{bdi}/{name}"), value) {
            eprintln!("nullfs: {bdi}/{name} is not changed: {error}");
        }
    }
}
