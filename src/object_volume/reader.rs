//! A read-only mount beside the writer: the newest state of a volume in an object store.
//!
//! Nothing is claimed, and nothing is written to the store or to a disk. The mount has no device of its own; what the daemon does with
//! one, such as its lock, goes to an empty file in memory.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, FileDevice, Geometry, ReadRun, Stream};
use sfs_object::{PageCache, Snapshot, SocketStore};

use super::{ENDING, Objects, connected, decrypted, remember};
use crate::exit_error::ExitError;
use crate::monitor::Monitor;
use crate::mount::OpenedDevice;
use crate::mount_options::MountOptions;

/// Largest part of the memory for metadata (`cache=`) that pages of objects take.
const CACHE_PART: usize = 2;

/// Largest number of bytes of pages of objects in memory.
const PAGE_CACHE_MAX: usize = 64 << 20;

/// The state that is mounted.
pub(crate) struct ObjectReader {
    snapshot: Snapshot<Arc<Objects>>,
    objects: Arc<Objects>,
    store: Arc<SocketStore>,
    name: String,
    /// `true` after the log says that the state is old.
    is_told: AtomicBool,
}

/// Opens the newest state of the volume in the store at `url`.
pub(crate) fn open(
    url: &Path,
    options: &MountOptions,
    monitor: &Arc<Monitor>,
) -> Result<(OpenedDevice, Arc<ObjectReader>), ExitError> {
    let name = sfs_object::shown_url(&url.to_string_lossy());
    if options.takeover {
        return Err(ExitError::usage(format_args!(
            "{name}: a read-only mount takes nothing over: leave out 'takeover', or 'ro'"
        )));
    }
    let (store, failed) = connected(&name, monitor);
    let pages = PageCache::new(PAGE_CACHE_MAX.min(options.volume.cache / CACHE_PART));
    let objects = decrypted(&store, options.key_file.as_deref(), &name, &failed)?;
    let opened = Snapshot::open(objects.clone(), Arc::new(pages));
    let snapshot = opened.map_err(|error| failed(&error))?;
    remember(&store, &name).map_err(|error| failed(&error))?;
    let stand_in = stand_in(url).map_err(|reason| ExitError::system(format_args!("{reason}")))?;
    let opened = OpenedDevice {
        device: Arc::new(stand_in),
        options: options.clone(),
        is_write_protected: false,
    };
    let is_told = AtomicBool::default();
    Ok((opened, Arc::new(ObjectReader { snapshot, objects, store, name, is_told })))
}

/// Returns an empty device in memory, which is shown as `url`.
fn stand_in(url: &Path) -> Result<FileDevice, String> {
    let made =
        memfd_create("sfs-read-only", MemfdFlags::CLOEXEC).map_err(|error| error.to_string());
    let file = File::from(made?);
    file.set_len(BLOCK_SIZE as u64).map_err(|error| error.to_string())?;
    FileDevice::adopt(url, file, None).map_err(|error| error.to_string())
}

impl ObjectReader {
    /// Returns the process that has the store.
    pub(crate) fn store(&self) -> &SocketStore {
        &self.store
    }

    /// Returns whether the objects are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.objects.is_encrypted()
    }

    /// Returns the time at which the writer has published the manifest of the mounted state, in seconds since 1970.
    pub(crate) fn published_secs(&self) -> u64 {
        self.snapshot.state().written_secs
    }

    /// Waits no longer for a store that does not answer than an unmount may.
    pub(crate) fn begin_to_end(&self) {
        self.store.set_patience(ENDING);
    }

    /// Logs once that objects of the state are deleted.
    fn look(&self) {
        if self.snapshot.is_old() && !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: the volume has changed, and what this mount shows is deleted in part; mount it again",
                self.name
            );
        }
    }
}

impl Device for ObjectReader {
    fn geometry(&self) -> &Geometry {
        self.snapshot.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.snapshot.read(address, buffer).inspect_err(|_| self.look())
    }

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        let results = self.snapshot.read_many(runs);
        self.look();
        results
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.snapshot.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.snapshot.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.snapshot.discard(address, count)
    }
}
