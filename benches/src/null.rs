//! A FUSE filesystem that keeps everything in RAM, in the simplest fast way: the ceiling.
//!
//! Owns its mount and the options of it, which are those of SFS's own shell. Promises to do for each
//! request the least that a right answer needs. Never persists anything, never checks permissions.

mod below;
mod filesystem;
mod own;
mod store;

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, thread};

use clap::ValueEnum;
use fuser::{Config, MountOption, Session, SessionACL};

/// Settings of the kernel's backing-device entry for the mount, as SFS's shell makes them.
const BDI: [(&str, &str); 3] =
    [("read_ahead_kb", "1024"), ("strict_limit", "0"), ("max_bytes", "536870912")];

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// io_uring, by sfs-fuse.
    Uring,
    /// `/dev/fuse`, by sfs-fuse.
    Dev,
    /// `/dev/fuse`, by fuser.
    Fuser,
}

/// Mounts at `dir` and serves until it is unmounted. `writeback` asks for the kernel's writeback cache; what
/// files hold is on `below` then, not in RAM, as far as the transport is our own.
pub fn serve(
    dir: &Path,
    transport: Transport,
    writeback: bool,
    threads: Option<usize>,
    below: Option<&Path>,
) -> io::Result<()> {
    let cores = || thread::available_parallelism().map_or(2, usize::from);
    // With fewer than sfs-mount starts, it would not be its ceiling.
    let threads = threads.unwrap_or_else(|| cores().clamp(2, 14) + 2);
    let mounted = dir.to_owned();
    if transport != Transport::Fuser {
        let rings = transport == Transport::Uring;
        return own::serve(dir, writeback, rings, threads, below, || {
            thread::spawn(move || tune(&mounted));
        });
    }
    if below.is_some() {
        return Err(io::Error::other("with fuser there is no device below"));
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
    // From a thread of its own: the first stat has to be answered by the session below.
    thread::spawn(move || tune(&mounted));
    session.run()
}

/// Best effort: only root may.
fn tune(dir: &Path) {
    let Ok(dev) = fs::metadata(dir).map(|meta| meta.dev()) else { return };
    let bdi = format!("/sys/class/bdi/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    for (name, value) in BDI {
        if let Err(error) = fs::write(format!("{bdi}/{name}"), value) {
            eprintln!("nullfs: {bdi}/{name} stays as it is: {error}");
        }
    }
}
