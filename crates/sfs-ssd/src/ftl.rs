//! Translation layers: what turns writes in place into what flash can do.
//!
//! Owns: the contract, the choice of a layer, and what all have in common.
//! Promises: after any sequence of calls a page is where [`Ftl::slot`] says, in its last version.
//! Never: sees requests or bytes.

mod bast;
mod fast;
mod free;
mod hybrid;
mod names;
mod page_mapped;
mod victims;

use serde::Serialize;

pub use bast::Bast;
pub use fast::Fast;
pub use names::LayerError;
pub use page_mapped::PageMapped;

use crate::{Flash, Geometry};

/// A page that the host writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWrite {
    /// Which.
    pub page: u32,
    /// Which writing of it.
    pub version: u32,
    /// The stream it belongs to; those that the layer does not keep apart count as the last.
    pub stream: u8,
}

/// A translation layer. Times are in nanoseconds: a call is told when it may begin, and says when
/// the host's page has been dealt with.
pub trait Ftl: Send {
    /// Writes a page.
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64;

    /// Forgets a page.
    fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64);

    /// Where the last version of a page is; `None` if there is none.
    fn slot(&self, page: u32) -> Option<u32>;

    /// The slot that the next write of a page would take, where that is known before.
    fn slot_next(&self, flash: &Flash, page: u32, stream: u8) -> Option<u32>;

    /// Cleans one victim where less than `low_permille` of the pages is free. Whether there was
    /// anything to do; a layer without background cleaning has nothing.
    fn clean(&mut self, flash: &mut Flash, low_permille: u32, at_ns: u64) -> bool;
}

/// Which translation layer, and how it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Every page has its own mapping: [`PageMapped`].
    PageMapped {
        /// Which block is cleaned.
        collection: Collection,
        /// Streams that get clustered blocks of their own; at least one.
        streams: u8,
        /// Where cleaned pages go.
        isolation: Isolation,
    },
    /// Mapped by block, with log blocks that any page may go to: [`Fast`].
    Fast {
        /// Random log blocks, beside the sequential one.
        log_blocks: u32,
    },
    /// Mapped by block, with log blocks of one data block each: [`Bast`].
    Bast {
        /// Log blocks.
        log_blocks: u32,
    },
}

/// Which block a page-mapped layer cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// The one with the fewest live pages; of those, the one that came to it first.
    Greedy,
    /// The one that was filled first.
    Fifo,
}

/// Where a page-mapped layer puts what it cleans (in the words of NVMe's flexible data placement).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// All streams' cleaned pages share blocks, which nothing else goes to.
    Initial,
    /// To the blocks of the stream they came from, with what the host writes.
    Persistent,
}

/// How erases are spread over the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WearLevelling {
    /// Free blocks are used in the order in which they were freed.
    None,
    /// The least worn free block is used first.
    Dynamic,
    /// And what never changes is moved to the most worn free block, when erase counts are further
    /// apart than this.
    Static {
        /// Erases.
        spread: u32,
    },
}

impl Layer {
    /// Page-mapped with greedy collection and one stream.
    pub const GREEDY: Layer = Layer::PageMapped {
        collection: Collection::Greedy,
        streams: 1,
        isolation: Isolation::Persistent,
    };

    /// Clustered blocks that a device needs besides those that the host sees, in each gang for a
    /// page-mapped layer; one more than without which there is no layer.
    pub fn spare_clusters_min(&self) -> u32 {
        match self {
            Layer::PageMapped { streams, .. } => u32::from(*streams) + 4,
            Layer::Fast { log_blocks } => log_blocks + 4,
            Layer::Bast { log_blocks } => log_blocks + 3,
        }
    }

    /// The layer for an erased device of this shape; `None` if its spare blocks are too few.
    pub fn build(&self, geometry: &Geometry, wear: WearLevelling) -> Option<Box<dyn Ftl>> {
        match *self {
            Layer::PageMapped { collection, streams, isolation } => {
                PageMapped::new(geometry, collection, streams, isolation, wear)
                    .map(|layer| Box::new(layer) as Box<dyn Ftl>)
            }
            Layer::Fast { log_blocks } => {
                Fast::new(geometry, log_blocks, wear).map(|layer| Box::new(layer) as Box<dyn Ftl>)
            }
            Layer::Bast { log_blocks } => {
                Bast::new(geometry, log_blocks, wear).map(|layer| Box::new(layer) as Box<dyn Ftl>)
            }
        }
    }
}
