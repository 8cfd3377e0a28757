//! Behaviour of a data layout, and its view of the volume.

use super::super::staged::StagedBlock;
use crate::format::{Change, Layout};
use crate::log::LogState;
use crate::metadata::Metadata;
use crate::segments::SegmentBudget;

/// State of the volume that a data layout reads.
#[derive(Clone, Copy)]
pub(crate) struct SpaceView<'a> {
    pub(crate) layout: Layout,
    pub(crate) log: &'a LogState,
    pub(crate) metadata: &'a Metadata,
}

/// Blocks that have an address outside the log, and the changes that the delta encodes for them.
#[derive(Default)]
pub(crate) struct InPlaceBatch {
    pub(crate) blocks: Vec<StagedBlock>,
    pub(crate) maps: Vec<Change>,
}

/// Free blocks that an admission leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// All that data, and metadata, does not get.
    Usual,
    /// As few as possible: see [`Volume::with_withheld_space`](crate::Volume::with_withheld_space).
    Least,
}

/// Behaviour of a data layout.
pub(crate) trait LayoutBehaviour: Send + Sync {
    /// Returns the number of blocks that can be live at once.
    fn capacity_blocks(&self, layout: &Layout) -> u64;

    /// Returns the number of blocks that can become live in addition.
    fn free_blocks(&self, layout: &Layout, metadata: &Metadata) -> u64;

    /// Returns the number of free blocks that data does not get: deletes and renames on a full volume change metadata.
    fn withheld_blocks(&self, _layout: &Layout) -> u64 {
        0
    }

    /// Returns whether `new_blocks` of data fit beside `dirty_blocks`, with the metadata for both;
    /// without new blocks, whether some new metadata fits. `withheld` blocks stay free.
    fn admits(
        &self,
        layout: &Layout,
        metadata: &Metadata,
        dirty_blocks: u64,
        new_blocks: u64,
        withheld: Withheld,
    ) -> bool;

    /// Returns the number of blocks that certainly fit when data may open `spare_segments`.
    fn certain_blocks(&self, layout: &Layout, metadata: &Metadata, spare_segments: usize) -> usize;

    /// Returns the number of blocks that a commit may plan when data may open `spare_segments`.
    fn plannable_blocks(&self, view: SpaceView<'_>, spare_segments: usize) -> usize;

    /// Returns the number of segments that have to be opened for `blocks`.
    fn opened_segments(&self, view: SpaceView<'_>, blocks: &[StagedBlock]) -> usize;

    /// Moves `blocks` to the groups whose open segments have the most room, so that they open fewer
    /// segments.
    fn merge_groups(&self, _view: SpaceView<'_>, _blocks: &mut [StagedBlock]) {}

    /// Takes the blocks out of `blocks` that are overwritten at their present address, and sets their mappings.
    fn split_in_place(&self, _blocks: &mut Vec<StagedBlock>) -> Vec<StagedBlock> {
        Vec::new()
    }

    /// Returns an upper bound for the length, in bytes, of a delta about `count` blocks.
    fn delta_len_max(&self, _count: usize) -> usize {
        0
    }

    /// Takes the blocks out of `blocks` that do not go to the log, and gives them addresses. The blocks have
    /// space: see [`LayoutBehaviour::opened_segments`].
    fn allocate(
        &self,
        _layout: &Layout,
        _log: &LogState,
        _metadata: &mut Metadata,
        _blocks: &mut Vec<StagedBlock>,
        _share: SegmentBudget,
    ) -> InPlaceBatch {
        InPlaceBatch::default()
    }
}
