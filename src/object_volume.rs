//! A mounted volume in an object store: opening it, its threads, and its end.
//!
//! The file or device that the mount has open is the local cache; the volume above it is an [`ObjectDevice`]. The network is in another
//! process, `sfs-store`, which the monitor starts, because the sandbox lets the daemon start none. One thread uploads what is
//! written, and another one deletes objects that nothing needs any more.

pub(crate) mod credentials;
pub(crate) mod reader;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam::channel::{self, RecvTimeoutError, Sender};
use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Device, FileDevice, OpenErrorKind};
use sfs_object::{
    Durability, EncryptedStore, EncryptionError, Failure, FileKey, Limits, Nonce, ObjectDevice,
    ObjectError, OpenError, OpenRequest, Outage, Patience, SocketStore, Trouble, read_state,
    system_random,
};

use crate::exit_error::ExitError;
use crate::monitor::Monitor;
use crate::mount::{OpenedDevice, open_device, refuse_cache_in_use};
use crate::mount_options::MountOptions;
use crate::ready_pipe::ReadyPipe;
use crate::volume_cache::random_epoch;

/// How long an unmount waits for a store that does not answer.
const ENDING: Patience =
    Patience { unreachable: Some(Duration::from_secs(30)), refusing: Duration::from_secs(5) };

/// Longest time of an unmount that was announced.
const ANNOUNCED: Duration = Duration::from_secs(330);

/// How long writers wait for a store that does not answer once an unmount was announced.
const WRITERS_WAIT: Duration = Duration::from_secs(30);
/// The same once the mount is gone.
const WRITERS_WAIT_AT_THE_END: Duration = Duration::from_secs(5);
/// How long reads wait then.
const READS_WAIT_AT_THE_END: Duration = Duration::from_secs(30);

/// Time between two looks at what may be deleted.
const DELETION_INTERVAL: Duration = Duration::from_secs(10);

/// Threads that read ahead: so many objects, of up to 4 MiB, are under way at once.
const READERS: usize = 4;

/// The objects of a volume, decrypted.
type Objects = EncryptedStore<Arc<SocketStore>>;

/// The volume of a mount.
pub(crate) struct ObjectVolume {
    device: Arc<ObjectDevice<Arc<Objects>>>,
    objects: Arc<Objects>,
    store: Arc<SocketStore>,
    name: String,
    cache: String,
    durability: Durability,
    upload_interval: Duration,
    /// `true` if threads read ahead of who reads in order.
    reads_ahead: bool,
    /// The thread that uploads, and what ends the one that deletes.
    threads: Mutex<Option<(JoinHandle<()>, Sender<()>)>>,
    has_ended: Mutex<bool>,
}

/// A local cache that is open, and the volume in a store.
pub(crate) struct Opened {
    pub(crate) cache: OpenedDevice,
    pub(crate) volume: Arc<ObjectVolume>,
}

/// Opens the volume in the store at `url`, and its local cache, which `local` makes the device of. An empty or missing cache file is
/// made.
pub(crate) fn open(
    url: &Path,
    options: &MountOptions,
    monitor: &Arc<Monitor>,
    pipe: &mut ReadyPipe,
    local: impl FnOnce(&Arc<FileDevice>) -> Arc<dyn Device>,
) -> Result<Opened, ExitError> {
    let name = sfs_object::shown_url(&url.to_string_lossy());
    let path = check(&name, options)?;
    refuse_cache_in_use(path)?;
    let (store, failed) = connected(&name, monitor);
    let objects = decrypted(&store, options.objects.key_file.as_deref(), &name, &failed)?;
    let state = read_state(&objects).map_err(|error| failed(&error))?;
    let needed_bytes = state.shape.cache_blocks() * BLOCK_SIZE as u64;
    store.probe().map_err(|reason| ExitError::mount(format_args!("{name}: {reason}")))?;
    make_cache(path, needed_bytes)?;
    let cache = open_device(path, options, pipe)?;
    if cache.is_write_protected {
        return Err(ExitError::mount(format_args!("{}: is write-protected", path.display())));
    }
    let cache_blocks = match options.objects.cache_size {
        Some(bytes) => bytes / BLOCK_SIZE as u64,
        None => room_for(path, needed_bytes) / BLOCK_SIZE as u64,
    };
    let request = OpenRequest {
        nonce: Nonce(random_epoch()),
        host: sfs_system::host_name(),
        now: now_secs(),
        takes_over: options.objects.takeover,
        durability: options.objects.durability,
        limits: Limits::of_mount(cache_blocks),
    };
    let device = ObjectDevice::open(objects.clone(), local(&cache.device), &request);
    let device = Arc::new(device.map_err(|error| failed(&error))?);
    device.set_outage(match options.objects.outage_fails {
        true => Outage::Fail(options.objects.outage_wait),
        false => Outage::Block,
    });
    // Releases the volume if the mount fails from here on.
    let volume = ObjectVolume {
        device,
        objects,
        store: store.clone(),
        name: name.clone(),
        cache: path.display().to_string(),
        durability: options.objects.durability,
        upload_interval: options.objects.upload_interval,
        // A read would have to wait for what is read ahead, and could not give it up.
        reads_ahead: !options.objects.outage_fails,
        threads: Mutex::default(),
        has_ended: Mutex::new(false),
    };
    remember(&store, &name).map_err(|error| failed(&error))?;
    Ok(Opened { cache, volume: Arc::new(volume) })
}

/// Returns the store that the monitor's program reaches, and a function that explains an error to the user.
fn connected(
    name: &str,
    monitor: &Arc<Monitor>,
) -> (Arc<SocketStore>, impl Fn(&OpenError) -> ExitError + use<>) {
    let connecting = monitor.clone();
    let connect = move || connecting.start_store().map(Into::into);
    let store = Arc::new(SocketStore::new(Box::new(connect), Patience::IMPATIENT));
    let (asked, name) = (store.clone(), name.to_owned());
    let failed = move |error: &OpenError| match error {
        OpenError::Failure(Failure::Object(ObjectError::NoVolume)) => {
            ExitError::mount(format_args!(
                "{name}: there is no volume; 'sfs-mkfs {name} --cache FILE --size SIZE' makes one"
            ))
        }
        error => ExitError::mount(format_args!("{name}: {}", asked.explain(error))),
    };
    (store, failed)
}

/// Returns the objects of the store, decrypted by the key in the file, if the volume has one. Refuses a volume that needs another key.
fn decrypted(
    store: &Arc<SocketStore>,
    key_file: Option<&Path>,
    name: &str,
    failed: &impl Fn(&OpenError) -> ExitError,
) -> Result<Arc<Objects>, ExitError> {
    // The cipher has its own key.
    let key = key_file.map(FileKey::read).transpose().map_err(ExitError::mount)?;
    let objects = EncryptedStore::open(store.clone(), key.as_ref(), Box::new(system_random));
    objects.map(Arc::new).map_err(|error| match error {
        EncryptionError::Stopped(stopped) => failed(&OpenError::Failure(stopped.into())),
        error => ExitError::mount(format_args!("{name}: {error}")),
    })
}

/// Has the store be waited for as a mount does, and its troubles be logged.
fn remember(store: &SocketStore, name: &str) -> Result<(), OpenError> {
    store.remember_volume()?;
    store.set_patience(Patience::OF_MOUNTS);
    let shown = name.to_owned();
    store.observe(Box::new(move |trouble| match trouble {
        Some(Trouble { reason, is_refusal: true, .. }) => {
            tracing::warn!("{shown}: refused: {reason}; it is tried again until it is done");
        }
        Some(Trouble { reason, .. }) => {
            tracing::warn!("{shown}: {reason}; what needs the object store waits");
        }
        None => tracing::info!("{shown}: the object store answers again"),
    }));
    Ok(())
}

/// Refuses options that a volume in an object store does not have. Returns the path of the local cache.
fn check<'a>(name: &str, options: &'a MountOptions) -> Result<&'a Path, ExitError> {
    options.objects.cache_file.as_deref().ok_or_else(|| {
        ExitError::usage(format_args!(
            "{name}: a volume in an object store needs a local cache: give -o cache_file=FILE, or -o ro"
        ))
    })
}

/// Makes a sparse file of `len` bytes, unless there is a file with content or a device.
fn make_cache(path: &Path, len: u64) -> Result<(), ExitError> {
    let failed = |error| ExitError::mount(format_args!("{}: {error}", path.display()));
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == 0 => {
            let file = fs::File::options().write(true).open(path);
            file.and_then(|file| file.set_len(len)).map_err(failed)
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            FileDevice::create_private(path, len).map(drop).or_else(|error| match error.kind {
                OpenErrorKind::Exists => Ok(()),
                _ => Err(ExitError::mount(error)),
            })
        }
        Err(error) => Err(failed(error)),
    }
}

/// Returns the bytes that the cache at `path` may take without being told: half of what it has and what is free beside it.
fn room_for(path: &Path, needed_bytes: u64) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(found) = fs::metadata(path) else { return needed_bytes };
    let Ok(space) = rustix::fs::statvfs(path) else { return needed_bytes };
    match found.is_file() {
        true => (found.blocks() * 512 + space.f_bavail * space.f_frsize) / 2,
        false => needed_bytes,
    }
}

/// Returns the reason of a failure for the user: who has the volume now, if it was taken over.
fn reason((objects, store): (&Arc<Objects>, &SocketStore), failure: Failure) -> String {
    let is_taken_over = matches!(
        failure,
        Failure::Object(ObjectError::TakenOver { .. } | ObjectError::Superseded(_))
    );
    match is_taken_over.then(|| read_state(objects)) {
        Some(Ok(state)) => format!("{} has taken the volume over", state.host),
        _ => store.explain(&failure.into()),
    }
}

/// Returns the seconds since the system was started, by a clock that nobody sets.
fn steady_secs() -> u64 {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since_boot.tv_sec.try_into().unwrap_or_default()
}

/// Returns the seconds since 1970.
fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl ObjectVolume {
    /// Returns the volume as a device.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Returns the contract of fsync(2).
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns the path of the local cache.
    pub(crate) fn cache(&self) -> &str {
        &self.cache
    }

    /// Returns the process that has the store.
    pub(crate) fn store(&self) -> &SocketStore {
        &self.store
    }

    /// Returns whether the objects are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.objects.is_encrypted()
    }

    /// Returns the bytes of the objects that hold the content of the volume.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.device.stored_bytes()
    }

    /// Returns why nothing more is written, if that is so.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.device.failure()
    }

    /// Starts the threads.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        self.device.begin_worker();
        let (device, objects, store) =
            (self.device.clone(), self.objects.clone(), self.store.clone());
        let (name, cache) = (self.name.clone(), self.cache.clone());
        let interval = self.upload_interval;
        let upload = move || {
            while device.wait_for_demand(interval) {
                let Err(failure) = device.upload_due(now_secs()) else { continue };
                let reason = reason((&objects, &store), failure);
                if device.failure().is_none() {
                    tracing::warn!("{name}: {reason}; it is tried again");
                    continue;
                }
                tracing::error!(
                    "{name}: {reason}; nothing more is written, and the cache {cache} has what was not uploaded"
                );
                // Whoever waits learns of the failure.
                device.end_worker();
            }
        };
        let (stop, stopped) = channel::bounded::<()>(0);
        let device = self.device.clone();
        let delete = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(DELETION_INTERVAL) {
                device.collect(steady_secs);
            }
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        thread("sfs-delete").spawn(delete)?;
        if self.reads_ahead {
            self.device.begin_ahead();
            for _ in 0..READERS {
                let device = self.device.clone();
                thread("sfs-fetch").spawn(move || while device.read_ahead() {})?;
            }
        }
        *self.threads.lock() = Some((thread("sfs-upload").spawn(upload)?, stop));
        Ok(())
    }

    /// Has writers wait no longer for a store that does not answer, since an unmount waits for them: the cache takes what they write.
    pub(crate) fn announce_end(&self) {
        self.device.announce_end(Some(ANNOUNCED), WRITERS_WAIT);
    }

    /// Bounds the waits of writers and reads for a store that does not answer, once the mount is gone.
    pub(crate) fn begin_to_end(&self) {
        self.device.announce_end(None, WRITERS_WAIT_AT_THE_END);
        self.device.end_ahead();
        // A write to a region that the cache has in part reads the rest first, and waits as long as that.
        self.store.bound_reads(READS_WAIT_AT_THE_END);
    }

    /// Uploads everything, and lets other machines use the volume, which was closed before.
    pub(crate) fn end(&self) -> Result<(), ExitError> {
        *self.has_ended.lock() = true;
        self.begin_to_end();
        self.store.set_patience(ENDING);
        self.device.end_worker();
        if let Some((uploading, stop)) = self.threads.lock().take() {
            uploading.join().expect("a panic ends the process");
            // Deletions that are under way are not waited for.
            drop(stop);
        }
        self.device.close(now_secs()).map_err(|failure| {
            let is_released = self.device.is_released();
            let (name, cache) = (&self.name, &self.cache);
            let reason = reason((&self.objects, &self.store), failure);
            let failure = match is_released {
                true => ExitError::mount(format_args!(
                    "{name}: everything was uploaded, but the cache {cache} fails: {reason}; use another one"
                )),
                false => ExitError::mount(format_args!(
                    "{name}: not everything was uploaded: {reason}; the cache {cache} has the rest: keep it, and mount the volume with it again"
                )),
            };
            tracing::error!("{failure}");
            failure
        })
    }
}

impl Drop for ObjectVolume {
    /// Ends the use of a volume whose mount has failed, so that others find it free.
    fn drop(&mut self) {
        if !*self.has_ended.lock() {
            // The reason of the failure is told already.
            let _ = self.end();
        }
    }
}
