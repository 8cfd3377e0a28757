//! Writes to the copies of the superblock.
//!
//! The worse copy is written first, so that one copy is whole at every moment.

use sfs_core::format::{
    Corruption, CorruptionKind, FORMAT_VERSION, LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, Structure,
    Superblock,
};
use sfs_device::{Block, Stream};

use crate::error::FsckError;
use crate::finding::SuperblockCopy;
use crate::read::superblock::read_block;
use crate::read::volume::VolumeReader;

/// Writes both copies of the superblock of `volume`, durably, in the format of this program, and with `features` among
/// those that a program has to know to write.
pub(crate) fn write_superblocks(volume: &VolumeReader<'_>, features: u64) -> Result<(), FsckError> {
    let Superblock { version, features: declared, .. } = volume.superblock;
    match version {
        FORMAT_VERSION if declared.read_only_compatible & features == features => {
            write_copies(volume, &volume.superblock)
        }
        _ => change_superblock(volume, |next| next.features.read_only_compatible |= features),
    }
}

/// Applies `change` to the superblock of `volume`, and writes both copies durably with the next generation.
pub(crate) fn change_superblock(
    volume: &VolumeReader<'_>,
    change: impl FnOnce(&mut Superblock),
) -> Result<(), FsckError> {
    let no_generation_left =
        Corruption::in_block(Structure::Superblock, SUPERBLOCK_ADDRESS, CorruptionKind::Value);
    let next = volume.superblock.next_generation();
    let mut next = next.ok_or(FsckError::Write(no_generation_left.into()))?;
    change(&mut next);
    write_copies(volume, &next)
}

/// Writes both copies of the superblock, the worse one first, and before them the locator if it is wrong.
fn write_copies(volume: &VolumeReader<'_>, superblock: &Superblock) -> Result<(), FsckError> {
    let block = [Block(superblock.encode())];
    let backup = superblock.layout.backup;
    let (first, second) = match volume.worse {
        SuperblockCopy::First => (SUPERBLOCK_ADDRESS, backup),
        SuperblockCopy::Backup => (backup, SUPERBLOCK_ADDRESS),
    };
    let locator = (!is_locator_sound(volume)?).then_some(LOCATOR_ADDRESS);
    for at in locator.into_iter().chain([first, second]) {
        volume.device.write(at, &[&block], Stream::default())?;
        volume.device.flush()?;
    }
    Ok(())
}

/// Returns whether the locator is of `volume`, and has the address of its backup.
fn is_locator_sound(volume: &VolumeReader<'_>) -> Result<bool, FsckError> {
    let block = read_block(volume.device, LOCATOR_ADDRESS)?;
    let locator = Superblock::decode(&block.0, LOCATOR_ADDRESS);
    let superblock = &volume.superblock;
    let is_of_volume = |locator: Superblock| {
        locator.uuid == superblock.uuid && locator.layout.backup == superblock.layout.backup
    };
    Ok(locator.is_ok_and(is_of_volume))
}
