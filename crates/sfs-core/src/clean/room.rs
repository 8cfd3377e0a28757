//! Whether there is room for the live blocks of one more victim.

use super::cleaner::Cleaner;
use super::round::CleaningRound;
use crate::log::Batch;
use crate::metadata::Metadata;
use crate::reserves::{ChangesAhead, DELTA_SEGMENTS, checkpoint_segments, cleaning_segments};
use crate::writeback::Reserve;

/// Needs of a round that has taken one more victim.
struct RoundWith {
    /// Number of blocks of data that are moved.
    data: usize,
    /// Number of segments that are opened for them.
    opened: usize,
    leaves: ChangesAhead,
}

impl Cleaner {
    /// Returns whether the live blocks of `victim` fit beside those of `round`, and leave the reserve of the round.
    pub(super) fn fits(&self, round: &CleaningRound, metadata: &Metadata, victim: u32) -> bool {
        let layout = &self.superblock.layout();
        let RoundWith { data, opened, leaves } = self.round_with(round, metadata, victim);
        let clean = metadata.usage.clean_count();
        let leaves_reserve = || {
            let later = metadata.usage.releasable_count() + round.emptied_with(victim, metadata);
            opened + cleaning_segments(layout, metadata, leaves) <= clean + later
        };
        (round.is_empty() || data <= self.moved_blocks_max)
            && opened + checkpoint_segments(layout, metadata, leaves) <= clean
            && (round.reserve() == Reserve::Checkpoint || leaves_reserve())
    }

    fn round_with(&self, round: &CleaningRound, metadata: &Metadata, victim: u32) -> RoundWith {
        let layout = &self.superblock.layout();
        let entry = metadata.usage.entry(victim);
        let live = entry.live_blocks as usize;
        let data = round.moves.len() + if entry.data_group().is_some() { live } else { 0 };
        let opened = data
            .saturating_sub(round.head_room_blocks)
            .div_ceil(Batch::segment_data_blocks(layout))
            + DELTA_SEGMENTS;
        RoundWith { data, opened, leaves: ChangesAhead::of_leaves(round.moves.len() + live) }
    }
}
