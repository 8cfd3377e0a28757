//! Checkpoints in the two slots.

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, HEADS_MAX, HeadRecord, Layout, TableSegments,
};
use sfs_device::Block;

use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::volume::VolumeReader;

/// Returns the newest sound checkpoint, or the one before if a crash has interrupted the shrink that wrote the newest one;
/// with findings for both slots and for the heads of that checkpoint.
pub(crate) fn newest(
    volume: &VolumeReader<'_>,
    findings: &mut Findings,
) -> Option<CheckpointRecord> {
    let slots = (0u8..).zip(volume.layout().slots);
    let records = slots.filter_map(|(slot, at)| read_slot(volume, slot, at, findings));
    // Of two equal numbers, which no sound pair has, the first slot counts.
    let segments = volume.layout().segment_count;
    let newest = records.reduce(|first, second| {
        let (older, newer) = match first.number < second.number {
            true => (first, second),
            false => (second, first),
        };
        match TableSegments::is_interrupted_shrink(&older, &newer, segments) {
            true => older,
            false => newer,
        }
    });
    match &newest {
        Some(record) => check_heads(record, volume.layout(), findings),
        None => findings.push(Finding::CheckpointsLost),
    }
    newest
}

/// Reads the checkpoint of `slot` at address `at`, if it is sound.
fn read_slot(
    volume: &VolumeReader<'_>,
    slot: u8,
    at: u64,
    findings: &mut Findings,
) -> Option<CheckpointRecord> {
    let mut blocks = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
    if volume.device.read(at, &mut blocks).is_err() {
        findings.push(Finding::Unreadable { address: at });
        return None;
    }
    let finding = match CheckpointRecord::decode(Block::bytes_of(&blocks), volume.id(), at) {
        Err(corruption) => Finding::SlotInvalid { slot, corruption },
        Ok(record) if record.number % 2 != u64::from(slot) => {
            Finding::CheckpointNumber { slot, number: record.number }
        }
        Ok(record) if !record.has_sound_counts() => Finding::CheckpointCounts { slot },
        Ok(record) => return Some(record),
    };
    findings.push(finding);
    None
}

/// Returns whether, by the `findings` of [`newest`], a slot holds no sound checkpoint. A crash during the
/// write of a checkpoint has that effect, too.
pub(crate) fn is_slot_empty(findings: &Findings) -> bool {
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

fn check_heads(record: &CheckpointRecord, layout: &Layout, findings: &mut Findings) {
    for (index, head) in record.heads.iter().enumerate() {
        let sound = head.head.index() < HEADS_MAX
            && head.segment < layout.segment_count
            && head.next_block <= layout.segment_blocks;
        let twin = |other: &&_| is_same_place(head, other);
        if !sound || record.heads[..index].iter().any(|other| twin(&other)) {
            findings.push(Finding::HeadInvalid { head: head.head });
        }
    }
}

fn is_same_place(head: &HeadRecord, other: &HeadRecord) -> bool {
    head.head == other.head || head.segment == other.segment
}
