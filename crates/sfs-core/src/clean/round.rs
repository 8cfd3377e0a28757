//! A round of cleaning: its victims, and their live blocks, which are committed together or in parts.

use super::excluded::SegmentGeneration;
use super::progress::CleanProgress;
use crate::format::SummaryEntry;
use crate::metadata::Metadata;
use crate::writeback::{MovedBlock, Reserve};

/// Blocks of a round that were committed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommittedMoves {
    /// Number of blocks, from the first on.
    count: usize,
    /// Number of bytes that this has moved: fewer, if users have overwritten or deleted some of the blocks meanwhile.
    moved_bytes: u64,
}

/// A round of cleaning.
#[derive(Default)]
pub(crate) struct CleaningRound {
    /// Blocks of the last victim that have not been looked at, the last address first.
    pub(super) unread: Vec<(u64, SummaryEntry)>,
    /// Victims of the round; the last one is being read.
    pub(super) victims: Vec<SegmentGeneration>,
    /// Victim that could not be read in full, because the device or memory failed: the last one.
    pub(super) failed: Option<SegmentGeneration>,
    /// Live blocks, in the order of their commit.
    pub(super) moves: Vec<MovedBlock>,
    /// Live blocks that were committed.
    pub(super) committed: CommittedMoves,
    /// Number of nodes that were made dirty, so that the next checkpoint moves them.
    pub(super) moved_nodes: u64,
    /// Number of free blocks in open segments that the round may use for blocks of any group.
    pub(super) head_room_blocks: usize,
    /// `true` if a thread that lacks segments waits for the round.
    pub(super) is_needed: bool,
    /// `true` if the live blocks go to any open segment with room, whatever their groups.
    pub(crate) merges_groups: bool,
    pub(super) progress: CleanProgress,
    /// Number of live nodes of the victims, which the next checkpoint moves.
    pub(super) live_nodes: usize,
    /// Number that the observer gave at the first victim.
    pub(super) begun: u64,
}

impl CleaningRound {
    /// Returns whether the round holds no victim.
    pub(crate) fn is_empty(&self) -> bool {
        self.victims.is_empty()
    }

    /// Returns the Clean segments that the round leaves. A round that nobody needs leaves what a thread that lacks segments needs for
    /// its own.
    pub(crate) fn reserve(&self) -> Reserve {
        if self.is_needed { Reserve::Checkpoint } else { Reserve::CleaningOnceReleased }
    }

    /// Returns the number of victims, `victim` among them, that a delta can release once their blocks are moved.
    pub(super) fn emptied_with(&self, victim: u32, metadata: &Metadata) -> usize {
        let victims = self.victims.iter().map(|(segment, _)| *segment).chain([victim]);
        let is_emptied = |segment: &u32| metadata.usage.is_emptied_for_delta(*segment, usize::MAX);
        victims.filter(is_emptied).count()
    }

    /// Returns the live blocks to commit.
    pub(crate) fn moves(&self) -> &[MovedBlock] {
        &self.moves[self.committed.count..]
    }

    /// Returns whether a commit has moved a part of the live blocks.
    pub(crate) fn has_begun_committing(&self) -> bool {
        self.committed.count > 0
    }

    /// Returns the live blocks to commit, to be put in another order.
    pub(crate) fn moves_mut(&mut self) -> &mut [MovedBlock] {
        &mut self.moves[self.committed.count..]
    }

    /// Notes that the first `count` of the live blocks to commit were committed, and that `bytes` were moved.
    pub(crate) fn note_committed(&mut self, count: usize, bytes: u64) {
        self.committed.count += count;
        self.committed.moved_bytes += bytes;
    }

    /// Returns the number of bytes that commits have moved.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.committed.moved_bytes
    }

    /// Returns the number of nodes that the next checkpoint moves.
    pub(crate) fn moved_nodes(&self) -> u64 {
        self.moved_nodes
    }

    /// Returns the number of victims that were read in full.
    pub(crate) fn read_victims(&self) -> usize {
        self.victims.len() - usize::from(self.failed.is_some())
    }

    /// Returns whether a victim of the round was read in full.
    pub(crate) fn has_read_victim(&self) -> bool {
        self.read_victims() > 0
    }

    /// Empties the round, and returns its victims. The progress over rounds stays.
    pub(super) fn take(&mut self) -> Vec<SegmentGeneration> {
        let (progress, is_needed) = (self.progress, self.is_needed);
        std::mem::replace(self, Self { progress, is_needed, ..Self::default() }).victims
    }
}
