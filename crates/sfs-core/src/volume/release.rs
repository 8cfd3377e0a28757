//! Discards: the device is told what holds nothing, so that it need not keep it (informed cleaning;
//! Rajimwale et al., section 3.5).
//!
//! Owns: which segments the device has not been told of.
//! Promises: only what is Clean is discarded; one request at a time, so that no sync waits for many.
//! Never: fails; it is a hint, and a device that does not take it loses nothing.

use super::Volume;
use crate::format::SegmentState;
use crate::log::Log;

/// Segments that one request discards at most.
const RUN_MAX: u32 = 64;

impl Volume {
    /// `segments` have become Clean.
    pub(super) fn note_released(&self, segments: &[u32]) {
        if self.options.discard {
            self.discards.lock().extend(segments);
        }
    }

    /// Discards the next segments that are neighbours. Who has the log knows that they stay Clean.
    /// Says whether there were any.
    pub(super) fn discard_some(&self, _log: &mut Log) -> bool {
        let Some((first, count)) = self.take_run() else { return false };
        self.discard_run(first, count);
        true
    }

    /// Discards `count` segments from `first` on.
    pub(super) fn discard_run(&self, first: u32, count: u32) {
        let layout = &self.superblock.layout;
        let blocks = u64::from(count) * u64::from(layout.segment_blocks);
        let _ = self.device.discard(layout.segment_address(first), blocks);
    }

    /// The first run of segments to discard. What has been opened meanwhile is written over anyway.
    fn take_run(&self) -> Option<(u32, u32)> {
        let meta = self.meta.read();
        let mut waiting = self.discards.lock();
        let is_clean = |segment: u32| meta.usage.entry(segment).state == SegmentState::Clean;
        let first = std::iter::from_fn(|| waiting.pop_first()).find(|first| is_clean(*first))?;
        let mut count = 1;
        while count < RUN_MAX && waiting.contains(&(first + count)) && is_clean(first + count) {
            waiting.remove(&(first + count));
            count += 1;
        }
        Some((first, count))
    }
}
