//! Grouping policies: the group of each block that is written.
//!
//! A commit asks the policy while it plans, once for each overwritten block and once for all
//! appended blocks of a file, with the history before the write. Blocks of one group go to the same
//! open segment. Each policy has its own file.

mod dac;
mod fast12;
mod none;
mod quantization;
mod separate;
mod sepbit;
mod sfs;

pub use dac::Dac;
pub use fast12::{Distance, Fast12};
pub use none::SingleGroup;
pub use quantization::{Partition, Quantization};
pub use separate::SeparateCleaning;
pub use sepbit::SepBit;
pub use sfs::Sfs;

use super::StateBound;
use crate::format::{Group, History, UsageEntry};

/// A block that is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Inode number of the file.
    pub ino: u64,
    /// Block number in the file.
    pub block: u32,
    /// History before this write; `None` for a new block. A move by the cleaner does not change the history.
    pub history: Option<History>,
    /// Group of the segment that holds the block now; `None` for a new block.
    pub group: Option<Group>,
    /// `true` if the cleaner moves the block, `false` if a user writes it.
    pub cleaning: bool,
    /// Number of blocks written to the file before this write (SFS, section 3.2: W_f).
    pub file_write_count: u64,
    /// Time of the last write to the file before this one, in ticks (T_f^m).
    pub file_modified: u32,
}

/// Policy that assigns each written block to a group.
pub trait GroupingPolicy: StateBound + Send + Sync {
    /// Returns the name of the policy in mount options and checkpoints.
    fn name(&self) -> &'static str;

    /// Returns the number of groups, 1..=[`GROUPS_MAX`](super::GROUPS_MAX).
    fn group_count(&self) -> u8;

    /// Begins a segment writing (SFS, section 3.3): the policy may recompute its groups from the usage table.
    fn begin(&mut self, _segments: &[UsageEntry], _segment_blocks: u32, _now: u32) {}

    /// Returns the group of a block, `0..group_count`.
    fn group(&self, candidate: &Candidate, now: u32) -> Group;

    /// Returns the group of `count` neighbours with these histories: blocks that follow one another in a file,
    /// overwritten by one commit. `None` if each of them goes to the group that [`Self::group`] returns.
    fn group_of_neighbours(
        &self,
        _count: usize,
        _histories: &mut dyn Iterator<Item = Option<History>>,
        _now: u32,
    ) -> Option<Group> {
        None
    }

    /// Returns whether blocks may still go to a group. The open segment of a group that is not in
    /// use is closed.
    fn is_in_use(&self, group: Group) -> bool {
        group.0 < self.group_count()
    }

    /// Returns the expected log2 of the time, in ticks, until a block that a user is about to write is overwritten or
    /// deleted. `None` for a policy that does not predict it.
    fn lifetime(&self, _candidate: &Candidate, _now: u32) -> Option<f64> {
        None
    }

    /// Returns the centres of the groups by group number, in the unit of the policy (`sfs-fast12`: writes per tick).
    /// Empty for a policy without centres, and before the first groups are computed.
    fn centres(&self) -> &[f64] {
        &[]
    }

    /// Returns the history of a block after a user's write, given the history `before` it.
    fn history(&self, before: Option<History>, now: u32) -> History {
        let count = before.map_or(0, History::write_count);
        History::plain(count.saturating_add(1), now)
    }

    /// Notes that a user replaced or deleted a block: `before` is the dead version, `after` the live one. A
    /// deletion has no `after`. Moves by the cleaner are reported by [`Self::note_move`] instead.
    fn note_write(&mut self, _before: Option<History>, _after: Option<History>, _now: u32) {}

    /// Notes that a user overwrites `count` neighbours, whose histories before are `histories`.
    fn note_neighbours(
        &mut self,
        _count: usize,
        _histories: &mut dyn Iterator<Item = Option<History>>,
        _now: u32,
    ) {
    }

    /// Notes that the cleaner moved a block, whose history does not change.
    fn note_move(&mut self, _history: History, _now: u32) {}

    /// Notes that the cleaner chose `segment` as its victim and is about to empty it.
    fn note_cleaning(&mut self, _segment: &UsageEntry, _now: u32) {}

    /// Appends the state that a checkpoint saves for the next mount: at most
    /// [`SavedState::STATE_LEN_MAX`](super::SavedState::STATE_LEN_MAX) bytes.
    fn save(&self, _state: &mut Vec<u8>) {}

    /// Loads a saved state. The bytes come from a device: any content must be tolerated.
    fn restore(&mut self, _state: &[u8]) {}
}
