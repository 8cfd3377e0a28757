//! Removal of recorded errors from a volume that a check found sound.
//!
//! Errors that the check could not disprove stay recorded: errors of data, if the check did not
//! read data. A crash leaves the last checkpoint as it was, or the same checkpoint without the
//! errors.

use sfs_core::format::{CheckpointRecord, Remembered};
use sfs_device::Device;

use crate::error::FsckError;
use crate::findings::Findings;
use crate::read::checkpoint;
use crate::read::volume::VolumeReader;
use crate::repair::checkpoint_slots::write_record;
use crate::repair::superblocks::change_superblock;

/// Removes the recorded errors that a check without errors has disproved; `data` is `true` if the
/// check read all data. Returns the errors that stay.
pub(crate) fn forget_errors(device: &dyn Device, data: bool) -> Result<Remembered, FsckError> {
    let volume = VolumeReader::open(device, &mut Findings::default())?;
    let Some(record) = checkpoint::newest(&volume, &mut Findings::default()) else {
        return Ok(Remembered::default());
    };
    let superblock = &volume.superblock;
    let remembered = Remembered::of(superblock, &record);
    let left = remembered.after_check(data);
    let is_refused = superblock.write_incompatibility().is_some()
        || record.extensions.incompatibility(true).is_some();
    if is_refused || left == remembered {
        return Ok(remembered);
    }
    let mut record = CheckpointRecord { number: record.number + 1, ..record };
    if !record.has_sound_counts() {
        return Ok(remembered);
    }
    record.extensions = record.extensions.repeated();
    left.errors.put_into(&mut record.extensions);
    write_record(&volume, &record)?;
    if remembered.failure.is_some() {
        change_superblock(&volume, |superblock| superblock.failure = None)?;
    }
    Ok(left)
}
