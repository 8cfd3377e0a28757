//! The SSD cache of a mounted volume: finding it, opening it, its thread, and its end.
//!
//! A mount never fails for its cache: a cache that is missing or cannot be used is named in the log, and the volume is mounted
//! without it.

mod cache_file;
mod find;
mod report;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use sfs_cache::{Cache, CacheStat, CachedDevice, Identity};
use sfs_core::format::Superblock;
use sfs_core::{Volume, read_superblock};
use sfs_device::{Access, Device, FileDevice};

use cache_file::CacheFile;
pub(crate) use report::CacheReport;

use crate::mount_options::MountOptions;

/// The cache of a mount.
pub(crate) struct VolumeCache {
    cache: Arc<Cache>,
    file: Arc<CacheFile>,
    path: String,
    /// Epoch after the mount. Drawn before it, as the sandbox has no random numbers.
    last_epoch: [u8; 16],
    work: Arc<Work>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Wakes the thread of the cache.
#[derive(Default)]
struct Work {
    state: Mutex<WorkState>,
    changed: Condvar,
}

#[derive(Default)]
struct WorkState {
    is_due: bool,
    is_over: bool,
}

/// Result of looking for the cache of a volume.
#[derive(Default)]
pub(crate) struct Opened {
    /// The cache, if it can be used.
    pub(crate) cache: Option<Arc<VolumeCache>>,
    /// Line for the user, if the volume has a cache that cannot be used.
    pub(crate) warning: Option<String>,
}

/// Opens the cache of the volume on `disk`, if the volume has one and the options allow it. Its index takes at most `memory_max`
/// bytes. Writes nothing.
pub(crate) fn open(disk: &FileDevice, options: &MountOptions, memory_max: u64) -> Opened {
    // An error here is met again when the volume is opened, and explained there.
    let Ok(superblock) = read_superblock(disk) else { return Opened::default() };
    if !superblock.features.has_cache() || options.no_cache || options.volume.read_only {
        return Opened::default();
    }
    let shown = disk.path().display();
    match open_of(&superblock, options.cache_device.as_deref(), memory_max) {
        Ok(cache) => Opened { cache: Some(Arc::new(cache)), warning: None },
        Err(reason) => {
            let warning = format!("WARNING: {shown} is mounted without its SSD cache: {reason}");
            Opened { cache: None, warning: Some(warning) }
        }
    }
}

fn open_of(
    superblock: &Superblock,
    given: Option<&Path>,
    memory_max: u64,
) -> Result<VolumeCache, String> {
    let of = Identity {
        volume_uuid: superblock.uuid,
        cache_uuid: superblock.cache_uuid,
        epoch: superblock.epoch,
    };
    let path = match given {
        Some(path) => path.to_owned(),
        None => find::by_uuid(&of)?,
    };
    let shown = path.display().to_string();
    sfs_mkfs::refuse_in_use(&path).map_err(|error| error.to_string())?;
    let file = FileDevice::open_patiently(&path, Access::ReadWrite, || {});
    let file = file.map_err(|error| error.to_string())?;
    let file = Arc::new(CacheFile::new(file));
    let cache =
        Cache::open(file.clone(), &of, memory_max).map_err(|error| format!("{shown}: {error}"))?;
    let (work, thread) = (Arc::new(Work::default()), Mutex::new(None));
    let (cache, last_epoch) = (Arc::new(cache), random_epoch());
    Ok(VolumeCache { cache, file, path: shown, last_epoch, work, thread })
}

/// Returns 128 random bits; zeros, which no cache trusts, if the system has none.
pub(crate) fn random_epoch() -> [u8; 16] {
    let mut epoch = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut epoch));
    read.map_or([0; 16], |()| epoch)
}

impl VolumeCache {
    /// Returns the disk with this cache as one device.
    pub(crate) fn before(&self, disk: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(CachedDevice::new(disk, self.cache.clone()))
    }

    /// Makes the rings by which the cache device is read.
    pub(crate) fn make_read_rings(&self, count: usize) {
        self.file.make_read_rings(count);
    }

    /// Begins the mount of `volume` with the epoch that its superblock has by now. The log gets one line if the cache is given up
    /// later. A mount that fails from here on closes the volume and the cache.
    pub(crate) fn begin(
        self: &Arc<Self>,
        epoch: [u8; 16],
        name: &str,
        volume: &Arc<Volume>,
    ) -> BegunCache {
        let (name, path) = (name.to_owned(), self.path.clone());
        self.cache.on_drop(move |reason| {
            tracing::warn!(
                "{name}: its SSD cache {path} is not used any more: {reason}; all data is on the disk"
            );
        });
        self.cache.begin(epoch);
        BegunCache { cache: self.clone(), volume: volume.clone(), has_ended: false }
    }

    /// Starts the thread.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let work = self.work.clone();
        self.cache.on_work(move || {
            work.state.lock().is_due = true;
            work.changed.notify_one();
        });
        let (cache, work) = (self.cache.clone(), self.work.clone());
        let run = move || run(&cache, &work);
        let thread = std::thread::Builder::new().name("sfs-cache".into()).spawn(run)?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the use of the cache before a volume that was closed: what it holds is found by the next mount.
    fn close(&self, volume: &Volume) {
        self.work.state.lock().is_over = true;
        self.work.changed.notify_one();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            return;
        }
        match volume.end_epoch(self.last_epoch) {
            Ok(()) => self.cache.close(self.last_epoch),
            Err(error) => tracing::warn!("the SSD cache will be empty at the next mount: {error}"),
        }
    }

    /// Writes what was read to the cache device.
    pub(crate) fn flush(&self) -> Result<(), String> {
        self.cache.flush().map_err(|error| error.to_string())
    }

    /// Gives the cache up for `reason`, and closes its device.
    pub(crate) fn give_up(&self, reason: &str) {
        self.cache.give_up(reason);
        self.file.release();
    }

    /// Returns the figures.
    pub(crate) fn report(&self) -> CacheReport {
        let stat: CacheStat = self.cache.stat();
        CacheReport::new(&self.path, &stat)
    }
}

/// A cache whose mount has begun.
pub(crate) struct BegunCache {
    cache: Arc<VolumeCache>,
    volume: Arc<Volume>,
    has_ended: bool,
}

impl BegunCache {
    /// Ends the use of the cache after the volume was closed, or its closing has failed.
    pub(crate) fn end(mut self) {
        self.has_ended = true;
        self.cache.close(&self.volume);
    }
}

impl Drop for BegunCache {
    /// Ends a mount that has failed: otherwise it would count as cut off, and the cache would be empty.
    fn drop(&mut self) {
        if !self.has_ended && self.volume.close().is_ok() {
            self.cache.close(&self.volume);
        }
    }
}

/// Works until the cache is closed.
fn run(cache: &Cache, work: &Work) {
    loop {
        {
            let mut state = work.state.lock();
            while !state.is_due && !state.is_over {
                work.changed.wait(&mut state);
            }
            if state.is_over {
                return;
            }
            state.is_due = false;
        }
        while cache.work() {
            if work.state.lock().is_over {
                return;
            }
        }
    }
}
