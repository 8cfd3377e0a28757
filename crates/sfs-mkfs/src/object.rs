//! A volume in an object store: the store is tried, the local cache made, and the volume written through both.
//!
//! The first write comes after every check has passed. A run that is cut off later leaves objects that no volume uses; another run
//! says so, and asks for another prefix.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sfs_core::format::DataLayout;
use sfs_device::{Access, BLOCK_SIZE, Device, FileDevice, Geometry};
use sfs_object::{
    Durability, EncryptedStore, EncryptionError, Epoch, Failure, FileKey, Limits, Nonce,
    ObjectError, ObjectName, OpenError, OpenRequest, Patience, Shape, SocketStore, StoreProgram,
    system_random,
};
use uuid::Uuid;

use crate::in_use::refuse_in_use;
use crate::make::{plan_of, written};
use crate::plan::VolumePlan;
use crate::signatures::{Ends, detect};
use crate::{Made, MkfsError, MkfsOptions, make_on};

/// Also said of what a run has left that was cut off.
const EXISTS: &str = "there is a volume already, or the remains of one: give another prefix, or delete all objects below this one";

/// Makes the volume that `options` describe in the store that they name.
pub(crate) fn make(options: &MkfsOptions) -> Result<Made, MkfsError> {
    let url = &options.device;
    let failed = |reason: String| MkfsError::Store { store: shown(url), reason };
    let wrong = |what: &str| Err(failed(what.to_owned()));
    let (Some(cache), Some(size)) = (&options.cache, options.size) else {
        return wrong(
            "a volume in an object store needs a local cache and a size: \
             give --cache FILE --size SIZE",
        );
    };
    if options.from.is_some() || options.fit || options.seed.is_some() || options.probe {
        return wrong("--from, --fit, --seed and --probe are for devices and image files");
    }
    if options.data_layout != DataLayout::Log || !options.sections.is_empty() {
        return wrong("a volume in an object store has --layout log, and no --section");
    }
    let geometry = Geometry { block_count: size / BLOCK_SIZE as u64, ..Geometry::default() };
    let plan = plan_of(options, &geometry)?;
    let shape = Shape::new(geometry.block_count, plan.segment_size());
    let new_directory = make_directory(url).map_err(|error| failed(error.to_string()))?;
    let made = make_in_store(options, cache, (shape, &plan));
    if let (Err(_), Some(dir)) = (&made, new_directory) {
        // What the probe has left. Where there is anything else, the directory stays.
        let _ = fs::remove_dir(dir.join("probe"));
        let _ = fs::remove_dir(dir);
    }
    made
}

/// Makes the volume in a store that is there.
fn make_in_store(
    options: &MkfsOptions,
    cache: &Path,
    (shape, plan): (Shape, &VolumePlan),
) -> Result<Made, MkfsError> {
    let url = &options.device;
    let failed = |reason: String| MkfsError::Store { store: shown(url), reason };
    let program = StoreProgram::beside_this(url.as_os_str());
    let program = program.map_err(|error| failed(error.to_string()))?;
    let store =
        Arc::new(SocketStore::new(Box::new(move || program.connect()), Patience::IMPATIENT));
    let given = options.key_file.as_deref().map(FileKey::read).transpose()?;
    // An object of another volume, or of one without encryption, makes this fail.
    let found = EncryptedStore::open(store.clone(), given.as_ref(), Box::new(system_random));
    let objects = match found {
        Ok(objects) => objects,
        Err(EncryptionError::Stopped(stopped)) => {
            return Err(failed(store.explain(&OpenError::Failure(stopped.into()))));
        }
        Err(_) => return Err(failed(EXISTS.into())),
    };
    match sfs_object::read_state(&objects) {
        Err(OpenError::Failure(Failure::Object(ObjectError::NoVolume))) => {}
        Ok(_) | Err(OpenError::State) => return Err(failed(EXISTS.into())),
        Err(error) => return Err(failed(store.explain(&error))),
    }
    store.probe().map_err(failed)?;
    let is_new = !cache.exists();
    let local = open_cache(options, cache, shape)?;
    // Files that this run creates.
    let mut new_files = is_new.then_some(cache).into_iter().collect::<Vec<_>>();
    let made = with_new_key(options, &store, objects, &mut new_files)
        .and_then(|objects| make_through(options, (&store, objects), local, (shape, plan)));
    if made.is_err() {
        // The first error is more useful than an error of the removal.
        new_files.into_iter().for_each(|path| drop(fs::remove_file(path)));
    }
    made
}

/// The objects of the volume.
type Objects = Arc<EncryptedStore<Arc<SocketStore>>>;

/// Returns the store with a new key, if `--new-key-file` asks for one, or `objects`.
fn with_new_key<'a>(
    options: &'a MkfsOptions,
    store: &Arc<SocketStore>,
    objects: EncryptedStore<Arc<SocketStore>>,
    new_files: &mut Vec<&'a Path>,
) -> Result<Objects, MkfsError> {
    let Some(path) = &options.new_key_file else { return Ok(Arc::new(objects)) };
    let key = FileKey::create(path, &system_random)?;
    new_files.push(path);
    let objects = EncryptedStore::open(store.clone(), Some(&key), Box::new(system_random));
    let reason = |error: EncryptionError| match error {
        EncryptionError::Stopped(stopped) => store.explain(&OpenError::Failure(stopped.into())),
        _ => EXISTS.into(),
    };
    objects
        .map(Arc::new)
        .map_err(|error| MkfsError::Store { store: shown(&options.device), reason: reason(error) })
}

fn shown(url: &Path) -> PathBuf {
    sfs_object::shown_url(&url.to_string_lossy()).into()
}

/// Makes the directory of a `file:` URL, whose parent has to exist. Objects have the content of files, whoever may read those. Returns the
/// directory if there was none.
fn make_directory(url: &Path) -> std::io::Result<Option<PathBuf>> {
    let dir = url.to_str().and_then(|url| url.strip_prefix("file://")).map(PathBuf::from);
    let new = dir.filter(|dir| !dir.exists());
    if let Some(dir) = &new {
        DirBuilder::new().mode(0o700).create(dir)?;
    }
    Ok(new)
}

fn open_cache(
    options: &MkfsOptions,
    path: &Path,
    shape: Shape,
) -> Result<Arc<dyn Device>, MkfsError> {
    if !path.exists() {
        let len = shape.cache_blocks() * BLOCK_SIZE as u64;
        return Ok(Arc::new(FileDevice::create_private(path, len).map_err(MkfsError::Open)?));
    }
    refuse_in_use(path)?;
    let device = FileDevice::open(path, Access::ReadWrite).map_err(MkfsError::Open)?;
    let failed = |error| MkfsError::Device { device: path.to_owned(), error };
    let found = detect(&Ends::read_device(&device).map_err(failed)?);
    if !options.force && !found.is_empty() {
        return Err(MkfsError::Signatures { device: path.to_owned(), found });
    }
    Ok(Arc::new(device))
}

fn make_through(
    options: &MkfsOptions,
    (store, objects): (&Arc<SocketStore>, Objects),
    local: Arc<dyn Device>,
    (shape, plan): (Shape, &VolumePlan),
) -> Result<Made, MkfsError> {
    let failed = |reason: String| MkfsError::Store { store: shown(&options.device), reason };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let request = OpenRequest {
        nonce: Nonce(Uuid::new_v4().into_bytes()),
        host: sfs_system::host_name(),
        now,
        takes_over: false,
        durability: Durability::Local,
        limits: Limits::of_mount(local.geometry().block_count),
    };
    let opened = sfs_object::create(objects, local, (plan.superblock.uuid, shape), &request);
    let device = Arc::new(opened.map_err(|error| match error {
        OpenError::Exists => failed(EXISTS.into()),
        // Another run has made it meanwhile, with another key.
        OpenError::Failure(Failure::Object(ObjectError::Damaged(ObjectName::Claim(Epoch(1))))) => {
            failed(EXISTS.into())
        }
        error => failed(store.explain(&error)),
    })?);
    make_on(device.clone(), plan, false).map_err(|error| match store.trouble() {
        Some(trouble) => failed(trouble.reason),
        None => MkfsError::Volume { device: options.device.clone(), error },
    })?;
    let closed = device.close(now);
    closed.map_err(|error| failed(store.explain(&error.into())))?;
    Ok(written(options, plan))
}
