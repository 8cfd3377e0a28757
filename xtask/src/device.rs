//! Devices below a volume: an image file, by itself or as a loop device, or an object store.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    cleanup::{Guard, Undo},
    machine,
    object_store::{ObjectVolume, StoreKind},
    run::Cmd,
};

/// A device, removed when dropped.
#[derive(Debug)]
pub(crate) struct TestDevice {
    /// Path that a filesystem is made on and mounted from.
    pub(crate) path: PathBuf,
    is_block_device: bool,
    _guards: Vec<Guard>,
    /// The volume in an object store whose URL `path` is.
    pub(crate) volume: Option<ObjectVolume>,
}

/// Number of tries of `losetup --find`, since another process may take the found device first.
const LOOP_TRIES: u32 = 5;

impl TestDevice {
    /// Makes a sparse image file of `len` bytes.
    pub(crate) fn image(path: &Path, len: u64) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
        file.set_len(len)?;
        let guards = vec![Undo::Remove(path.to_owned()).later()];
        Ok(Self { path: path.to_owned(), is_block_device: false, _guards: guards, volume: None })
    }

    /// Starts a server below `dir`, for a volume of `len` bytes.
    pub(crate) fn in_store(kind: StoreKind, tools: &Path, dir: &Path, len: u64) -> Result<Self> {
        let volume = ObjectVolume::start(kind, tools, dir, len)?;
        let path = volume.url().into();
        Ok(Self { path, is_block_device: false, _guards: Vec::new(), volume: Some(volume) })
    }

    /// Makes a device as [`TestDevice::best`] does, and writes all of the image once. So the growth of
    /// a file in RAM or on a disk is not measured.
    pub(crate) fn allocated(image: &Path, len: u64) -> Result<Self> {
        let device = Self::best(image, len)?;
        let file = File::options().write(true).open(image)?;
        let zeros = vec![0; 1 << 20];
        for offset in (0..len).step_by(zeros.len()) {
            file.write_all_at(&zeros, offset)?;
        }
        Ok(device)
    }

    /// Makes a loop device over a sparse image file of `len` bytes.
    pub(crate) fn over_loop(image: &Path, len: u64) -> Result<Self> {
        machine::need_loop()?;
        let mut device = Self::image(image, len)?;
        device.path = attach(image)?;
        device.is_block_device = true;
        // Before the image's own guard: the device is detached first.
        device._guards.insert(0, Undo::Detach(device.path.clone()).later());
        Ok(device)
    }

    /// Returns a device that another process makes and removes.
    pub(crate) fn of_others(path: &Path) -> Self {
        let is_block_device = path.starts_with("/dev");
        Self { path: path.to_owned(), is_block_device, _guards: Vec::new(), volume: None }
    }

    /// Makes a loop device for root, and an image file for other users.
    pub(crate) fn best(image: &Path, len: u64) -> Result<Self> {
        if machine::is_root() { Self::over_loop(image, len) } else { Self::image(image, len) }
    }

    /// Says how often the server of the object store and the program that reaches it were killed.
    pub(crate) fn disturbances(&self) -> String {
        self.volume.as_ref().map(ObjectVolume::disturbances).unwrap_or_default()
    }

    /// Returns the kernel's name of the block device, as `loop3`; `None` for an image file.
    pub(crate) fn block_device_name(&self) -> Option<&str> {
        self.is_block_device.then(|| self.path.file_name()?.to_str()).flatten()
    }
}

fn attach(image: &Path) -> Result<PathBuf> {
    let mut tried = Ok(String::new());
    for _ in 0..LOOP_TRIES {
        tried = Cmd::new("losetup").args(["--find", "--show"]).arg(image).read();
        if tried.is_ok() {
            break;
        }
    }
    let device = tried?;
    if device.is_empty() {
        bail!("losetup gave no device for {}", image.display());
    }
    Ok(device.into())
}
