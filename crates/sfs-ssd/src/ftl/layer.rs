//! The choice of a translation layer and its parameters.

use serde::Serialize;

/// Translation layer with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Layer with a mapping for every page: [`PageMapped`](super::PageMapped).
    PageMapped {
        /// Choice of the block to clean.
        collection: Collection,
        /// Number of streams that are written to separate clustered blocks; at least one.
        streams: u8,
        /// Destination of cleaned pages.
        isolation: Isolation,
    },
    /// Block-mapped layer whose log blocks take pages of any logical block: [`Fast`](super::Fast).
    Fast {
        /// Number of random log blocks, besides the sequential one.
        log_blocks: u32,
    },
    /// Block-mapped layer whose log blocks take pages of one logical block each: [`Bast`](super::Bast).
    Bast {
        /// Number of log blocks.
        log_blocks: u32,
    },
    /// Block-mapped layer whose log blocks take pages of a few adjacent logical blocks each:
    /// [`Superblock`](super::Superblock).
    Superblock {
        /// Number of log blocks.
        log_blocks: u32,
        /// Number of logical blocks that share a log block.
        width: u32,
    },
}

/// Choice of the block that a page-mapped layer cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// Block with the fewest live pages; of several, the block that reached this number first.
    Greedy,
    /// Block that was filled first.
    Fifo,
}

/// Destination of the pages that a page-mapped layer cleans, named as in NVMe's flexible data placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Cleaned pages of all streams share blocks, which take no pages from the host.
    Initial,
    /// Cleaned pages go to the open block of their stream, together with pages from the host.
    Persistent,
}

/// Distribution of erases over the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WearLevelling {
    /// Free blocks are used in the order in which they were freed.
    None,
    /// The least worn free block is used first.
    Dynamic,
    /// Besides dynamic levelling, static data is moved to the most worn free block when the erase counts
    /// differ by more than `spread`.
    Static {
        /// Difference in erases.
        spread: u32,
    },
}

impl Layer {
    /// Page-mapped layer with greedy collection and one stream.
    pub const GREEDY: Layer = Layer::PageMapped {
        collection: Collection::Greedy,
        streams: 1,
        isolation: Isolation::Persistent,
    };

    /// Returns the number of clustered blocks that the layer needs besides those that the host sees; for a
    /// page-mapped layer, the number in each gang.
    pub fn spare_clusters_min(&self) -> u32 {
        match self {
            Layer::PageMapped { streams, .. } => u32::from(*streams) + 4,
            Layer::Fast { log_blocks } => log_blocks + 4,
            Layer::Bast { log_blocks } | Layer::Superblock { log_blocks, .. } => log_blocks + 3,
        }
    }
}
