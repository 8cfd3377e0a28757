//! The record of a checkpoint: what it says, and its slot.

use sfs_device::{BLOCK_SIZE, Block, Stream};
use zerocopy::{FromZeros, IntoBytes};

use super::{CheckpointReason, Checkpointer};
use crate::Result;
use crate::format::{
    CheckpointRecord, FileCount, Head, Layout, NodePointer, TableSegments, WearLedger,
};
use crate::log::LogState;
use crate::metadata::Metadata;
use crate::mutant::{Mutant, mutated};

impl Checkpointer {
    /// Returns the record of checkpoint `number`, whose tree has its root at `root` on `level`.
    pub(super) fn record(
        &self,
        log: &LogState,
        metadata: &Metadata,
        (number, root, level): (u64, NodePointer, u8),
        reason: CheckpointReason,
    ) -> CheckpointRecord {
        let written = self.counters.snapshot();
        let mut extensions = log.extensions.clone();
        // The old ledger must take no room from other records; the new one comes last.
        extensions.remove(WearLedger::TAG);
        metadata.reserved().put_into(&mut extensions);
        TableSegments::remove_from(&mut extensions);
        // Before the records that can do without room.
        if matches!(reason, CheckpointReason::Resizing { .. }) && !mutated(Mutant::ResizeUnsaid) {
            let segments = metadata.usage.entries().len() as u32;
            TableSegments(segments).put_into(&mut extensions);
        }
        self.health.put_into(&mut extensions);
        match metadata.known_file_count() {
            Some(count) => count.put_into(&mut extensions),
            None => FileCount::remove_from(&mut extensions),
        }

        CheckpointRecord {
            number,
            next_sequence: log.next_sequence,
            previous: log.previous,
            root_address: root.address,
            root_checksum: root.checksum,
            root_level: level,
            next_ino: metadata.next_ino,
            heads: log.heads.records(),
            blocks_written: metadata.usage.clock.blocks(),
            policies: metadata.save_policies(),
            unmounted: reason.unmounts(),
            mount_count: log.mount_count,
            user_bytes_written: log.user_bytes_before + written.user_bytes_written,
            // Set once the length of the record is known.
            device_bytes_written: 0,
            extensions,
        }
    }

    /// Writes the record of a checkpoint to its slot, durably.
    pub(crate) fn write_record(&self, record: &CheckpointRecord) -> Result<()> {
        self.write_record_to(record, &self.superblock.layout())
    }

    /// Writes the record of a checkpoint to its slot in `layout`, durably.
    pub(crate) fn write_record_to(&self, record: &CheckpointRecord, layout: &Layout) -> Result<()> {
        self.health.check_running()?;
        let address = layout.slots[(record.number % 2) as usize];
        let bytes = record.encode(self.superblock.volume(), address);
        let mut blocks =
            Block::new_vec_zeroed(bytes.len() / BLOCK_SIZE).expect("memory for a checkpoint");
        blocks.as_mut_bytes().copy_from_slice(&bytes);
        self.io.write_record(address, &blocks, Stream(Head::METADATA.0))?;
        let is_resize = *layout != self.superblock.layout();
        let is_unflushed =
            mutated(Mutant::SkippedRecordFlush) || is_resize && mutated(Mutant::ResizeUnflushed);
        if !is_unflushed {
            self.io.order()?;
        }
        Ok(())
    }
}
