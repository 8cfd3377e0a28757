//! Where a volume begins: superblocks and checkpoints.
//!
//! Owns: the choice between copies, and the ways in which a device can be no volume.
//! Promises: the layout it gives lies within the device.
//! Never: reads a segment.

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, Corruption, HEADS_MAX, LOCATOR_ADDRESS, Layout,
    SUPERBLOCK_ADDRESS, Superblock,
};
use sfs_device::{BLOCK_SIZE, Block, Device};
use sfs_mkfs::signatures::{Ends, SFS, detect};

use crate::findings::Copy;
use crate::{Finding, Findings, FsckError};

/// A device with a volume on it.
pub(crate) struct Volume<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) superblock: Superblock,
    /// The copy of the superblock that is damaged or older; the first if both are the same.
    pub(crate) worse: Copy,
}

impl<'a> Volume<'a> {
    /// Finds the superblock, or says what there is instead.
    pub(crate) fn open(device: &'a dyn Device, findings: &mut Findings) -> Result<Self, FsckError> {
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
                (from_backup(device, &first_bytes, corruption, findings)?, Copy::First)
            }
        };
        refuse_truncated(&superblock.layout, block_count)?;
        Ok(Self { device, superblock, worse })
    }

    /// The volume's mark in every structure.
    pub(crate) fn id(&self) -> u64 {
        self.superblock.volume()
    }

    /// Where things are.
    pub(crate) fn layout(&self) -> &Layout {
        &self.superblock.layout
    }

    /// Whether block `address` is in a segment.
    pub(crate) fn in_segments(&self, address: u64) -> bool {
        self.layout().segment_of(address).is_some()
    }

    /// The block at `address`, which is on the device; a finding if the device does not give it.
    pub(crate) fn read(&self, address: u64, findings: &mut Findings) -> Option<Box<Block>> {
        let mut block = Box::new(Block([0; BLOCK_SIZE]));
        if self.device.read(address, std::slice::from_mut(&mut *block)).is_err() {
            findings.push(Finding::Unreadable { address });
            return None;
        }
        Some(block)
    }

    /// The newest checkpoint.
    pub(crate) fn checkpoint(&self, findings: &mut Findings) -> Option<CheckpointRecord> {
        let mut newest: Option<CheckpointRecord> = None;
        for (slot, at) in (0u8..).zip(self.layout().slots) {
            let mut blocks = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
            if self.device.read(at, &mut blocks).is_err() {
                findings.push(Finding::Unreadable { address: at });
                continue;
            }
            match CheckpointRecord::decode(Block::bytes_of(&blocks), self.id(), at) {
                Err(corruption) => findings.push(Finding::SlotInvalid { slot, corruption }),
                Ok(record) if record.number % 2 != u64::from(slot) => {
                    findings.push(Finding::CheckpointNumber { slot, number: record.number });
                }
                Ok(record) if !record.has_sound_counts() => {
                    findings.push(Finding::CheckpointCounts { slot });
                }
                Ok(record) => {
                    if newest.as_ref().is_none_or(|other| other.number < record.number) {
                        newest = Some(record);
                    }
                }
            }
        }
        let Some(record) = newest else {
            findings.push(Finding::CheckpointsLost);
            return None;
        };
        self.check_heads(&record, findings);
        Some(record)
    }

    /// Whether a slot holds no checkpoint: so it is after a crash while it was written, too.
    pub(crate) fn misses_checkpoint(findings: &Findings) -> bool {
        let invalid = |finding: &Finding| {
            matches!(
                finding,
                Finding::SlotInvalid { .. }
                    | Finding::Unreadable { .. }
                    | Finding::CheckpointNumber { .. }
                    | Finding::CheckpointCounts { .. }
            )
        };
        findings.kept().iter().any(invalid)
    }

    fn check_heads(&self, record: &CheckpointRecord, findings: &mut Findings) {
        let layout = self.layout();
        for (index, head) in record.heads.iter().enumerate() {
            let sound = usize::from(head.head) < HEADS_MAX
                && head.segment < layout.segment_count
                && head.next_block <= layout.segment_blocks;
            let twin = |other: &&_| same_place(head, other);
            if !sound || record.heads[..index].iter().any(|other| twin(&other)) {
                findings.push(Finding::HeadInvalid { head: head.head });
            }
        }
    }
}

fn same_place(head: &sfs_core::format::HeadRecord, other: &sfs_core::format::HeadRecord) -> bool {
    head.head == other.head || head.segment == other.segment
}

fn read_block(device: &dyn Device, address: u64) -> Result<Block, FsckError> {
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

/// Returns the later of a sound `first` copy and the backup, and which copy is worse.
fn compare_backup(
    device: &dyn Device,
    first: Superblock,
    findings: &mut Findings,
) -> Result<(Superblock, Copy), FsckError> {
    let at = first.layout.backup;
    let block = read_block(device, at)?;
    refuse_newer(&block)?;
    let backup = match Superblock::decode(&block.0, at) {
        Ok(backup) if backup == first => return Ok((first, Copy::First)),
        Ok(backup) => backup,
        Err(corruption) => {
            findings.push(Finding::SuperblockDamaged { copy: Copy::Backup, corruption });
            return Ok((first, Copy::Backup));
        }
    };
    let is_same_volume = backup.uuid == first.uuid;
    if is_same_volume && backup.generation > first.generation {
        findings.push(Finding::SuperblockOlder { copy: Copy::First });
        return Ok((backup, Copy::First));
    }
    findings.push(match is_same_volume && backup.generation < first.generation {
        true => Finding::SuperblockOlder { copy: Copy::Backup },
        false => Finding::SuperblocksDiffer,
    });
    Ok((first, Copy::Backup))
}

/// A superblock of a newer format is not damaged: nothing of the volume can be judged, nor its backup.
fn refuse_newer(block: &Block) -> Result<(), FsckError> {
    match Superblock::incompatibility_of(&block.0) {
        Some(reason) => Err(FsckError::Incompatible(reason)),
        None => Ok(()),
    }
}

/// The backup, when the first copy does not decode.
fn from_backup(
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
            findings.push(Finding::SuperblockDamaged { copy: Copy::First, corruption });
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

/// Returns where the locator says that the backup is, if a superblock of the same volume is there.
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
