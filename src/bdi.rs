//! What can only be set once a mount answers: the kernel's read-ahead and dirty limits for it.
//!
//! Owns: the files under /sys/class/bdi.
//! Promises: a mount works without; what cannot be set is left as it is, and counted.
//! Never: touches another mount's settings, or decides how much the kernel may hold (see `bound`).

mod dirty_bound;
mod sysfs;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use sysfs::BdiFiles;

/// Read-ahead, in KiB: eight requests of the size that the kernel sends by default.
const READ_AHEAD_KB: &str = "1024";

/// Waits for the mount at `dir` to answer; gives its device number.
pub(crate) fn wait_for(dir: &Path) -> io::Result<u64> {
    Ok(fs::metadata(dir)?.dev())
}

/// What the kernel holds for a mount, from when the mount answers on.
#[derive(Debug, Default)]
pub(crate) struct BackingDevice {
    set_up: Mutex<Option<SetUp>>,
    /// Bytes that have arrived since the bound was looked at, and after how many it is looked at again.
    arrived: AtomicU64,
    look_after: AtomicU64,
    /// As it reads back: the kernel rounds it, and moves it with its dirty threshold. 0: not known.
    dirty_max: AtomicU64,
    set: AtomicU64,
    refused: AtomicU64,
}

/// The mount's backing device, and what was set there.
#[derive(Debug)]
struct SetUp {
    files: BdiFiles,
    /// The room there was, and when.
    last: Option<(u64, Instant)>,
}

/// The bound on what the kernel holds dirty, for those who ask how a mount is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirtyBound {
    /// Bytes; `None` if that is not known.
    pub(crate) bytes: Option<u64>,
    /// Times that it was set.
    pub(crate) set: u64,
    /// Times that it could not be set: what the kernel begins with, 1 % of its dirty threshold, stands.
    pub(crate) refused: u64,
}

impl BackingDevice {
    /// Sets the limits of the mount with device number `dev`, whose volume has `free` bytes of room. Only root
    /// can.
    pub(crate) fn configure(&self, dev: u64, free: u64) {
        let (major, minor) = (nix::sys::stat::major(dev), nix::sys::stat::minor(dev));
        let names = [format!("{major}:{minor}-fuseblk"), format!("{major}:{minor}")];
        let base = Path::new("/sys/class/bdi");
        let Some(files) = names.iter().find_map(|name| BdiFiles::open(&base.join(name)).ok())
        else {
            tracing::debug!("no backing device for {major}:{minor}");
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        files.try_write("read_ahead_kb", READ_AHEAD_KB);
        // Without, the bound counts for nothing until the machine as a whole has too much dirty. Kernels
        // without the file have it so.
        files.try_write("strict_limit", "1");
        *self.set_up.lock() = Some(SetUp { files, last: None });
        self.adjust(free);
    }

    /// So many bytes have arrived. Says whether so much room may have gone that the bound is to be looked at: see
    /// [`BackingDevice::adjust`].
    pub(crate) fn note_arrived(&self, bytes: u64) -> bool {
        let arrived = self.arrived.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_much = arrived >= self.look_after.load(Ordering::Relaxed);
        if is_much {
            self.arrived.store(0, Ordering::Relaxed);
        }
        is_much
    }

    /// Sets the bound on what the kernel holds dirty anew, if that is due with `free` bytes of room.
    pub(crate) fn adjust(&self, free: u64) {
        let mut set_up = self.set_up.lock();
        let Some(SetUp { files, last }) = set_up.as_mut() else { return };
        self.look_after.store(dirty_bound::look_after(free), Ordering::Relaxed);
        let is_due = |(before, at): (u64, Instant)| dirty_bound::is_due(free, before, at.elapsed());
        if !last.is_none_or(is_due) {
            return;
        }
        *last = Some((free, Instant::now()));
        let count = match files.set_dirty_max(dirty_bound::bound(free), needs_least()) {
            Ok(()) => &self.set,
            Err(error) => {
                tracing::debug!("the bound on what the kernel holds: {error}");
                &self.refused
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.dirty_max.store(files.dirty_max().unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes that the kernel may hold dirty: the bound, or what it begins with where that cannot be read.
    pub(crate) fn held_max(&self) -> u64 {
        match self.dirty_max.load(Ordering::Relaxed) {
            0 => dirty_bound::assumed(memory()),
            bytes => bytes,
        }
    }

    /// The bound.
    pub(crate) fn dirty_bound(&self) -> DirtyBound {
        let bytes = self.dirty_max.load(Ordering::Relaxed);
        DirtyBound {
            bytes: (bytes > 0).then_some(bytes),
            set: self.set.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// Bytes of memory that the machine has.
fn memory() -> u64 {
    let system = rustix::system::sysinfo();
    (system.totalram as u64).saturating_mul(system.mem_unit.into())
}

/// Whether this kernel has to be told the smallest bound.
fn needs_least() -> bool {
    dirty_bound::needs_least(&rustix::system::uname().release().to_string_lossy())
}
