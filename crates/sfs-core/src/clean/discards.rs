//! Discards: tells the device which segments are Clean, so that it need not preserve their content (informed cleaning;
//! Rajimwale et al., section 3.5).
//!
//! Only Clean segments are discarded, in short requests, so that no sync waits long. A discard is a hint and
//! never fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::BLOCK_SIZE;

use crate::format::{Layout, SegmentState};
use crate::health::OpenSuperblock;
use crate::io::VolumeDevice;
use crate::log::LogState;
use crate::metadata::MetadataStore;
use crate::request::TrimRange;

/// Maximum length of one request in bytes, or one segment if that is longer: the log waits for the request.
const DISCARD_LEN_MAX: usize = 64 << 20;

/// Progress of a request to discard all Clean segments of a range.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// Next segment to look at.
    next: u32,
    /// Segment after the last one.
    end: u32,
    /// Least number of neighbouring Clean segments that are discarded.
    least: u32,
    /// Segment after the run of Clean segments that `next` is in; not above `next` if it is in none.
    run_end: u32,
}

impl Trim {
    /// Returns a trim of the segments of `layout` that lie within `range` as a whole.
    pub(crate) fn new(layout: &Layout, range: &TrimRange) -> Self {
        let len = segment_len(layout);
        let area = layout.segment_address(0) * BLOCK_SIZE as u64;
        let count = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).min(layout.segment_count);
        let end = range.start.saturating_add(range.len).saturating_sub(area) / len;
        Self {
            next: count(range.start.saturating_sub(area).div_ceil(len)),
            end: count(end),
            least: u32::try_from(range.least.div_ceil(len)).unwrap_or(u32::MAX).max(1),
            run_end: 0,
        }
    }

    /// Returns the first byte of the device that the trim has not looked at.
    pub(crate) fn position(&self, layout: &Layout) -> u64 {
        layout.segment_address(0) * BLOCK_SIZE as u64 + u64::from(self.next) * segment_len(layout)
    }

    /// Takes up to `count_max` neighbouring segments of a run that is long enough; `None` at the end.
    fn take(&mut self, is_clean: impl Fn(u32) -> bool, count_max: u32) -> Option<(u32, u32)> {
        while self.next < self.end {
            let first = self.next;
            if !is_clean(first) {
                self.next += 1;
                continue;
            }
            if self.run_end <= first {
                let run = (first..self.end).take_while(|segment| is_clean(*segment)).count() as u32;
                self.run_end = first + run;
                if run < self.least {
                    self.next = self.run_end;
                    continue;
                }
            }
            let last = self.run_end.min(first.saturating_add(count_max));
            let count = (first..last).take_while(|segment| is_clean(*segment)).count() as u32;
            self.next = first + count;
            return Some((first, count));
        }
        None
    }
}

fn segment_len(layout: &Layout) -> u64 {
    u64::from(layout.segment_blocks) * BLOCK_SIZE as u64
}

/// Queue of the Clean segments that have not been discarded.
pub(crate) struct Discards {
    /// Segments that became Clean and were not discarded yet.
    segments: Mutex<BTreeSet<u32>>,
    is_enabled: bool,
    superblock: Arc<OpenSuperblock>,
    metadata: Arc<MetadataStore>,
    io: Arc<VolumeDevice>,
}

impl Discards {
    /// Returns an empty queue. Unless `is_enabled`, no segment is ever discarded.
    pub(crate) fn new(
        is_enabled: bool,
        superblock: Arc<OpenSuperblock>,
        metadata: Arc<MetadataStore>,
        io: Arc<VolumeDevice>,
    ) -> Self {
        Self { segments: Mutex::default(), is_enabled, superblock, metadata, io }
    }

    /// Queues segments that have become Clean.
    pub(crate) fn add(&self, segments: &[u32]) {
        if self.is_enabled {
            self.segments.lock().extend(segments);
        }
    }

    /// Discards the next run of neighbouring segments; returns whether there was one. The caller holds the log, so the
    /// segments stay Clean.
    pub(crate) fn discard_run(&self, _log: &mut LogState) -> bool {
        let Some((first, count)) = self.take_run() else { return false };
        self.io.discard_segments(&self.superblock.layout(), first, count);
        true
    }

    /// Discards the next run of Clean segments at or after `trim`'s position, whether they were discarded before or
    /// not. Returns the number of its bytes; `None` at the end. The caller holds the log, so the segments stay Clean.
    pub(crate) fn trim_run(&self, _log: &mut LogState, trim: &mut Trim) -> Option<u64> {
        let layout = &self.superblock.layout();
        let (first, count) = {
            let metadata = self.metadata.read();
            let is_clean = |segment| metadata.usage.entry(segment).state == SegmentState::Clean;
            trim.take(is_clean, self.count_max())?
        };
        let mut queued = self.segments.lock();
        for segment in first..first + count {
            queued.remove(&segment);
        }
        drop(queued);
        self.io.discard_segments(layout, first, count);
        Some(u64::from(count) * segment_len(layout))
    }

    /// Returns the maximum number of segments of one request.
    fn count_max(&self) -> u32 {
        ((DISCARD_LEN_MAX as u64 / segment_len(&self.superblock.layout())) as u32).max(1)
    }

    /// Takes the first run of queued segments that are still Clean. A segment that was opened since
    /// then is overwritten anyway.
    fn take_run(&self) -> Option<(u32, u32)> {
        let count_max = self.count_max();
        let metadata = self.metadata.read();
        let mut segments = self.segments.lock();
        // The volume may have shrunk since.
        let entry = |segment: u32| metadata.usage.entries().get(segment as usize);
        let is_clean = |segment| entry(segment).is_some_and(|e| e.state == SegmentState::Clean);
        let first = std::iter::from_fn(|| segments.pop_first()).find(|first| is_clean(*first))?;
        let mut count = 1;
        while count < count_max && segments.contains(&(first + count)) && is_clean(first + count) {
            segments.remove(&(first + count));
            count += 1;
        }
        Some((first, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(range: TrimRange, clean: &[u32]) -> Vec<(u32, u32)> {
        let layout = Layout::new(4096, 32, 0).expect("a layout");
        let mut trim = Trim::new(&layout, &range);
        std::iter::from_fn(|| trim.take(|segment| clean.contains(&segment), 2)).collect()
    }

    #[test]
    fn a_trim_takes_whole_segments_of_long_enough_runs() {
        const LEN: u64 = 32 * 4096;
        let all = TrimRange { start: 0, len: u64::MAX, least: 0 };
        let clean = [1, 3, 4, 5, 9];
        assert_eq!(runs(all, &clean), [(1, 1), (3, 2), (5, 1), (9, 1)]);
        assert_eq!(runs(TrimRange { least: 2 * LEN, ..all }, &clean), [(3, 2), (5, 1)]);
        assert_eq!(runs(TrimRange { least: u64::MAX, ..all }, &clean), []);
        let area = Layout::new(4096, 32, 0).expect("a layout").segment_address(0) * 4096;
        let part = TrimRange { start: area + 3 * LEN + 1, len: 2 * LEN - 1, least: 0 };
        assert_eq!(runs(part, &clean), [(4, 1)], "neither segment 3 nor 5 is whole in the range");
        assert_eq!(runs(TrimRange { start: u64::MAX, len: u64::MAX, least: 0 }, &clean), []);
    }
}
