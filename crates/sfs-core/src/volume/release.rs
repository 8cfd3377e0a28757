//! Release: how segments in which nothing lives become Clean without a checkpoint, and how the device
//! is told of those that are, so that it need not keep what they held (informed cleaning; Rajimwale
//! et al., section 3.5).
//!
//! Owns: the order of flush and delta in which Drained segments are let go (decision 0012), and which
//! of the Clean ones the device has not been told of.
//! Promises: only what is Clean is discarded; one short request at a time, so that no sync waits long.
//! Never: fails for a discard; it is a hint, and a device that does not take it loses nothing.

use sfs_device::BLOCK_SIZE;

use super::Volume;
use super::commit::Request;
use super::space::unless_full;
use crate::Result;
use crate::format::SegmentState;
use crate::log::Log;

/// Bytes that one request discards at most, or one segment if that is longer: the log waits for it.
const DISCARD_LEN_MAX: usize = 64 << 20;

impl Volume {
    /// Makes Drained segments Clean, as far as no checkpoint is needed for it: a delta says so. Says
    /// whether there are more than before.
    pub(super) fn release(&self, log: &mut Log) -> Result<bool> {
        let count = || {
            let meta = self.meta.read();
            (meta.usage.clean_count(), meta.usage.releasable_count())
        };
        let (before, drained) = count();
        // The first batch may have to say what drained them.
        for _ in 0..2 {
            if count().0 > before || drained == 0 {
                break;
            }
            self.flush(log)?;
            unless_full(self.commit_some(log, &Request::release()).map(drop))?;
        }
        Ok(count().0 > before)
    }

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
        let segment_len = self.superblock.layout.segment_blocks as usize * BLOCK_SIZE;
        let most = (DISCARD_LEN_MAX / segment_len) as u32;
        let meta = self.meta.read();
        let mut waiting = self.discards.lock();
        let is_clean = |segment: u32| meta.usage.entry(segment).state == SegmentState::Clean;
        let first = std::iter::from_fn(|| waiting.pop_first()).find(|first| is_clean(*first))?;
        let mut count = 1;
        while count < most && waiting.contains(&(first + count)) && is_clean(first + count) {
            waiting.remove(&(first + count));
            count += 1;
        }
        Some((first, count))
    }
}
