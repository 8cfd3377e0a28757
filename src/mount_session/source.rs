//! The source of a mount: a device, a volume in an object store, or a mount that another program hands over.

use std::path::Path;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_device::{Device, FileDevice};
use sfs_system::memory_limit::MemoryLimit;

use super::read_rings::{make_rings, measure_with_rings};
use super::request::MountRequest;
use super::taken_mount;
use crate::device_speed::DeviceSpeed;
use crate::exit_error::ExitError;
use crate::handover::taking::Taken;
use crate::memory_budget;
use crate::monitor::Monitor;
use crate::mount::{OpenedDevice, open_device, open_volume};
use crate::mount_options::MountOptions;
use crate::object_volume::reader::{self, ObjectReader};
use crate::object_volume::{self, ObjectVolume};
use crate::ready_pipe::ReadyPipe;
use crate::timed_device::TimedDevice;
use crate::volume_cache::{self, VolumeCache};

/// Medium that has the blocks of a volume.
pub(super) enum Medium {
    /// A device, or an image file: that of this mount, or of the one that another program hands over.
    Device,
    /// An object store, through a local cache: the device that is open.
    Objects(Arc<ObjectVolume>),
    /// An object store, beside the writer. The device that is open stands in for one.
    Reader(Arc<ObjectReader>),
}

/// The device of a mount, open and locked.
pub(super) struct Source {
    pub(super) medium: Medium,
    /// The device that is open.
    pub(super) device: Arc<FileDevice>,
    /// The same, with the times of its requests.
    pub(super) timed: Arc<TimedDevice>,
}

/// A volume that is open.
pub(super) struct SourceVolume {
    pub(super) volume: Arc<Volume>,
    /// Its SSD cache.
    pub(super) cache: Option<Arc<VolumeCache>>,
    /// Reason why its SSD cache is not used, for the user.
    pub(super) no_cache: Option<String>,
}

impl Medium {
    /// Opens what `request` names, unless another program hands it over. Returns the device with its times, if they are taken already.
    pub(super) fn open(
        request: &MountRequest,
        path: &Path,
        pipe: &mut ReadyPipe,
        monitor: &Arc<Monitor>,
        taken: Option<&mut Taken>,
    ) -> Result<(Self, OpenedDevice, Option<Arc<TimedDevice>>), ExitError> {
        let options = &request.options;
        if let Some(taken) = taken {
            return Ok((Self::Device, taken_mount::device(taken, path, options)?, None));
        }
        if !request.is_in_store() {
            refuse_options_for_stores(path, options)?;
            return Ok((Self::Device, open_device(path, options, pipe)?, None));
        }
        if options.volume.read_only {
            let (opened, reader) = reader::open(path, options, monitor, pipe)?;
            return Ok((Self::Reader(reader), opened, None));
        }
        let mut timed = None;
        let local = |device: &Arc<FileDevice>| {
            let new = Arc::new(TimedDevice::new(device.clone()));
            timed = Some(new.clone());
            new as Arc<dyn Device>
        };
        let opened = object_volume::open(path, options, monitor, pipe, local)?;
        Ok((Self::Objects(opened.volume), opened.cache, timed))
    }

    /// Returns whether the volume is in an object store.
    pub(super) fn is_store(&self) -> bool {
        matches!(self, Self::Objects(_) | Self::Reader(_))
    }

    pub(super) fn objects(&self) -> Option<&Arc<ObjectVolume>> {
        match self {
            Self::Objects(objects) => Some(objects),
            _ => None,
        }
    }

    pub(super) fn reader(&self) -> Option<&Arc<ObjectReader>> {
        match self {
            Self::Reader(reader) => Some(reader),
            _ => None,
        }
    }
}

impl Source {
    /// Opens the volume.
    pub(super) fn volume(
        &self,
        path: &Path,
        options: &MountOptions,
        pipe: &mut ReadyPipe,
        (taken, limit): (Option<&Taken>, MemoryLimit),
    ) -> Result<SourceVolume, ExitError> {
        let (device, timed) = (self.device.clone(), self.timed.clone());
        let (mut cache, mut no_cache) = (None, None);
        let volume = match (&self.medium, taken) {
            // A volume with a cache is not handed over.
            (_, Some(taken)) => taken_mount::volume((device, timed), path, options, taken)?,
            (Medium::Objects(objects), _) => {
                open_volume((device, objects.device()), path, options, pipe)?
            }
            (Medium::Reader(reader), _) => {
                open_volume((device, reader.device()), path, options, pipe)?
            }
            (Medium::Device, None) => {
                let index_bytes = memory_budget::cache_index_bytes(limit);
                let opened = volume_cache::open(&device, options, index_bytes);
                (cache, no_cache) = (opened.cache, opened.warning);
                let used = match &cache {
                    Some(cache) => cache.before(timed),
                    None => timed,
                };
                open_volume((device, used), path, options, pipe)?
            }
        };
        Ok(SourceVolume { volume, cache, no_cache })
    }

    /// Makes the rings for reading, and returns the speed of reading, if it can be told.
    pub(super) fn read_speed(
        &self,
        volume: &Volume,
        cache: Option<&VolumeCache>,
        taken: Option<&Taken>,
    ) -> Option<DeviceSpeed> {
        match (&self.medium, taken) {
            (_, Some(taken)) => make_rings(&self.device, taken.read_speed()),
            (Medium::Reader(_), _) => None,
            // How fast the local cache is says little.
            (Medium::Objects(_), _) => make_rings(&self.device, None),
            (Medium::Device, None) => measure_with_rings(&self.device, cache, volume),
        }
    }
}

/// Refuses options that only a volume in an object store has.
fn refuse_options_for_stores(path: &Path, options: &MountOptions) -> Result<(), ExitError> {
    let path = path.display();
    if options.objects.follow.is_some() {
        return Err(ExitError::usage(format_args!(
            "{path}: follow= is for a volume in an object store; a device has one mount at a time"
        )));
    }
    if options.objects.local_state {
        return Err(ExitError::usage(format_args!(
            "{path}: local_state is for a volume in an object store; a device has no local cache"
        )));
    }
    if options.objects.key_file.is_some() {
        return Err(ExitError::usage(format_args!(
            "{path}: key_file= is for a volume in an object store; dm-crypt encrypts a device"
        )));
    }
    Ok(())
}
