//! Filling a new volume with the tree of a directory or of a tar archive.
//!
//! The volume is mounted in this process, without the kernel, and written to like any mounted volume. Its superblocks
//! reach the device last ([`unfinished`]), so a run that fails or is interrupted leaves no volume. The order of
//! entries, the times and the random numbers are arguments or come from the source: the same arguments and the same
//! source give the same bytes.

mod archive;
mod directory;
mod error;
mod tree_writer;
mod unfinished;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::Timestamp;
use sfs_core::request::VolumeOptions;
use sfs_device::Device;

use crate::VolumePlan;
pub use error::{FillError, FillReason};
use tree_writer::TreeWriter;
use unfinished::UnfinishedDevice;

/// Content that a new volume was filled with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Number of files of all kinds, the root directory not included.
    pub files: u64,
    /// Extended attributes that the volume does not accept, each with the path of its file.
    pub left_out: Vec<String>,
    /// Size in bytes of the smallest volume that probably holds this content.
    pub least_bytes: u64,
}

/// Times of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FillTimes {
    /// Time of creation, for the volume and every file.
    pub(crate) now: Timestamp,
    /// Latest time of change that a file may have; later ones become this time.
    pub(crate) latest: Option<Timestamp>,
}

/// Makes the volume `plan` on `device`, which has been wiped, and fills it from `source`, a directory or a tar archive.
/// `target` is the path of the device.
pub(crate) fn make_filled(
    device: Arc<dyn Device>,
    plan: &VolumePlan,
    source: &Path,
    target: &Path,
    times: FillTimes,
) -> Result<Filled, FillError> {
    let unfinished = Arc::new(UnfinishedDevice::new(device, &plan.superblock.layout));
    sfs_core::make(unfinished.clone(), &plan.superblock, &plan.root)
        .map_err(|error| FillError::new(source, error))?;
    let options = VolumeOptions { discard: false, ..VolumeOptions::default() };
    let volume = Volume::open(unfinished.clone(), options, times.now)
        .map_err(|error| FillError::new(source, error))?;
    let mut writer = TreeWriter::new(volume, times);
    let file = File::open(source).map_err(|error| FillError::new(source, error))?;
    let metadata = file.metadata().map_err(|error| FillError::new(source, error))?;
    match metadata.is_dir() {
        true => {
            let own = std::fs::metadata(target).ok().map(|own| (own.dev(), own.ino()));
            directory::fill(&mut writer, source, file, own)?;
        }
        false => archive::fill(&mut writer, source, file)?,
    }
    let filled = writer.finish().map_err(|error| FillError::new(source, error))?;
    unfinished.finish().map_err(|error| FillError::new(source, error))?;
    Ok(filled)
}
