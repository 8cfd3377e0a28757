//! Hotness of blocks, files and segments (SFS, section 3.2), for the policies that use it.

use crate::format::{SegmentState, UsageEntry};

/// Returns the write count over the ticks since the last write. A write within the current tick counts as
/// one tick ago.
pub(super) fn hotness(write_count: u64, modified: u32, now: u32) -> f64 {
    write_count as f64 / f64::from(now.saturating_sub(modified).max(1))
}

/// Returns the hotness of a segment: the mean write count of its live blocks over their mean age.
pub fn segment_hotness(segment: &UsageEntry, now: u32) -> f64 {
    let age_sum = (u64::from(segment.live_blocks) * u64::from(now))
        .saturating_sub(segment.modified_sum)
        .max(1);
    segment.write_count_sum as f64 / age_sum as f64
}

/// Returns whether the segment is Sealed and has live file data, so that it has a hotness.
pub(super) fn holds_data(segment: &UsageEntry) -> bool {
    segment.state == SegmentState::Sealed
        && segment.live_blocks > 0
        && segment.data_group().is_some()
}
