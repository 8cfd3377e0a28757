//! Volumes in object stores: the newest state, for a check beside the writer, and the use of a volume, for a repair.
//!
//! `sfs-store`, a program beside this one, has the network. A check claims nothing and writes nothing to the store.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sfs_device::{Access, BLOCK_SIZE, Device, FileDevice};
use sfs_mkfs::refuse_in_use;
use sfs_object::{
    Durability, EncryptedStore, EncryptionError, Failure, FileKey, Limits, Nonce, ObjectDevice,
    ObjectError, OpenError, OpenRequest, PageCache, Patience, Snapshot, SocketStore, StoreProgram,
    read_state, system_random,
};
use thiserror::Error;

/// Bytes of objects that a check keeps in memory.
const PAGE_CACHE_BYTES: usize = 64 << 20;

/// Number of states that are checked, one after the other, before the check gives up.
const STATES_MAX: u32 = 4;

/// Why a volume in an object store cannot be checked or repaired.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    /// The arguments do not suit such a volume.
    #[error("{0}")]
    Usage(&'static str),
    /// A line for the user.
    #[error("{0}")]
    Failed(String),
}

type Store = Arc<SocketStore>;

/// The objects of a volume, decrypted.
type Objects = Arc<EncryptedStore<Store>>;

/// Starts the program that reaches the store at `url`. Objects are decrypted by the key in the file, if the volume has one.
fn connect(url: &Path, key_file: Option<&Path>) -> Result<(Store, Objects), StoreError> {
    let failed = |error: &dyn std::fmt::Display| StoreError::Failed(error.to_string());
    let key = key_file.map(FileKey::read).transpose().map_err(|error| failed(&error))?;
    let program = StoreProgram::beside_this(url.as_os_str()).map_err(|error| failed(&error))?;
    let store = SocketStore::new(Box::new(move || program.connect()), Patience::IMPATIENT);
    let store = Arc::new(store);
    let objects = EncryptedStore::open(store.clone(), key.as_ref(), Box::new(system_random));
    let objects = objects.map_err(|error| match error {
        EncryptionError::Stopped(stopped) => explain(&store, &OpenError::Failure(stopped.into())),
        EncryptionError::KeyMissing => {
            StoreError::Failed("the volume is encrypted: give --key-file FILE".into())
        }
        EncryptionError::NotEncrypted => StoreError::Failed(
            "the volume is not encrypted, but a key was given: leave --key-file out".into(),
        ),
        error => failed(&error),
    })?;
    Ok((store, Arc::new(objects)))
}

fn explain(store: &Store, error: &OpenError) -> StoreError {
    StoreError::Failed(store.explain(error))
}

/// The newest state of a volume.
pub(crate) struct NewestState {
    store: Store,
    snapshot: Snapshot<Objects>,
    /// Number of states that were opened.
    states: u32,
}

impl NewestState {
    /// Opens the newest state of the volume in the store at `url`.
    pub(crate) fn open(url: &Path, key_file: Option<&Path>) -> Result<Self, StoreError> {
        let (store, objects) = connect(url, key_file)?;
        let cache = Arc::new(PageCache::new(PAGE_CACHE_BYTES));
        let snapshot = Snapshot::open(objects, cache).map_err(|error| explain(&store, &error))?;
        Ok(Self { store, snapshot, states: 1 })
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &self.snapshot
    }

    /// Returns the machine that has the volume, if it is not released.
    pub(crate) fn user(&self) -> Option<&str> {
        let state = self.snapshot.state();
        (!state.is_released).then_some(&state.host)
    }

    /// Returns a newer state if objects of this one were deleted during its check, which is worth nothing then.
    ///
    /// # Errors
    ///
    /// The store has failed during the check, or states become old too quickly.
    pub(crate) fn after_check(&self) -> Result<Option<Self>, StoreError> {
        if self.snapshot.was_given_up() {
            return Err(explain(&self.store, &ObjectError::from(sfs_object::Stopped).into()));
        }
        if !self.snapshot.is_old() {
            return Ok(None);
        }
        let newer = self.snapshot.newer().map_err(|error| explain(&self.store, &error))?;
        match newer.filter(|_| self.states < STATES_MAX) {
            Some(snapshot) => {
                Ok(Some(Self { store: self.store.clone(), snapshot, states: self.states + 1 }))
            }
            None => Err(StoreError::Failed(
                "the volume changes faster than it is read: unmount it, and check it then".into(),
            )),
        }
    }
}

/// A volume that this program uses, as a mount does.
pub(crate) struct StoreInUse {
    store: Store,
    device: Arc<ObjectDevice<Objects>>,
}

impl StoreInUse {
    /// Begins to use the volume in the store at `url`, with the local cache at `path`, which is made if it is missing. Another machine
    /// must have released the volume.
    pub(crate) fn open(
        url: &Path,
        path: &Path,
        key_file: Option<&Path>,
    ) -> Result<Self, StoreError> {
        let (store, objects) = connect(url, key_file)?;
        let state = read_state(&objects).map_err(|error| explain(&store, &error))?;
        store.probe().map_err(StoreError::Failed)?;
        let local = open_cache(path, state.shape.cache_blocks() * BLOCK_SIZE as u64)?;
        let request = OpenRequest {
            nonce: Nonce(uuid::Uuid::new_v4().into_bytes()),
            host: sfs_system::host_name(),
            now: now_secs(),
            takes_over: false,
            durability: Durability::Local,
            // Nothing is evicted: no thread uploads what would have to be evicted.
            limits: Limits::of_mount(local.geometry().block_count),
        };
        let device = ObjectDevice::open(objects, local, &request);
        let device = Arc::new(device.map_err(|error| explain(&store, &error))?);
        Ok(Self { store, device })
    }

    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Uploads everything, and releases the volume.
    pub(crate) fn close(self) -> Result<(), StoreError> {
        self.device.close(now_secs()).map_err(|failure: Failure| {
            let reason = explain(&self.store, &failure.into());
            StoreError::Failed(format!(
                "not everything was uploaded: {reason}; the local cache has the rest: keep it, and mount the volume with it, or repeat"
            ))
        })
    }
}

fn open_cache(path: &Path, len: u64) -> Result<Arc<dyn Device>, StoreError> {
    let failed = |error: &dyn std::fmt::Display| StoreError::Failed(error.to_string());
    let opened = match path.exists() {
        true => {
            refuse_in_use(path).map_err(|error| failed(&error))?;
            FileDevice::open(path, Access::ReadWrite)
        }
        false => FileDevice::create_private(path, len),
    };
    Ok(Arc::new(opened.map_err(|error| failed(&error))?))
}

fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
