//! Status of a mounted volume, for its administrator.
//!
//! The counts by state and by group come from the usage table in memory. [`Volume::status`] waits for no device
//! request: it takes only locks that are not held across one. A status request does not change the volume.

use std::ops::Range;

use super::Volume;
use crate::format::{CHECKPOINT_SLOT_BLOCKS, SegmentState, UsageEntry};
use crate::request::{GroupStatus, LifetimeTotals, SegmentCounts, Space, Status};

impl Volume {
    /// Returns the space of the volume as it will be once the dirty data is committed. Examines
    /// every dirty file.
    pub fn space(&self) -> Space {
        self.space.space()
    }

    /// Returns the space of the volume if every dirty block takes a new block: a lower bound.
    /// Examines no file, so frequent calls are cheap.
    pub fn certain_space(&self) -> Space {
        self.space.certain_space()
    }

    /// Returns the present state of the volume: its policies, space, segments, groups, counters and errors.
    pub fn status(&self) -> Status {
        let metadata = self.metadata.read();
        let entries = metadata.usage.entries();
        let (segments, groups) =
            (count_segments(entries), count_groups(entries, metadata.grouping.centres()));
        let (grouping, victim) = (metadata.grouping.name(), metadata.victim_policy.name());
        drop(metadata); // `space` takes the metadata lock itself.
        Status {
            grouping,
            victim,
            space: self.space.space(),
            segment_blocks: self.superblock.layout().segment_blocks,
            segments,
            groups,
            counters: self.counters(),
            on_error: self.options.on_error,
            has_failed: self.has_failed(),
            remembered: self.remembered(),
        }
    }

    /// Returns the areas of the device that the volume needs, in blocks and ascending: both checkpoint slots, and the segments
    /// that are not free. The superblocks and the locator are not among them. The areas stay right as long as nothing is
    /// written.
    pub fn used_areas(&self) -> Vec<Range<u64>> {
        let layout = self.layout();
        let slot = |at: u64| at..at + CHECKPOINT_SLOT_BLOCKS;
        let mut areas = vec![slot(layout.slots[0])];
        let metadata = self.metadata.read();
        for (segment, entry) in (0..).zip(metadata.usage.entries()) {
            let start = layout.segment_address(segment);
            let end = start + u64::from(layout.segment_blocks);
            match entry.state {
                SegmentState::Clean | SegmentState::Bad => {}
                _ if areas.last().is_some_and(|last| last.end == start) => {
                    areas.last_mut().expect("an area").end = end;
                }
                _ => areas.push(start..end),
            }
        }
        areas.push(slot(layout.slots[1]));
        areas
    }

    /// Returns the totals of all earlier mounts, from the last checkpoint before this mount. The
    /// number of mounts includes this mount if it is writable. Waits while the log is written, so a
    /// caller that must not wait calls this method right after the volume was opened.
    pub fn lifetime_before(&self) -> LifetimeTotals {
        let log = self.log.lock();
        LifetimeTotals {
            mount_count: log.mount_count,
            user_bytes_written: log.user_bytes_before,
            device_bytes_written: self.wear.device_bytes_before(),
        }
    }
}

/// Counts the segments by state.
fn count_segments(entries: &[UsageEntry]) -> SegmentCounts {
    let mut counts = SegmentCounts::default();
    for entry in entries {
        let count = match entry.state {
            SegmentState::Clean => &mut counts.clean,
            SegmentState::Open => &mut counts.open,
            SegmentState::Sealed => &mut counts.sealed,
            SegmentState::Drained => &mut counts.drained,
            SegmentState::Bad => &mut counts.bad,
            SegmentState::InPlace => &mut counts.in_place,
        };
        *count += 1;
    }
    counts
}

/// Returns the groups that have Open or Sealed segments, in the order of their numbers.
fn count_groups(entries: &[UsageEntry], centres: &[f64]) -> Vec<GroupStatus> {
    let mut groups: Vec<GroupStatus> = Vec::new();
    let held =
        |entry: &&UsageEntry| matches!(entry.state, SegmentState::Open | SegmentState::Sealed);
    for entry in entries.iter().filter(held) {
        let at = match groups.binary_search_by_key(&entry.head, |group| group.head) {
            Ok(at) => at,
            Err(at) => {
                let centre = entry.data_group().and_then(|group| centres.get(group.index()));
                let group = GroupStatus {
                    head: entry.head,
                    segments: 0,
                    open_segments: 0,
                    live_blocks: 0,
                    centre: centre.copied(),
                };
                groups.insert(at, group);
                at
            }
        };
        let group = &mut groups[at];
        group.segments += 1;
        group.open_segments += u32::from(entry.state == SegmentState::Open);
        group.live_blocks += u64::from(entry.live_blocks);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Head;

    #[test]
    fn segments_are_counted_by_state_and_group() {
        let entry = |state, head, live_blocks| UsageEntry {
            state,
            head: Head(head),
            live_blocks,
            ..UsageEntry::NEW
        };
        let entries = [
            entry(SegmentState::Sealed, 2, 7),
            entry(SegmentState::Clean, 2, 0),
            entry(SegmentState::Open, 0, 3),
            entry(SegmentState::Open, 2, 5),
            entry(SegmentState::Drained, 1, 0),
        ];
        let counts = count_segments(&entries);
        assert_eq!(
            counts,
            SegmentCounts { clean: 1, open: 2, sealed: 1, drained: 1, bad: 0, in_place: 0 }
        );
        let group = |head, segments, open_segments, live_blocks| GroupStatus {
            head: Head(head),
            segments,
            open_segments,
            live_blocks,
            centre: None,
        };
        let expected = [group(0, 1, 1, 3), group(2, 2, 1, 12)];
        assert_eq!(count_groups(&entries, &[]), expected);
        let centred = count_groups(&entries, &[0.5, 0.25]);
        assert_eq!(
            centred.iter().map(|group| group.centre).collect::<Vec<_>>(),
            [None, Some(0.25)]
        );
    }
}
