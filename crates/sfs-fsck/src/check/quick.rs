//! Check in constant time that a volume was unmounted and needs no full check.

use sfs_core::format::{CheckpointRecord, Key, ROOT_INO, Remembered};
use sfs_device::Device;

use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::checkpoint;
use crate::read::overlay_tree::OverlayTree;
use crate::read::volume::VolumeReader;

/// Returns whether the volume on `device` was unmounted, records no errors, and passes a check of
/// superblocks, checkpoints, and the nodes from the root to the root directory. A mount fails if
/// one of these nodes is not readable, and has no place to record the reason.
///
/// # Errors
///
/// Errors of [`crate::check()`].
pub fn is_unmounted(device: &dyn Device) -> Result<bool, FsckError> {
    let mut findings = Findings::default();
    let volume = VolumeReader::open(device, &mut findings)?;
    let record = checkpoint::newest(&volume, &mut findings);
    let is_sound = findings.errors() == 0 && !findings.kept().iter().any(Finding::is_of_superblock);
    let is_complete = |record: CheckpointRecord| {
        record.unmounted
            && Remembered::of(&volume.superblock, &record).is_empty()
            && OverlayTree::new(&volume, Some((record.root(), record.root_level)))
                .get(&Key::inode(ROOT_INO))
                .is_some()
    };
    Ok(is_sound && record.is_some_and(is_complete))
}
