//! The state of each segment, in parts, for maps of the volume.

use super::Volume;
use crate::format::{Head, SegmentState, UsageEntry};
use crate::policy::segment_hotness;
use crate::request::{SegmentStatus, SegmentsPart};

impl Volume {
    /// Returns the state of at most `count_max` segments from `first` on. Holds the metadata lock for less than a
    /// microsecond for each ten segments; a caller that wants all segments of a large volume asks for parts, between
    /// which the volume may change.
    pub fn segments(&self, first: u32, count_max: usize) -> SegmentsPart {
        let layout = self.layout();
        let begin = (first as usize).min(layout.segment_count as usize);
        let len = count_max.min(layout.segment_count as usize - begin);
        let mut segments = Vec::with_capacity(len);
        let metadata = self.metadata.read();
        let now = metadata.usage.clock.now();
        let entries = metadata.usage.entries().iter().skip(begin).take(len);
        segments.extend(entries.map(|entry| status_of(entry, now)));
        SegmentsPart {
            segment_count: layout.segment_count,
            segment_blocks: layout.segment_blocks,
            segment_first: layout.segment_first,
            now,
            tick_blocks_log2: self.superblock().tick_shift,
            segments,
        }
    }

    /// Has the cleaning rounds of this volume reported to `observer`. The first observer stays.
    pub fn observe_cleaning(&self, observer: std::sync::Arc<dyn crate::CleaningObserver>) {
        self.space.observe_cleaning(observer);
    }
}

fn status_of(entry: &UsageEntry, now: u32) -> SegmentStatus {
    let is_used =
        matches!(entry.state, SegmentState::Open | SegmentState::Sealed | SegmentState::InPlace);
    let has_history = is_used && entry.head != Head::METADATA && entry.live_blocks > 0;
    let modified = entry.modified_sum / u64::from(entry.live_blocks.max(1));
    SegmentStatus {
        state: entry.state,
        head: is_used.then_some(entry.head),
        live_blocks: entry.live_blocks,
        modified: has_history.then_some(modified as u32),
        hotness: has_history.then(|| segment_hotness(entry, now)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::RamDevice;

    use crate::fixture::{BLOCKS, create, new_volume, put};

    #[test]
    fn parts_of_the_segments_make_up_the_whole() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let file = create(&volume, "f");
        put(&volume, file, 0, 100, 1).expect("there is room");
        volume.sync_all().expect("RAM");
        let all = volume.segments(0, usize::MAX);
        assert_eq!(all.segments.len(), all.segment_count as usize);
        let mut parts = Vec::new();
        while (parts.len() as u32) < all.segment_count {
            parts.extend(volume.segments(parts.len() as u32, 7).segments);
        }
        assert_eq!(parts, all.segments);
        assert!(volume.segments(all.segment_count, 7).segments.is_empty());
        assert!(volume.segments(u32::MAX, usize::MAX).segments.is_empty());
        // Every live block is in the status, and the segments are counted by state.
        let status = volume.status();
        let live: u64 = all.segments.iter().map(|segment| u64::from(segment.live_blocks)).sum();
        assert_eq!(live, status.groups.iter().map(|group| group.live_blocks).sum::<u64>());
        assert!(live >= 100);
        let clean = all.segments.iter().filter(|segment| segment.head.is_none()).count();
        assert_eq!(clean as u32, status.segments.clean + status.segments.drained);
        let hot = all.segments.iter().filter_map(|segment| segment.hotness);
        assert!(hot.clone().count() > 0 && hot.clone().all(|hotness| hotness > 0.0));
    }
}
