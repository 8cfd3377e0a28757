//! Victims that the cleaner must not choose.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{ErrorKind, Layout, SegmentState};
use crate::health::Health;
use crate::metadata::Metadata;

/// One use of a segment, from opening to release: its number, and the stamp that it was opened with.
pub(super) type SegmentGeneration = (u32, u64);

/// Segments that are not chosen as victims.
#[derive(Debug, Default)]
pub(super) struct ExcludedVictims {
    /// Segments that a cleaning round holds.
    taken: BTreeSet<u32>,
    /// Segments that were emptied, except for nodes that the next checkpoint moves.
    emptied: BTreeSet<SegmentGeneration>,
    /// Emptied segments in which blocks were still live after a checkpoint.
    suspect: BTreeSet<SegmentGeneration>,
    /// Segments whose live blocks cannot be read or moved: not cleaned until the segment is opened
    /// again.
    unreadable: BTreeSet<SegmentGeneration>,
    /// Segments that were not read in full, because the device or memory failed.
    failed: BTreeMap<SegmentGeneration, FailedReads>,
    /// Damage that the cleaner found while it read.
    damage: BTreeMap<SegmentGeneration, BlockDamage>,
}

/// Failed attempts to read a segment. A failure may pass, so the segment is tried again, each time after twice as many
/// checkpoints: a request to a bad block may take seconds. Checkpoints for want of segments do not count, because a volume
/// that is full writes many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FailedReads {
    /// Number of attempts.
    attempts: u32,
    /// Number of checkpoints before the next attempt.
    waits_checkpoints: u32,
}

/// Exponent of two for the largest number of checkpoints between two attempts to read a segment.
const WAIT_EXPONENT_MAX: u32 = 6;

/// Damaged block that the cleaner has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockDamage {
    /// Live data, which is counted already.
    Data,
    /// A node should be at this address. The node may be dead.
    Node(u64),
}

impl ExcludedVictims {
    /// Reserves a victim for a round.
    pub(super) fn take(&mut self, segment: u32) {
        self.taken.insert(segment);
    }

    /// Gives back a victim that was not emptied: other rounds may take it.
    pub(super) fn give_back(&mut self, segment: u32) {
        self.taken.remove(&segment);
    }

    /// Returns whether another round holds `segment`.
    pub(super) fn is_taken(&self, segment: u32) -> bool {
        self.taken.contains(&segment)
    }

    /// Returns whether cleaning a segment would be useless.
    pub(super) fn contains(&self, victim: &SegmentGeneration) -> bool {
        self.emptied.contains(victim)
            || self.unreadable.contains(victim)
            || self.failed.get(victim).is_some_and(|failed| failed.waits_checkpoints > 0)
    }

    /// Records that the data of a victim was moved.
    pub(super) fn note_emptied(&mut self, victim: SegmentGeneration) {
        self.taken.remove(&victim.0);
        self.emptied.insert(victim);
    }

    /// Records that a victim was not read in full, because the device or memory failed.
    pub(super) fn note_failed(&mut self, victim: SegmentGeneration) {
        self.taken.remove(&victim.0);
        let failed = self.failed.entry(victim).or_default();
        failed.waits_checkpoints = 1 << failed.attempts.min(WAIT_EXPONENT_MAX);
        failed.attempts += 1;
    }

    /// Allows another attempt to read the segments that failed, without waiting for checkpoints. Returns whether there are
    /// any that waited.
    pub(super) fn retry_failed(&mut self) -> bool {
        let mut has_waited = false;
        for failed in self.failed.values_mut() {
            has_waited |= failed.waits_checkpoints > 0;
            failed.waits_checkpoints = 0;
        }
        has_waited
    }

    /// Counts a checkpoint for the segments that failed.
    pub(super) fn shorten_waits(&mut self) {
        for failed in self.failed.values_mut() {
            failed.waits_checkpoints = failed.waits_checkpoints.saturating_sub(1);
        }
    }

    /// Records that a victim cannot be read.
    pub(super) fn note_unreadable(&mut self, victim: SegmentGeneration) {
        self.unreadable.insert(victim);
    }

    /// Records damage in a victim. Damage of live data outweighs damage of a node that may be dead.
    pub(super) fn note_damage(&mut self, victim: SegmentGeneration, damage: BlockDamage) {
        let known = self.damage.entry(victim).or_insert(damage);
        if damage == BlockDamage::Data {
            *known = damage;
        }
    }

    /// Reconsiders the emptied segments after a checkpoint has written their nodes. A block that is
    /// still live had not reached the device when it was read, or it cannot be moved: the block is
    /// damaged, or follows a damaged summary. A segment where this happens twice is excluded until
    /// it is opened again: cleaning it once more would gain nothing.
    pub(super) fn reconsider_emptied(
        &mut self,
        metadata: &Metadata,
        layout: &Layout,
        health: &Health,
    ) {
        let is_sealed = |(segment, stamp): &SegmentGeneration| {
            // The volume may have shrunk since.
            let entry = metadata.usage.entries().get(*segment as usize);
            entry.is_some_and(|e| e.state == SegmentState::Sealed && e.stamp == *stamp)
        };
        self.suspect.retain(is_sealed);
        self.unreadable.retain(is_sealed);
        self.failed.retain(|victim, _| is_sealed(victim));
        self.damage.retain(|victim, _| is_sealed(victim));
        for victim in std::mem::take(&mut self.emptied).into_iter().filter(is_sealed) {
            if !self.suspect.insert(victim) && self.unreadable.insert(victim) {
                count_damage(victim, self.damage.remove(&victim), layout, health);
            }
        }
    }
}

/// Counts the damage in a segment whose live blocks cannot be moved: a node, or else a damaged
/// summary. Damaged data was counted when it was read.
fn count_damage(
    (segment, _): SegmentGeneration,
    damage: Option<BlockDamage>,
    layout: &Layout,
    health: &Health,
) {
    match damage {
        Some(BlockDamage::Data) => {}
        Some(BlockDamage::Node(address)) => health.note_error(ErrorKind::Tree, address),
        None => health.note_error(ErrorKind::Log, layout.segment_address(segment)),
    }
}
