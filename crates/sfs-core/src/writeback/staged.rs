//! Staged blocks: data blocks that a commit is about to write, before and after they have an address.

use super::commit_request::MoveReason;
use crate::format::{Group, Mapping, SummaryEntry};
use crate::io::{Append, InPlaceBlock};
use crate::memory::BlockRef;

/// A data block that a commit writes.
pub(crate) struct StagedBlock {
    pub(crate) ino: u64,
    pub(crate) block: u32,
    pub(crate) memory: BlockRef,
    /// Mapping before this commit.
    pub(crate) old: Option<Mapping>,
    /// Mapping after this commit. The address is 0 until the block has one.
    pub(crate) mapping: Mapping,
    pub(crate) group: Group,
    /// Reason for which the block is moved; `None` if a user wrote it.
    pub(crate) moved: Option<MoveReason>,
}

impl StagedBlock {
    /// Returns the block for a write in place, at the address of its mapping.
    pub(crate) fn into_in_place(self) -> InPlaceBlock {
        (self.mapping.address, self.memory)
    }

    /// Returns the block for the log, with its summary entry.
    pub(crate) fn append(&self) -> Append {
        let Mapping { checksum, history, .. } = self.mapping;
        let checksum = checksum.expect("blocks in the log have checksums");
        Append {
            entry: SummaryEntry::Data { ino: self.ino, block: self.block, checksum, history },
            memory: self.memory.clone(),
        }
    }
}

/// Sorts blocks by group and owner, which is the order in which they are written.
pub(crate) fn sort(blocks: &mut [StagedBlock]) {
    blocks.sort_by_key(|b| (b.group, b.ino, b.block));
}
