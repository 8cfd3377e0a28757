//! Engines: where the data blocks of a commit go.
//!
//! Owns: what differs between the data layouts that `sfs-mkfs` offers.
//! Promises: neither the namespace and the files above nor the tree, the checkpoint and the device below
//! know which engine runs; what an engine says to fit can be written.
//! Never: writes, or changes anything before the commit is sure to happen.

mod append;
mod overwrite;

use append::Append;
use overwrite::Overwrite;

use super::commit::Chosen;
use crate::format::{Change, DataLayout, Layout};
use crate::log::Log;
use crate::meta::Meta;
use crate::segments::SegmentBudget;

/// The volume as an engine looks at it.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) layout: &'a Layout,
    pub(super) log: &'a Log,
    pub(super) meta: &'a Meta,
}

/// Blocks that have got a place beside the log.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) chosen: Vec<Chosen>,
    /// What the delta says of them.
    pub(super) maps: Vec<Change>,
}

/// The engine of a volume.
pub(super) fn engine(data_layout: DataLayout) -> Box<dyn Engine> {
    match data_layout {
        DataLayout::Log => Box::new(Append),
        _ => Box::new(Overwrite),
    }
}

/// Says where the data blocks of a commit go.
pub(super) trait Engine: Send + Sync {
    /// Blocks that may live at once.
    fn capacity(&self, layout: &Layout) -> u64;

    /// Blocks that may live beside those that do.
    fn free_blocks(&self, layout: &Layout, meta: &Meta) -> u64;

    /// Whether there is room for `blocks` of new data, beside `dirty` blocks that wait, and for what the
    /// tree has to say of them; without any, for some new metadata.
    fn admits(&self, layout: &Layout, meta: &Meta, dirty: u64, blocks: u64) -> bool;

    /// Blocks that fit for sure when data may open `spare` segments.
    fn ample(&self, layout: &Layout, meta: &Meta, spare: usize) -> usize;

    /// Blocks that a commit may plan then.
    fn room(&self, site: Site<'_>, spare: usize) -> usize;

    /// Segments that `chosen` have to open.
    fn opens(&self, site: Site<'_>, chosen: &[Chosen]) -> usize;

    /// Makes `chosen` open fewer, at the expense of the order among them.
    fn narrow(&self, _site: Site<'_>, _chosen: &mut [Chosen]) {}

    /// Takes those that stay where they are from `chosen`, and says so in their mappings.
    fn arrange(&self, _chosen: &mut Vec<Chosen>) -> Vec<Chosen> {
        Vec::new()
    }

    /// Bytes at most that a delta says of `count` chosen blocks.
    fn said_len(&self, _count: usize) -> usize {
        0
    }

    /// Takes those from `chosen` that do not go to the log, and gives them their places. There is room:
    /// see [`Engine::opens`].
    fn place(
        &self,
        _layout: &Layout,
        _log: &Log,
        _meta: &mut Meta,
        _chosen: &mut Vec<Chosen>,
        _share: SegmentBudget,
    ) -> Beside {
        Beside::default()
    }
}
