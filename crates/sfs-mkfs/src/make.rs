//! Making a volume: check, refuse, wipe, write.
//!
//! The first write comes after the last check, and the new superblocks are written last. An image file that a
//! failed run has created is removed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use sfs_core::format::{DataLayout, Features, Layout};
use sfs_device::{
    Access, BLOCK_SIZE, Device, DeviceError, FileDevice, Geometry, OpenError, OpenErrorKind,
};
use uuid::Uuid;

use crate::in_use::{refuse_among_devices, refuse_in_use};
use crate::measure::Measurement;
use crate::plan::VolumePlan;
use crate::signatures::{Ends, detect};
use crate::{
    Filled, Human, MadeCache, MkfsError, MkfsOptions, Verdict, cache, detect, fill, fit, identity,
    object, probe, wipe,
};

/// A volume that was made, or that would be made without `--dry-run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Path of the device.
    pub device: String,
    /// UUID of the volume.
    pub uuid: String,
    /// UUID of the cache in the superblock.
    #[serde(skip)]
    cache_uuid: String,
    /// Label of the volume.
    pub label: String,
    /// Size of a segment, in bytes.
    pub segment_size: u64,
    /// Number of segments.
    pub segment_count: u32,
    /// Name of the data layout.
    #[serde(rename = "layout")]
    pub data_layout: &'static str,
    /// Bytes in all segments.
    pub capacity: u64,
    /// `true` if nothing was written.
    pub dry_run: bool,
    /// Cache of the volume, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<MadeCache>,
    /// Number of files that the volume was filled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Extended attributes that the volume does not accept, each with the path of its file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Measurement of the erase block size, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measurement>,
    /// Result of the probe, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probed: Option<Verdict>,
}

impl Made {
    fn new(path: &Path, plan: &VolumePlan, dry_run: bool) -> Self {
        let segment_count = plan.superblock.layout.segment_count;
        Self {
            device: path.display().to_string(),
            uuid: Uuid::from_bytes(plan.superblock.uuid).to_string(),
            cache_uuid: Uuid::from_bytes(plan.superblock.cache_uuid).to_string(),
            label: plan.superblock.label.as_str().to_owned(),
            segment_size: plan.segment_size(),
            segment_count,
            data_layout: plan.superblock.data_layout.name(),
            capacity: plan.segment_size() * u64::from(segment_count),
            dry_run,
            cache: None,
            files: None,
            left_out: Vec::new(),
            measured: None,
            probed: None,
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(verdict) = &self.probed {
            writeln!(f, "Probed {}: {verdict}", self.device)?;
        }
        if let Some(measured) = &self.measured {
            writeln!(f, "Measured {}", self.device)?;
            let used = Human(self.segment_size);
            match measured.segment_size {
                Some(size) if size == self.segment_size => writeln!(f, "{measured}")?,
                _ => writeln!(f, "{measured}; using {used}")?,
            }
        }
        let verb = if self.dry_run { "Would make" } else { "Made" };
        writeln!(f, "{verb} an SFS volume on {}", self.device)?;
        writeln!(f, "  uuid      {}", self.uuid)?;
        if !self.label.is_empty() {
            writeln!(f, "  label     {}", self.label)?;
        }
        writeln!(f, "  segments  {} of {}", self.segment_count, Human(self.segment_size))?;
        if self.data_layout != DataLayout::Log.name() {
            writeln!(f, "  layout    {}", self.data_layout)?;
        }
        write!(f, "  capacity  {}", Human(self.capacity))?;
        if let Some(cache) = &self.cache {
            let (size, memory) = (Human(cache.capacity), Human(cache.index_memory));
            write!(f, "\n  cache     {size} on {}, with up to {memory} of memory", cache.device)?;
            if cache.cached_max < cache.capacity {
                let most = Human(cache.cached_max);
                write!(f, " for {most}: larger extents cache more")?;
            }
        }
        if let Some(files) = self.files {
            write!(f, "\n  files     {files}")?;
        }
        self.left_out.iter().try_for_each(|name| write!(f, "\n  left out  {name}"))
    }
}

/// Makes the volume that `options` describe.
pub fn make(options: &MkfsOptions) -> Result<Made, MkfsError> {
    make_with(options, &mut |_, _| {})
}

/// Makes a volume as [`make`] does, and reports the progress of a probe, and of the search for
/// blocks of an earlier volume: number of bytes done, and of all bytes.
pub fn make_with(
    options: &MkfsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Made, MkfsError> {
    if sfs_object::is_store_url(options.device.as_os_str()) {
        return object::make(options);
    }
    if options.key_file.is_some() || options.new_key_file.is_some() {
        return Err(MkfsError::KeyOfDevice(options.device.clone()));
    }
    if options.seed.is_some() && options.data_layout != DataLayout::Log {
        return Err(MkfsError::SeedInPlace(options.device.clone()));
    }
    let cache = cache::open(options)?;
    let made = make_volume(options, progress)?;
    let Some(device) = cache else { return Ok(made) };
    let uuid = |text: &str| Uuid::parse_str(text).map(Uuid::into_bytes).unwrap_or_default();
    let uuids = (uuid(&made.uuid), uuid(&made.cache_uuid));
    let cache = device.make(uuids)?;
    Ok(Made { cache: Some(cache), ..made })
}

/// Makes the volume alone.
fn make_volume(
    options: &MkfsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Made, MkfsError> {
    let exists = fs::symlink_metadata(&options.device).is_ok();
    match (options.size, exists) {
        (_, true) if options.fit => Err(MkfsError::FitExists(options.device.clone())),
        (most, false) if options.fit => fit::make_fitted(options, most),
        (None, false) => Err(MkfsError::Missing(options.device.clone())),
        (Some(size), false) => make_image(options, size, progress),
        (_, true) => make_on_existing(options, progress),
    }
}

fn make_image(
    options: &MkfsOptions,
    size: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Made, MkfsError> {
    let path = &options.device;
    refuse_among_devices(path)?;
    let geometry = Geometry { block_count: size / BLOCK_SIZE as u64, ..Geometry::default() };
    let plan = plan(options, &geometry, options.segment_size.bytes())?;
    if options.dry_run {
        return Ok(Made::new(path, &plan, true));
    }
    let device = FileDevice::create(path, size).map_err(MkfsError::Open)?;
    let made = try_out(options, &device, progress)
        .and_then(|probed| Ok(Made { probed, ..write(options, device, &plan)?.0 }));
    if made.is_err() {
        // This run created the file. The first error is more useful than an error of the removal.
        let _ = fs::remove_file(path);
    }
    made
}

/// Makes a filled image file of `size` bytes. Also returns the size that would do.
pub(crate) fn make_image_of(options: &MkfsOptions, size: u64) -> Result<(Made, Filled), MkfsError> {
    let path = &options.device;
    refuse_among_devices(path)?;
    let geometry = Geometry { block_count: size / BLOCK_SIZE as u64, ..Geometry::default() };
    let plan = plan(options, &geometry, options.segment_size.bytes())?;
    let device = FileDevice::create(path, size).map_err(MkfsError::Open)?;
    let made = write(options, device, &plan);
    if made.is_err() {
        let _ = fs::remove_file(path);
    }
    made
}

fn make_on_existing(
    options: &MkfsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Made, MkfsError> {
    let path = &options.device;
    refuse_in_use(path)?;
    let access = if options.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let device = FileDevice::open(path, access).map_err(|error| explain(path, error))?;
    let bytes_error = |error| MkfsError::Bytes { device: path.clone(), error };
    let (ends, actual) = look(path).map_err(bytes_error)?;
    if let Some(wanted) = options.size.filter(|wanted| *wanted > actual) {
        return Err(MkfsError::SizeDiffers { device: path.clone(), actual, wanted });
    }
    let wanted_blocks = options.size.map(|size| size / BLOCK_SIZE as u64);
    let geometry = Geometry {
        block_count: wanted_blocks.unwrap_or(device.geometry().block_count),
        ..device.geometry().clone()
    };
    let found = detect(&ends);
    if !options.force && !found.is_empty() {
        return Err(MkfsError::Signatures { device: path.clone(), found });
    }
    let plan = plan(options, &geometry, options.segment_size.bytes())?;
    if options.dry_run {
        return Ok(Made::new(path, &plan, true));
    }
    let probed = try_out(options, &device, progress)?;
    wipe_tail(path, actual).map_err(bytes_error)?;
    let device_error = |error| MkfsError::Device { device: path.clone(), error };
    let measured = detect::measurement(options, &device, &plan).map_err(device_error)?;
    let plan = replanned(options, &geometry, plan, measured.as_ref());
    let made = overwrite(options, device, &plan, progress)?;
    Ok(Made { measured, probed, ..made })
}

/// Returns the plan with the measured segment size, or `default` if none was found or no volume
/// fits.
fn replanned(
    options: &MkfsOptions,
    geometry: &Geometry,
    default: VolumePlan,
    measured: Option<&Measurement>,
) -> VolumePlan {
    let found = measured.and_then(|measured| measured.segment_size);
    found.and_then(|size| plan(options, geometry, Some(size)).ok()).unwrap_or(default)
}

/// Probes the device, if the options ask for it, and returns the verdict.
fn try_out(
    options: &MkfsOptions,
    device: &FileDevice,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<Verdict>, MkfsError> {
    if !options.probe {
        return Ok(None);
    }
    let path = || options.device.clone();
    let verdict = probe(device, Uuid::new_v4().as_u64_pair().0, progress)
        .map_err(|error| MkfsError::Device { device: path(), error })?;
    match verdict.fault {
        Some(_) => Err(MkfsError::Faulty { device: path(), verdict }),
        None => Ok(Some(verdict)),
    }
}

fn explain(path: &Path, error: OpenError) -> MkfsError {
    match error.kind {
        // A dangling symbolic link, or a file that was removed since the check.
        OpenErrorKind::Missing => MkfsError::Missing(path.to_owned()),
        _ => MkfsError::Open(error),
    }
}

/// Reads the ranges where signatures can be, up to the last odd byte, which a [`Device`] does not reach.
fn look(path: &Path) -> io::Result<(Ends, u64)> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    let ends = Ends::read(size, |offset, bytes| file.read_exact_at(bytes, offset))?;
    Ok((ends, size))
}

/// Zeroes the bytes after the last whole block, where a backup partition table can be.
fn wipe_tail(path: &Path, size: u64) -> io::Result<()> {
    let tail_len = size % BLOCK_SIZE as u64;
    if tail_len == 0 {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&vec![0; tail_len as usize], size - tail_len)?;
    file.sync_data()
}

/// Returns the plan of a volume on a device of this geometry, as the options ask for.
pub(crate) fn plan_of(options: &MkfsOptions, geometry: &Geometry) -> Result<VolumePlan, MkfsError> {
    let mut without_cache = options.clone();
    without_cache.cache = None;
    plan(&without_cache, geometry, options.segment_size.bytes())
}

/// Returns the report of a volume that was made by `plan`.
pub(crate) fn written(options: &MkfsOptions, plan: &VolumePlan) -> Made {
    Made::new(&options.device, plan, false)
}

fn plan(
    options: &MkfsOptions,
    geometry: &Geometry,
    segment_size: Option<u64>,
) -> Result<VolumePlan, MkfsError> {
    let identity = identity::of(options)?;
    let mut plan = VolumePlan::new(geometry, segment_size, &identity)
        .map_err(|error| MkfsError::Layout { device: options.device.clone(), error })?;
    if options.seed.is_some() {
        plan.superblock.features.compatible |= Features::HASH_KEY_FROM_SEED;
    }
    if options.cache.is_some() {
        plan.superblock.set_cache(Some(Uuid::new_v4().into_bytes()));
    }
    Ok(plan)
}

/// Writes the volume to a new image.
fn write(
    options: &MkfsOptions,
    device: FileDevice,
    plan: &VolumePlan,
) -> Result<(Made, Filled), MkfsError> {
    let cleared = clear(&device, &plan.superblock.layout, !options.keep_blocks);
    cleared.map_err(|error| failed(options, error.into()))?;
    finish(options, device, plan)
}

/// Writes the volume to a device that may have held one with the same UUID, if the options decide about the UUID.
fn overwrite(
    options: &MkfsOptions,
    device: FileDevice,
    plan: &VolumePlan,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Made, MkfsError> {
    let superblock = &plan.superblock;
    let cleared = clear(&device, &superblock.layout, !options.keep_blocks).and_then(|()| {
        // With data in place, a random key makes the volume number new, so no old block has this
        // number.
        let is_chosen = options.uuid.is_some() || options.seed.is_some();
        match is_chosen && superblock.data_layout == DataLayout::Log {
            true => wipe::erase_volume(&device, superblock.volume(), progress),
            false => Ok(()),
        }
    });
    cleared.map_err(|error| failed(options, error.into()))?;
    Ok(finish(options, device, plan)?.0)
}

/// Writes the volume to a device that was cleared, and fills it if the options ask for that.
fn finish(
    options: &MkfsOptions,
    device: FileDevice,
    plan: &VolumePlan,
) -> Result<(Made, Filled), MkfsError> {
    let (device, made) = (Arc::new(device), Made::new(&options.device, plan, false));
    let Some(source) = &options.from else {
        let written = sfs_core::make(device, &plan.superblock, &plan.root);
        return match written {
            Ok(()) => Ok((made, Filled::default())),
            Err(error) => Err(failed(options, error)),
        };
    };
    let times = identity::fill_times(plan)?;
    let filled = fill::make_filled(device, plan, source, &options.device, times)
        .map_err(|error| MkfsError::Fill { device: options.device.clone(), error })?;
    let left_out = filled.left_out.clone();
    Ok((Made { files: Some(filled.files), left_out, ..made }, filled))
}

fn failed(options: &MkfsOptions, error: sfs_core::Error) -> MkfsError {
    let device = options.device.clone();
    match error {
        sfs_core::Error::Device(error) => MkfsError::Device { device, error },
        error => MkfsError::Volume { device, error },
    }
}

/// Makes the volume `plan` on `device`, regardless of the content of the device. Discards all
/// blocks first if `discard` is set.
pub fn make_on(device: Arc<dyn Device>, plan: &VolumePlan, discard: bool) -> sfs_core::Result<()> {
    clear(&*device, &plan.superblock.layout, discard)?;
    sfs_core::make(device, &plan.superblock, &plan.root)
}

/// Wipes old signatures, superblocks and checkpoint slots, and discards all blocks if `discard` is set.
fn clear(device: &dyn Device, layout: &Layout, discard: bool) -> Result<(), DeviceError> {
    wipe::wipe(device, layout)?;
    // A discard only helps the device. A device that fails at it may still store blocks.
    if discard && wipe::discard(device, layout).is_err() {
        wipe::wipe(device, layout)?;
    }
    Ok(())
}
