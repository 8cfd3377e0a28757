//! Results of looking inside a volume, and of work that an administrator asks for.

use crate::format::{ErrorKind, Head, Inode, Key, Reservation, SegmentState};

/// Blocks of a file that follow each other on the device as in the file, within one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// First block of the file.
    pub block: u32,
    /// Number of blocks, at least one.
    pub count: u32,
    /// Device address of the first block.
    pub address: u64,
    /// The segment; `None` for an address outside of all segments, which only damage causes.
    pub segment: Option<RunSegment>,
}

/// The segment of a run, as it was a moment after the run was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSegment {
    /// Number of the segment.
    pub number: u32,
    /// Head that wrote the segment.
    pub head: Head,
    /// State of the segment.
    pub state: SegmentState,
}

/// A part of the map of a file: see [`Volume::file_blocks`](crate::Volume::file_blocks).
#[derive(Clone, Debug)]
pub struct FileBlocks {
    /// Attributes of the file.
    pub inode: Inode,
    /// Runs of this part, ascending by block.
    pub runs: Vec<BlockRun>,
    /// Ranges of reserved blocks, ascending. The first part has them, as many as were asked for.
    pub reserved: Vec<Reservation>,
    /// Number of blocks in memory that are not written yet.
    pub dirty_blocks: u64,
    /// First block of the next part; `None` after the last part.
    pub next: Option<u32>,
}

/// Writes to a file or to a part of it, as the tree remembers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHistory {
    /// A regular file.
    File {
        /// Inode number.
        ino: u64,
        /// Number of block writes since the file was made; for an inline file, of writes of its content.
        write_count: u64,
        /// Time of the last block write, in ticks.
        modified: u32,
        /// Length in bytes.
        size: u64,
    },
    /// The mapped blocks among 32 neighbouring ones of a file.
    Range {
        /// Inode number.
        ino: u64,
        /// First of the 32 blocks.
        block: u32,
        /// Number of mapped blocks.
        mapped: u32,
        /// Sum of the blocks' write counts. A grouping policy that keeps more than a count in a block's history counts
        /// each block up to 7.
        write_count_sum: u64,
        /// Sum of the times of their last writes, in ticks.
        modified_sum: u64,
    },
}

/// Result of one step through the histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryStep {
    /// Key from which the next step goes on; `None` at the end.
    pub next: Option<Key>,
    /// `true` if a node could not be read, whose files are left out.
    pub is_damaged: bool,
}

/// Time on the write clock, which counts what users write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTime {
    /// Now, in ticks.
    pub ticks: u32,
    /// Number of blocks in a tick.
    pub tick_blocks: u64,
}

/// Damage that a scrub has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubDamage {
    /// Kind of the damage.
    pub kind: ErrorKind,
    /// Block address; the inode number for a damaged item.
    pub at: u64,
    /// The inode number of the file that the block belongs to, and the block of the file, if it is data.
    pub owner: Option<(u64, u32)>,
}

/// Numbers of blocks that a scrub has verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Blocks of files with a checksum.
    pub data_blocks: u64,
    /// Blocks of files that are overwritten in place and have no checksum: they can be read.
    pub unverified_blocks: u64,
    /// Nodes of the tree.
    pub node_blocks: u64,
    /// Blocks of summaries in the log.
    pub summary_blocks: u64,
    /// Copies of the superblock, and blocks of checkpoint slots.
    pub fixed_blocks: u64,
}

impl ScrubCounts {
    /// Returns the number of all blocks.
    pub fn all(&self) -> u64 {
        self.live() + self.summary_blocks + self.fixed_blocks
    }

    /// Returns the number of blocks that the tree refers to, and of its nodes.
    pub fn live(&self) -> u64 {
        self.data_blocks + self.unverified_blocks + self.node_blocks
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.data_blocks += other.data_blocks;
        self.unverified_blocks += other.unverified_blocks;
        self.node_blocks += other.node_blocks;
        self.summary_blocks += other.summary_blocks;
        self.fixed_blocks += other.fixed_blocks;
    }
}

/// Number of blocks that a step of a scrub reads at most, besides those that are read again because they were wrong.
pub const SCRUB_STEP_BLOCKS: usize = 288;

/// Result of one step of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStep {
    /// Blocks that the step has verified, or tried to.
    pub counts: ScrubCounts,
    /// Damage that it has found.
    pub damage: Vec<ScrubDamage>,
}

/// Result of a round of cleaning that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanedRound {
    /// Number of segments that were cleaned.
    pub segments: u32,
    /// Number of data blocks that were moved.
    pub moved_blocks: u64,
    /// Number of nodes that the next checkpoint moves.
    pub moved_nodes: u64,
    /// Number of bytes written to the device.
    pub device_bytes: u64,
    /// Number of blocks that were gained: those of the segments, without what was written and the nodes that will be.
    pub gained_blocks: u64,
}

/// Result of putting a part of a file in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragmentedPart {
    /// Number of blocks that were looked at.
    pub blocks: u64,
    /// Number of blocks among them that were moved.
    pub moved_blocks: u64,
    /// Number of requests that read these blocks before, if windows of 4 MiB are looked up at once, and gaps of at most
    /// 64 KiB are read along.
    pub requests_before: u64,
    /// Number of requests that read them afterwards.
    pub requests_after: u64,
    /// Number of bytes written to the device, for cleaning and checkpoints as well.
    pub device_bytes: u64,
    /// First block of the next part; `None` at the end of the file.
    pub next: Option<u32>,
}

/// A checkpoint that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenCheckpoint {
    /// Number of the checkpoint.
    pub number: u64,
    /// Bytes of data that was dirty.
    pub data_bytes: u64,
    /// Bytes of nodes and of the checkpoint record.
    pub metadata_bytes: u64,
    /// Bytes of summaries and deltas.
    pub summary_bytes: u64,
    /// All bytes written to the device.
    pub device_bytes: u64,
    /// Number of segments that are Clean now and were Drained before.
    pub released_segments: u32,
}
