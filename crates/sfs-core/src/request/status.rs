//! State of a volume for its users and its administrator: space, segments, groups, counters.

use sfs_device::BLOCK_SIZE;

use super::options::ErrorReaction;
use crate::format::{Head, Remembered, SegmentState, WearLedger};

/// The space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total number of blocks for files and metadata.
    pub total_blocks: u64,
    /// Number of free blocks, including the blocks that only metadata gets.
    pub free_blocks: u64,
    /// Number of free blocks available to data.
    pub available_blocks: u64,
    /// Number of files of all kinds, including files that wait to be deleted. A volume made by an
    /// older program states the number of files that it ever had.
    pub files: u64,
}

impl Space {
    /// Returns the number of bytes available to data.
    pub fn available_bytes(&self) -> u64 {
        self.available_blocks.saturating_mul(BLOCK_SIZE as u64)
    }
}

/// Counts since the volume was opened, in the unit that the name ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of bytes that users wrote.
    pub user_bytes_written: u64,
    /// Number of all bytes written to the device.
    pub device_bytes_written: u64,
    /// Number of bytes of file data written for users.
    pub data_bytes: u64,
    /// Number of bytes of file data that the cleaner moved.
    pub cleaning_bytes: u64,
    /// Number of bytes of file data that defragmentation moved.
    pub defragmentation_bytes: u64,
    /// Number of bytes of tree nodes and checkpoints.
    pub metadata_bytes: u64,
    /// Number of bytes of summaries and deltas.
    pub summary_bytes: u64,
    /// Number of flushes that made changes durable.
    pub commits: u64,
    /// Number of requests to make changes durable; several requests may share one flush.
    pub syncs: u64,
    /// Number of checkpoints written.
    pub checkpoints: u64,
    /// Number of segments cleaned.
    pub segments_cleaned: u64,
    /// Number of times that a writer had to clean or to wait for a checkpoint for lack of segments.
    pub stalls: u64,
    /// Number of tree nodes read from the device.
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
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Numbers of segments by state.
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

/// Numbers of segments by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Number of Clean segments, which may be opened.
    pub clean: u32,
    /// Number of Open segments, to which heads append.
    pub open: u32,
    /// Number of Sealed segments, to which no head appends any more.
    pub sealed: u32,
    /// Number of Drained segments, which have no live blocks but are not released yet.
    pub drained: u32,
    /// Number of Bad segments, which are excluded from use.
    pub bad: u32,
    /// Number of InPlace segments, whose data is overwritten in place.
    pub in_place: u32,
}

/// The state of one segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentStatus {
    /// State of the segment.
    pub state: SegmentState,
    /// Head that wrote the segment; `None` unless the segment is Open, Sealed or InPlace.
    pub head: Option<Head>,
    /// Number of live blocks.
    pub live_blocks: u32,
    /// Mean modification time of the live data blocks, in ticks; `None` without live data in
    /// the log.
    pub modified: Option<u32>,
    /// Hotness of the live data, in writes a tick (SFS, section 3.2); `None` likewise.
    pub hotness: Option<f64>,
    /// Number of erase cycles since the volume was made.
    pub erases: u16,
}

/// The states of neighbouring segments at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentsPart {
    /// Number of all segments of the volume.
    pub segment_count: u32,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Address of the first segment of the volume.
    pub segment_first: u64,
    /// Time on the write clock, in ticks.
    pub now: u32,
    /// Log2 of the number of blocks in a tick.
    pub tick_blocks_log2: u32,
    /// The segments of the part.
    pub segments: Vec<SegmentStatus>,
}

/// The segments of one head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStatus {
    /// The head, which tells the group: tree nodes, or the data of a group.
    pub head: Head,
    /// Number of Open and Sealed segments.
    pub segments: u32,
    /// Number of Open segments.
    pub open_segments: u32,
    /// Number of live blocks in the segments.
    pub live_blocks: u64,
    /// Centre of the group, if the grouping policy has centres (see [`crate::policy::GroupingPolicy::centres`]).
    pub centre: Option<f64>,
}

/// Wear of the device since the volume was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wear {
    /// Bytes by origin and by day.
    pub ledger: WearLedger,
    /// Number of bytes written to the device; more than the ledger has if a program without a ledger has written, too.
    pub device_bytes: u64,
    /// Number of bytes of the volume.
    pub volume_bytes: u64,
    /// Erase cycles of the segments.
    pub erases: Erases,
}

/// Erase cycles: numbers of times that segments were taken into use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erases {
    /// Number of segments.
    pub segments: u32,
    /// Sum over all segments.
    pub total: u64,
    /// Count of the most used segment; see [`ERASES_MAX`](crate::format::ERASES_MAX).
    pub max: u16,
    /// Number of the most used segment.
    pub max_segment: u32,
}

/// Totals over all mounts of a volume, from its last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeTotals {
    /// Number of mounts for writing.
    pub mount_count: u64,
    /// Number of bytes that users wrote.
    pub user_bytes_written: u64,
    /// Number of bytes that SFS wrote to the device.
    pub device_bytes_written: u64,
}
