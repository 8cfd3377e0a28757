//! A read-only mount of a volume in an object store: the newest state and those that follow, beside the writer; or the state that the
//! local cache of this machine continues, which the volume may have left behind.
//!
//! Nothing is claimed, and nothing is written to the store or to a disk. Beside the writer the mount has no device of its own; what the
//! daemon does with one, such as its lock, goes to an empty file in memory.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};
use sfs_core::Volume;
use sfs_core::request::VolumeOptions;
use sfs_device::{BLOCK_SIZE, Device, FileDevice};
use sfs_object::{LocalState, PageCache, Snapshot, SocketStore, VolumeState};

use super::{ENDING, Objects, connected, decrypted, remember};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::monitor::Monitor;
use crate::mount::{OpenedDevice, open_device, refuse_cache_in_use};
use crate::mount_options::MountOptions;
use crate::ready_pipe::ReadyPipe;

/// Largest part of the memory for metadata (`cache=`) that pages of objects take.
const CACHE_PART: usize = 2;

/// Largest number of bytes of pages of objects in memory.
const PAGE_CACHE_MAX: usize = 64 << 20;

/// Number of states that are tried in a row: the writer deletes objects of each while it is opened.
const ATTEMPTS: usize = 4;

type Opened = Snapshot<Arc<Objects>>;

/// State that a read-only mount shows.
enum Shown {
    /// The state in the store that was opened last.
    Newest(Mutex<Arc<Opened>>),
    /// The state that the local cache continues.
    Local(Arc<LocalState<Arc<Objects>>>),
}

/// The volume of a read-only mount.
pub(crate) struct ObjectReader {
    shown: Shown,
    /// Path of the local cache that is shown.
    cache: Option<String>,
    /// Number of states that were opened.
    states: AtomicU64,
    /// Time between two looks for a newer one; `None` if there are none.
    interval: Option<Duration>,
    objects: Arc<Objects>,
    store: Arc<SocketStore>,
}

/// Opens the newest state of the volume in the store at `url`, or what the local cache has, as `options` say.
pub(crate) fn open(
    url: &Path,
    options: &MountOptions,
    monitor: &Arc<Monitor>,
    pipe: &mut ReadyPipe,
) -> Result<(OpenedDevice, Arc<ObjectReader>), ExitError> {
    let name = sfs_object::shown_url(&url.to_string_lossy());
    if options.objects.takeover {
        return Err(ExitError::usage(format_args!(
            "{name}: a read-only mount takes nothing over: leave out 'takeover', or 'ro'"
        )));
    }
    // With it the kernel would not believe the sizes of files.
    let options = MountOptions { writeback: false, ..options.clone() };
    let cache = match options.objects.local_state {
        true => Some(open_cache(&name, &options, pipe)?),
        false => None,
    };
    let (store, failed) = connected(&name, monitor);
    let pages = PageCache::new(PAGE_CACHE_MAX.min(options.volume.cache / CACHE_PART));
    let pages = Arc::new(pages);
    let objects = decrypted(&store, options.objects.key_file.as_deref(), &name, &failed)?;
    let shown = match &cache {
        Some(cache) => LocalState::open(objects.clone(), cache.device.clone(), pages)
            .map(|state| Shown::Local(Arc::new(state))),
        None => Snapshot::open(objects.clone(), pages)
            .map(|snapshot| Shown::Newest(Mutex::new(Arc::new(snapshot)))),
    };
    let shown = shown.map_err(|error| failed(&error))?;
    remember(&store, &name).map_err(|error| failed(&error))?;
    let interval = options.objects.follow;
    let path = options.objects.cache_file.as_ref().filter(|_| cache.is_some());
    let path = path.map(|path| path.display().to_string());
    let opened = match cache {
        Some(cache) => cache,
        None => {
            let device =
                stand_in(url).map_err(|reason| ExitError::system(format_args!("{reason}")))?;
            OpenedDevice { device: Arc::new(device), options, is_write_protected: false }
        }
    };
    let reader =
        ObjectReader { shown, cache: path, states: AtomicU64::new(1), interval, objects, store };
    Ok((opened, Arc::new(reader)))
}

/// Opens the local cache, which is only read.
fn open_cache(
    name: &str,
    options: &MountOptions,
    pipe: &mut ReadyPipe,
) -> Result<OpenedDevice, ExitError> {
    let path = options.objects.cache_file.as_deref().ok_or_else(|| {
        ExitError::usage(format_args!(
            "{name}: 'local_state' shows what a local cache has: give -o cache_file=FILE, too"
        ))
    })?;
    refuse_cache_in_use(path)?;
    open_device(path, options, pipe)
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

    /// Returns the path of the local cache that the mount shows; `None` for the newest state in the store.
    pub(crate) fn cache(&self) -> Option<&str> {
        self.cache.as_deref()
    }

    /// Returns whether the objects are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.objects.is_encrypted()
    }

    /// Returns the state that was opened last, as a device.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        match &self.shown {
            Shown::Newest(newest) => newest.lock().clone(),
            Shown::Local(state) => state.clone(),
        }
    }

    /// Returns the time at which the writer has published the manifest of the state that was opened last, in seconds since 1970.
    pub(crate) fn published_secs(&self) -> u64 {
        let secs = |state: &VolumeState| state.written_secs;
        match &self.shown {
            Shown::Newest(newest) => secs(newest.lock().state()),
            Shown::Local(state) => secs(state.state()),
        }
    }

    /// Returns the number of states that were opened.
    pub(crate) fn states(&self) -> u64 {
        self.states.load(Ordering::Relaxed)
    }

    /// Returns the time between two looks for a newer state; `None` if there are none.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// Opens the newest state, unless it is the one that was opened last. The error is a line for the user.
    pub(crate) fn open_newer(
        &self,
        options: &VolumeOptions,
    ) -> Result<Option<Arc<Volume>>, String> {
        let Shown::Newest(shown) = &self.shown else { return Ok(None) };
        let mut last = shown.lock().clone();
        for attempt in 1.. {
            let newer = last.newer().map_err(|error| self.store.explain(&error))?;
            let Some(newer) = newer.map(Arc::new) else { return Ok(None) };
            match Volume::open(newer.clone(), options.clone(), file_clock::now()) {
                Ok(volume) => {
                    *shown.lock() = newer;
                    self.states.fetch_add(1, Ordering::Relaxed);
                    return Ok(Some(Arc::new(volume)));
                }
                Err(_) if newer.is_old() && attempt < ATTEMPTS => last = newer,
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(None)
    }

    /// Waits no longer for a store that does not answer than an unmount may.
    pub(crate) fn begin_to_end(&self) {
        self.store.set_patience(ENDING);
    }
}
