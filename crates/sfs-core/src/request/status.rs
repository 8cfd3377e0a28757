//! State of a volume for its users and its administrator: space, segments, groups, counters.

use sfs_device::BLOCK_SIZE;

use super::options::ErrorReaction;
use crate::format::{Head, Remembered};

/// The space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Blocks for files and metadata in total.
    pub total_blocks: u64,
    /// Free blocks, with those that only metadata gets.
    pub free_blocks: u64,
    /// Free blocks that data can have.
    pub available_blocks: u64,
    /// Number of files of all kinds, with those that wait to be deleted. A volume made by an older program states the
    /// number of files that it ever had.
    pub files: u64,
}

impl Space {
    /// Returns the bytes that data can still have.
    pub fn available_bytes(&self) -> u64 {
        self.available_blocks.saturating_mul(BLOCK_SIZE as u64)
    }
}

/// Counts since the volume was opened, in the unit that the name ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that users wrote.
    pub user_bytes_written: u64,
    /// All bytes written to the device.
    pub device_bytes_written: u64,
    /// Bytes of file data written for users.
    pub data_bytes: u64,
    /// Bytes of file data that the cleaner moved.
    pub cleaning_bytes: u64,
    /// Bytes of tree nodes and checkpoints.
    pub metadata_bytes: u64,
    /// Bytes of summaries and deltas.
    pub summary_bytes: u64,
    /// Flushes that made something durable.
    pub commits: u64,
    /// Requests to make something durable; several may share one flush.
    pub syncs: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Times that a writer had to clean or to wait for a checkpoint for lack of segments.
    pub stalls: u64,
    /// Tree nodes read from the device.
    pub nodes_read: u64,
}

/// The state of a volume at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Name of the grouping policy.
    pub grouping: &'static str,
    /// Name of the victim policy.
    pub victim: &'static str,
    /// Space of the volume.
    pub space: Space,
    /// Blocks in a segment.
    pub segment_blocks: u32,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// Groups that have segments, by number.
    pub groups: Vec<GroupStatus>,
    /// Counts since the volume was opened.
    pub counters: Counters,
    /// Reaction to damage.
    pub on_error: ErrorReaction,
    /// `true` if the volume has stopped writing.
    pub has_failed: bool,
    /// Errors of this mount and earlier ones.
    pub remembered: Remembered,
}

/// Segments by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Clean segments: may be opened.
    pub clean: u32,
    /// Open segments: heads append to them.
    pub open: u32,
    /// Sealed segments: full or closed.
    pub sealed: u32,
    /// Drained segments: without live blocks, but not yet released.
    pub drained: u32,
    /// Bad segments: excluded from use.
    pub bad: u32,
    /// InPlace segments: data that is overwritten in place.
    pub in_place: u32,
}

/// The segments of one head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStatus {
    /// The head, which tells the group: tree nodes, or the data of a group.
    pub head: Head,
    /// Open and Sealed segments.
    pub segments: u32,
    /// Open segments.
    pub open_segments: u32,
    /// Live blocks in the segments.
    pub live_blocks: u64,
    /// Centre of the group, if the grouping policy has centres (see [`crate::policy::GroupingPolicy::centres`]).
    pub centre: Option<f64>,
}

/// Totals over all mounts of a volume, from its last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeTotals {
    /// Number of mounts for writing.
    pub mount_count: u64,
    /// Bytes that users wrote.
    pub user_bytes_written: u64,
    /// Bytes that SFS wrote to the device.
    pub device_bytes_written: u64,
}
