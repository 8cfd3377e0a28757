//! The kernel's settings for a mount under /sys/class/bdi: read-ahead, and a bound on dirty data.
//!
//! [`BackingDevice`] makes the settings once the mount answers, and adjusts the bound while the
//! free space of the volume changes, by the policy in [`dirty_bound`]. A mount works without the
//! settings: a setting that the kernel refuses stays as it is. Refusals of the bound are counted.

mod dirty_bound;
mod sysfs;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use sfs_device::FileDevice;
use sfs_system::mountinfo::DeviceNumber;
use sysfs::BdiFiles;

use crate::device_speed::DeviceSpeed;
use crate::kernel_release;

/// Read-ahead, in KiB: eight requests of the size that the kernel sends by default.
const READ_AHEAD_KB: &str = "1024";

/// Directory of the kernel's settings for backing devices.
const DEVICES: &str = "/sys/class/bdi";

/// Waits for the mount whose root directory is open as `root` to answer. Returns its device number.
pub(crate) fn wait_for(root: &File) -> io::Result<u64> {
    Ok(root.metadata()?.dev())
}

/// Returns whether this process can have the kernel read ahead: in some containers root cannot, as no user can. Another mount's
/// setting is opened for that, and left as it is.
pub(crate) fn can_be_configured() -> bool {
    let Ok(devices) = std::fs::read_dir(DEVICES) else { return false };
    let opens = |path: PathBuf| File::options().write(true).open(path).is_ok();
    devices.flatten().any(|device| opens(device.path().join("read_ahead_kb")))
}

/// Backing device of a mount, with the bound on the dirty data that the kernel holds for the mount.
#[derive(Debug, Default)]
pub(crate) struct BackingDevice {
    /// Device of the volume, whose speed bounds the dirty data.
    device: Option<Arc<FileDevice>>,
    /// Speed of reading, which stands in for that of writing until something was written.
    read_speed: Option<DeviceSpeed>,
    /// `true` if the kernel reads asynchronously.
    pub(crate) reads_asynchronously: bool,
    /// Directory of the kernel's settings, until [`BackingDevice::configure`].
    opened: Mutex<Option<BdiFiles>>,
    configured: Mutex<Option<Configured>>,
    /// Number of bytes written since the last check of the bound. `check_after` is the number after
    /// which the bound is checked again.
    written: AtomicU64,
    check_after: AtomicU64,
    /// Bound as the kernel states it, in bytes; 0 if unknown. The kernel rounds it, and moves it with its dirty
    /// threshold.
    dirty_max: AtomicU64,
    set: AtomicU64,
    refused: AtomicU64,
}

/// Files of the backing device, and the last adjustment.
#[derive(Debug)]
struct Configured {
    files: BdiFiles,
    /// Free bytes at the last adjustment, and its time.
    last: Option<(u64, Instant)>,
}

/// Bound on the kernel's dirty data, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirtyBound {
    /// `true` if the kernel reads asynchronously.
    pub(crate) reads_asynchronously: bool,
    /// Number of bytes that the device writes in a second; `None` if unknown.
    pub(crate) speed: Option<u64>,
    /// Bound in bytes; `None` if unknown.
    pub(crate) bytes: Option<u64>,
    /// Number of times that the bound was set.
    pub(crate) set: u64,
    /// Number of times that the kernel refused the bound, and used its own instead, 1 % of its dirty
    /// threshold.
    pub(crate) refused: u64,
}

impl BackingDevice {
    /// Returns the settings for a volume on `device`, whose speed of reading was measured.
    pub(crate) fn new(
        device: Arc<FileDevice>,
        read_speed: Option<DeviceSpeed>,
        reads_asynchronously: bool,
    ) -> Self {
        Self { device: Some(device), read_speed, reads_asynchronously, ..Self::default() }
    }

    /// Returns the speed by which dirty data is bounded. On a fast device a busy processor makes writes look slow.
    fn bounding_speed(&self) -> Option<u64> {
        let is_slow = self.read_speed.is_some_and(DeviceSpeed::is_slow);
        if is_slow && !self.reads_asynchronously { self.write_speed() } else { None }
    }

    /// Returns the speed of reading; `None` if the device is read through the page cache.
    pub(crate) fn read_speed(&self) -> Option<DeviceSpeed> {
        self.read_speed
    }

    /// Returns the number of bytes that the device writes in a second, if that is known.
    fn write_speed(&self) -> Option<u64> {
        self.device
            .as_ref()
            .and_then(|device| device.write_speed())
            .or_else(|| self.read_speed.map(|speed| speed.bytes_per_second))
    }

    /// Opens the directory of the mount with device number `number`, which has one as soon as it is made. Returns the path.
    pub(crate) fn open(&self, number: DeviceNumber) -> Option<PathBuf> {
        let DeviceNumber { major, minor } = number;
        let names = [format!("{major}:{minor}-fuseblk"), format!("{major}:{minor}")];
        let base = Path::new(DEVICES);
        let open =
            |name| BdiFiles::open(&base.join(name)).ok().map(|files| (base.join(name), files));
        let (path, files) = names.iter().find_map(open)?;
        *self.opened.lock() = Some(files);
        Some(path)
    }

    /// Configures the mount of [`BackingDevice::open`], whose volume has `free` free bytes. Only root can configure a mount.
    pub(crate) fn configure(&self, free: u64) {
        let Some(files) = self.opened.lock().take() else {
            tracing::debug!("no backing device of the mount");
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        files.try_write("read_ahead_kb", READ_AHEAD_KB);
        // Without a strict limit, the kernel ignores the bound until the machine as a whole has too
        // much dirty data. Kernels that lack the file always enforce the bound.
        files.try_write("strict_limit", "1");
        *self.configured.lock() = Some(Configured { files, last: None });
        self.adjust(free);
    }

    /// Counts `bytes` that were written. Returns whether so many were written that [`BackingDevice::adjust`] is
    /// due.
    pub(crate) fn count_written(&self, bytes: u64) -> bool {
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_much = written >= self.check_after.load(Ordering::Relaxed);
        if is_much {
            self.written.store(0, Ordering::Relaxed);
        }
        is_much
    }

    /// Sets the bound again if that is due with `free` free bytes.
    pub(crate) fn adjust(&self, free: u64) {
        let mut configured = self.configured.lock();
        let Some(Configured { files, last }) = configured.as_mut() else { return };
        self.check_after.store(dirty_bound::check_after(free), Ordering::Relaxed);
        let is_due = |(before, at): (u64, Instant)| dirty_bound::is_due(free, before, at.elapsed());
        if !last.is_none_or(is_due) {
            return;
        }
        *last = Some((free, Instant::now()));
        let count = match files
            .set_dirty_max(dirty_bound::bound(free, self.bounding_speed()), needs_min_bound())
        {
            Ok(()) => &self.set,
            Err(error) => {
                tracing::debug!("cannot set the bound on dirty data: {error}");
                &self.refused
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.dirty_max.store(files.dirty_max().unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the largest number of dirty bytes that the kernel holds: the bound, or an estimate
    /// of the kernel's own bound if the bound is unknown.
    pub(crate) fn dirty_bytes_max(&self) -> u64 {
        match self.dirty_max.load(Ordering::Relaxed) {
            0 => dirty_bound::assumed(memory_bytes()),
            bytes => bytes,
        }
    }

    /// Returns the current bound and its counters.
    pub(crate) fn dirty_bound(&self) -> DirtyBound {
        let bytes = self.dirty_max.load(Ordering::Relaxed);
        DirtyBound {
            reads_asynchronously: self.reads_asynchronously,
            speed: self.write_speed(),
            bytes: (bytes > 0).then_some(bytes),
            set: self.set.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// Returns the memory of the machine in bytes.
fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    (system.totalram as u64).saturating_mul(system.mem_unit.into())
}

/// Returns whether this kernel needs the smallest bound set as well.
fn needs_min_bound() -> bool {
    dirty_bound::needs_min_bound(&kernel_release::running())
}
