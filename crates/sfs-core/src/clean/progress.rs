//! Progress of cleaning: whether another round would gain anything.

/// Number of rounds in a row without gain after which cleaning, or a commit that lacks segments,
/// gives up.
const ROUNDS_WITHOUT_GAIN_MAX: u32 = 6;

/// Detects that rounds of cleaning no longer gain room. The detector looks at several rounds,
/// because the checkpoint after a round may take the room that the round has gained.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StallDetector {
    /// Largest room seen so far, in the unit of [`StallDetector::note`].
    most: usize,
    /// Number of rounds in a row that brought no more room.
    rounds: u32,
}

impl StallDetector {
    /// Records that there is `room` after a round, in any unit; returns whether another round is worthwhile.
    pub(crate) fn note(&mut self, room: usize) -> bool {
        self.rounds = if room > self.most { 0 } else { self.rounds + 1 };
        self.most = self.most.max(room);
        self.rounds < ROUNDS_WITHOUT_GAIN_MAX
    }

    /// Returns whether the last round has brought no more room.
    pub(crate) fn is_stalling(self) -> bool {
        self.rounds > 0
    }
}

/// Blocks without live content in segments that are in use: an upper limit of the gain of cleaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GarbageBlocks {
    pub(crate) blocks: u64,
    /// Data blocks of one segment.
    pub(crate) segment_blocks: u64,
}

impl GarbageBlocks {
    /// Returns whether the garbage exceeds `least`, the least so far, by a segment's worth; updates `least`.
    pub(crate) fn has_grown(self, least: &mut u64) -> bool {
        *least = self.blocks.min(*least);
        self.blocks >= *least + self.segment_blocks
    }
}

/// Progress of cleaning since users last made a segment's worth of garbage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CleanProgress {
    /// Number of changes by users when they had made that garbage.
    changes: u64,
    /// Least garbage since then, in blocks.
    least_garbage: u64,
    stall: StallDetector,
}

impl CleanProgress {
    /// Records that a round has ended with room for `free_blocks`; returns whether another round is worthwhile.
    pub(super) fn note(
        &mut self,
        changes: u64,
        garbage: GarbageBlocks,
        free_blocks: usize,
    ) -> bool {
        // Blocks that the cleaner holds may look like garbage, too, so changes by users are required as well.
        if garbage.has_grown(&mut self.least_garbage) && self.changes != changes {
            *self = Self { changes, least_garbage: garbage.blocks, ..Self::default() };
        }
        self.stall.note(free_blocks)
    }
}
