//! Where a volume begins: superblocks and checkpoints.
//!
//! Owns: the choice between copies, and the ways in which a device can be no volume.
//! Promises: the layout it gives lies within the device.
//! Never: reads a segment.

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, Corruption, HEADS_MAX, Layout, SUPERBLOCK_ADDRESS,
    Superblock,
};
use sfs_device::{BLOCK_SIZE, Block, Device};
use sfs_mkfs::signatures::{Ends, SFS, detect};

use crate::findings::Copy;
use crate::{Finding, Findings, FsckError};

/// A device with a volume on it.
pub(crate) struct Volume<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) superblock: Superblock,
}

impl<'a> Volume<'a> {
    /// Finds the superblock, or says what there is instead.
    pub(crate) fn open(device: &'a dyn Device, findings: &mut Findings) -> Result<Self, FsckError> {
        let block_count = device.geometry().block_count;
        if block_count <= SUPERBLOCK_ADDRESS {
            return Err(FsckError::NotSfs { instead: None });
        }
        let first_bytes = read_block(device, SUPERBLOCK_ADDRESS)?;
        let superblock = match Superblock::decode(&first_bytes.0, SUPERBLOCK_ADDRESS) {
            Ok(first) => {
                refuse_truncated(&first.layout, block_count)?;
                compare_backup(device, &first, findings)?;
                first
            }
            Err(corruption) => from_backup(device, &first_bytes, corruption, findings)?,
        };
        Ok(Self { device, superblock })
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

fn compare_backup(
    device: &dyn Device,
    first: &Superblock,
    findings: &mut Findings,
) -> Result<(), FsckError> {
    let at = first.layout.backup;
    match Superblock::decode(&read_block(device, at)?.0, at) {
        Ok(backup) if backup == *first => {}
        Ok(_) => findings.push(Finding::SuperblocksDiffer),
        Err(corruption) => {
            findings.push(Finding::SuperblockDamaged { copy: Copy::Backup, corruption });
        }
    }
    Ok(())
}

/// A superblock of a newer format is not damaged: nothing of the volume can be judged, nor its backup.
fn refuse_newer(block: &Block) -> Result<(), FsckError> {
    match Superblock::incompatibility_of(&block.0) {
        Some(reason) => Err(FsckError::Incompatible(reason)),
        None => Ok(()),
    }
}

/// The superblock from the last block, when the first one does not decode.
fn from_backup(
    device: &dyn Device,
    first: &Block,
    corruption: Corruption,
    findings: &mut Findings,
) -> Result<Superblock, FsckError> {
    let block_count = device.geometry().block_count;
    refuse_newer(first)?;
    let last = read_block(device, block_count - 1)?;
    if let Ok(backup) = Superblock::decode(&last.0, block_count - 1)
        && backup.layout.backup == block_count - 1
    {
        findings.push(Finding::SuperblockDamaged { copy: Copy::First, corruption });
        return Ok(backup);
    }
    refuse_newer(&last)?;
    if Superblock::recognize(&first.0) || Superblock::recognize(&last.0) {
        return Err(FsckError::SuperblocksLost);
    }
    match detect(&Ends::read_device(device)?).first().map(|found| found.name) {
        Some(SFS) => Err(FsckError::SuperblocksLost),
        instead => Err(FsckError::NotSfs { instead }),
    }
}
