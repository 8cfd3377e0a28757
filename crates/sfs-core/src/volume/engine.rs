//! Engines: where the data blocks of a commit go.
//!
//! Owns: what differs between the placements that `sfs-mkfs` offers.
//! Promises: neither the namespace and the files above nor the tree, the checkpoint and the device below
//! know which engine runs; what an engine says to fit can be written.
//! Never: writes, or changes anything before the commit is sure to happen.

mod append;

pub(super) use append::Append;

use super::commit::Chosen;
use crate::format::Layout;
use crate::log::Log;
use crate::meta::Meta;

/// The volume as an engine looks at it.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) layout: &'a Layout,
    pub(super) log: &'a Log,
    pub(super) meta: &'a Meta,
}

/// Says where the data blocks of a commit go.
pub(super) trait Engine: Send + Sync {
    /// Blocks that fit for sure when data may open `spare` segments.
    fn ample(&self, layout: &Layout, meta: &Meta, spare: usize) -> usize;

    /// Blocks that a commit may plan then.
    fn room(&self, site: Site<'_>, spare: usize) -> usize;

    /// Segments that `chosen` have to open.
    fn opens(&self, site: Site<'_>, chosen: &[Chosen]) -> usize;

    /// Makes `chosen` open fewer, at the expense of the order among them.
    fn narrow(&self, site: Site<'_>, chosen: &mut [Chosen]);
}
