//! Choice between the copies of the superblock.
//!
//! The copy with the higher generation counts. Where the first copy does not decode, the backup is searched
//! at the address in the locator and in the last block of the device. A copy of a newer format is an error,
//! and never damage.

use sfs_core::format::{Corruption, LOCATOR_ADDRESS, Layout, SUPERBLOCK_ADDRESS, Superblock};
use sfs_device::{BLOCK_SIZE, Block, Device};
use sfs_mkfs::signatures::{Ends, SFS, detect};

use crate::error::FsckError;
use crate::finding::{Finding, SuperblockCopy};
use crate::findings::Findings;

/// Returns the superblock of the volume on `device`, and the copy that is damaged or older: the first copy if
/// both are equal. The volume lies within the device.
///
/// # Errors
///
/// Errors of the device; `NotSfs`, `Incompatible`, `SuperblocksLost` or `Truncated` if there is no volume to
/// check.
pub(crate) fn find(
    device: &dyn Device,
    findings: &mut Findings,
) -> Result<(Superblock, SuperblockCopy), FsckError> {
    let block_count = device.geometry().block_count;
    if block_count <= LOCATOR_ADDRESS {
        return Err(FsckError::NotSfs { instead: None });
    }
    let first_bytes = read_block(device, SUPERBLOCK_ADDRESS)?;
    refuse_newer(&first_bytes)?;
    let (superblock, worse) = match Superblock::decode(&first_bytes.0, SUPERBLOCK_ADDRESS) {
        Ok(first) => {
            refuse_truncated(&first.layout, block_count)?;
            compare_backup(device, first, findings)?
        }
        Err(corruption) => {
            let backup = find_backup(device, &first_bytes, corruption, findings)?;
            (backup, SuperblockCopy::First)
        }
    };
    refuse_truncated(&superblock.layout, block_count)?;
    Ok((superblock, worse))
}

/// Reads block `address` of `device`.
pub(crate) fn read_block(device: &dyn Device, address: u64) -> Result<Block, FsckError> {
    let mut block = [Block([0; BLOCK_SIZE])];
    device.read(address, &mut block)?;
    let [block] = block;
    Ok(block)
}

fn refuse_truncated(layout: &Layout, device: u64) -> Result<(), FsckError> {
    if layout.block_count > device {
        return Err(FsckError::Truncated { device, volume: layout.block_count });
    }
    Ok(())
}

/// Refuses the superblock of a newer format. Such a volume cannot be checked, not even by its backup.
fn refuse_newer(block: &Block) -> Result<(), FsckError> {
    match Superblock::incompatibility_of(&block.0) {
        Some(reason) => Err(FsckError::Incompatible(reason)),
        None => Ok(()),
    }
}

/// Returns the newer of a sound `first` copy and the backup, and the copy that is worse.
fn compare_backup(
    device: &dyn Device,
    first: Superblock,
    findings: &mut Findings,
) -> Result<(Superblock, SuperblockCopy), FsckError> {
    let at = first.layout.backup;
    let block = read_block(device, at)?;
    refuse_newer(&block)?;
    let backup = match Superblock::decode(&block.0, at) {
        Ok(backup) if backup == first => return Ok((first, SuperblockCopy::First)),
        Ok(backup) => backup,
        Err(corruption) => {
            let copy = SuperblockCopy::Backup;
            findings.push(Finding::SuperblockDamaged { copy, corruption });
            return Ok((first, copy));
        }
    };
    let is_same_volume = backup.uuid == first.uuid;
    if is_same_volume && backup.generation > first.generation {
        findings.push(Finding::SuperblockOlder { copy: SuperblockCopy::First });
        return Ok((backup, SuperblockCopy::First));
    }
    findings.push(match is_same_volume && backup.generation < first.generation {
        true => Finding::SuperblockOlder { copy: SuperblockCopy::Backup },
        false => Finding::SuperblocksDiffer,
    });
    Ok((first, SuperblockCopy::Backup))
}

/// Returns the backup. The `first` copy does not decode, because of `corruption`.
fn find_backup(
    device: &dyn Device,
    first: &Block,
    corruption: Corruption,
    findings: &mut Findings,
) -> Result<Superblock, FsckError> {
    let last = device.geometry().block_count - 1;
    let mut is_recognized = Superblock::recognize(&first.0);
    for at in located_backup(device)?.into_iter().chain([last]) {
        let block = read_block(device, at)?;
        refuse_newer(&block)?;
        if let Ok(backup) = Superblock::decode(&block.0, at)
            && backup.layout.backup == at
        {
            let copy = SuperblockCopy::First;
            findings.push(Finding::SuperblockDamaged { copy, corruption });
            return Ok(backup);
        }
        is_recognized |= Superblock::recognize(&block.0);
    }
    if is_recognized {
        return Err(FsckError::SuperblocksLost);
    }
    match detect(&Ends::read_device(device)?).first().map(|found| found.name) {
        Some(SFS) => Err(FsckError::SuperblocksLost),
        instead => Err(FsckError::NotSfs { instead }),
    }
}

/// Returns the address of the backup by the locator, if a superblock of the same volume is there.
fn located_backup(device: &dyn Device) -> Result<Option<u64>, FsckError> {
    let block = read_block(device, LOCATOR_ADDRESS)?;
    refuse_newer(&block)?;
    let Ok(locator) = Superblock::decode(&block.0, LOCATOR_ADDRESS) else { return Ok(None) };
    let at = locator.layout.backup;
    if at >= device.geometry().block_count {
        return Ok(None);
    }
    let block = read_block(device, at)?;
    refuse_newer(&block)?;
    let backup = Superblock::decode(&block.0, at).ok();
    Ok(backup.filter(|backup| backup.uuid == locator.uuid).map(|_| at))
}
