//! Requests for a commit: the dirty data to take, the Clean segments to leave, and the Drained segments to
//! release.
//!
//! Each occasion has a constructor of its own.

use std::collections::BTreeSet;

use crate::log::SyncTarget;
use crate::memory::BlockRef;

/// Dirty data that a commit takes, beside the delta and the data ordered with it.
#[derive(Clone, Debug)]
pub(crate) enum Selection {
    /// All dirty blocks.
    All,
    /// Dirty blocks of these files.
    Files(BTreeSet<u64>),
    /// This many blocks of the largest groups, to shrink the write buffer.
    Largest(usize),
}

impl From<&SyncTarget> for Selection {
    fn from(target: &SyncTarget) -> Self {
        match target {
            SyncTarget::All => Self::All,
            SyncTarget::Files(files) => Self::Files(files.clone()),
        }
    }
}

/// Reason for which blocks are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveReason {
    /// Their segment is cleaned.
    Cleaning,
    /// Their file is put in order.
    Defragmentation,
}

/// A block that is moved.
#[derive(Clone, Debug)]
pub(crate) struct MovedBlock {
    /// Inode number and block number in the summary.
    pub(crate) named: (u64, u32),
    /// Present address.
    pub(crate) address: u64,
    /// CRC-32C of the content.
    pub(crate) checksum: u32,
    pub(crate) memory: BlockRef,
}

/// A request for a commit.
pub(crate) struct CommitRequest<'a> {
    pub(crate) selection: &'a Selection,
    pub(crate) moves: &'a [MovedBlock],
    /// Reason for `moves`.
    pub(crate) move_reason: MoveReason,
    pub(crate) reserve: Reserve,
    pub(crate) releases: Releases,
    /// `true` if the delta is written even when the data ordered with it does not fit.
    pub(crate) delta_first: bool,
    pub(crate) merging: Merging,
}

/// Rule for when the groups of a batch share the open segments with room. Blocks that die at other times than their neighbours
/// are moved by the cleaner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merging {
    /// Never: the batch fails with a shortage instead.
    Never,
    /// If Clean segments are too few.
    IfShort,
    /// Always. A batch needs a summary block for each group, so a round of cleaning on a full volume with small
    /// segments may otherwise use as much space as it gains.
    Always,
}

/// Drained segments that a batch releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Releases {
    /// No segments.
    None,
    /// All releasable segments, if the batch is written anyway.
    Piggyback,
    /// All releasable segments; the batch is written for them.
    Dedicated,
}

impl<'a> CommitRequest<'a> {
    /// Requests a commit of the dirty data in `selection`.
    pub(crate) fn of(selection: &'a Selection) -> Self {
        let (reserve, releases) = (Reserve::Cleaning, Releases::Piggyback);
        Self { releases, delta_first: false, ..Self::empty(selection, reserve) }
    }

    /// Requests a commit of blocks that the cleaner moves.
    pub(crate) fn moving(moves: &'a [MovedBlock], reserve: Reserve) -> Self {
        Self { moves, reserve, ..Self::delta_only(Releases::Piggyback) }
    }

    /// Requests a commit of blocks that are put in order. It gains no space, so it leaves room for cleaning, and each
    /// block stays in its group.
    pub(crate) fn defragmenting(moves: &'a [MovedBlock]) -> Self {
        let (reserve, move_reason) = (Reserve::Cleaning, MoveReason::Defragmentation);
        let merging = Merging::Never;
        Self { moves, move_reason, reserve, merging, ..Self::delta_only(Releases::Piggyback) }
    }

    /// Requests a commit that releases Drained segments.
    pub(crate) fn releasing() -> Self {
        Self::delta_only(Releases::Dedicated)
    }

    /// Requests the commit of ordered data before a checkpoint. The batch releases nothing: the checkpoint may open the
    /// segments that it releases itself, and discards them only when it is durable.
    pub(crate) fn before_checkpoint() -> Self {
        Self::delta_only(Releases::None)
    }

    fn delta_only(releases: Releases) -> Self {
        Self { releases, ..Self::empty(&NO_FILES, Reserve::Checkpoint) }
    }

    /// Requests a commit that moves and releases nothing.
    fn empty(selection: &'a Selection, reserve: Reserve) -> Self {
        Self {
            moves: &[],
            move_reason: MoveReason::Cleaning,
            reserve,
            releases: Releases::None,
            selection,
            delta_first: true,
            merging: Merging::IfShort,
        }
    }
}

static NO_FILES: Selection = Selection::Files(BTreeSet::new());

/// Segments that stay Clean after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// Enough to clean another segment.
    Cleaning,
    /// Enough to clean another segment, once a delta has released the segments that are Drained or that this batch empties: for
    /// cleaning that can wait.
    CleaningOnceReleased,
    /// Enough for the next checkpoint.
    Checkpoint,
}

/// Progress of a commit: the part of the selected data that the commit took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All selected data.
    #[default]
    Done,
    /// A part of the selected data: there were too few Clean segments for the rest.
    More,
}
