//! Cleaning: when, and what it does with what lives.
//!
//! Owns: nothing of its own.
//! Promises: the reserve is clean before a user's block opens a segment.
//! Never: chooses the victim.

use sfs_core::format::{History, SegmentState};

use super::counters::bin;
use super::{Simulation, Writing};

impl Simulation {
    /// Cleans until the reserve is clean. Before every block of a user: the cleaner itself opens
    /// segments, and a user who fills those has cleaned for none.
    pub(super) fn make_room(&mut self) {
        while self.log.clean_count() < self.log.reserve {
            self.clean();
        }
    }

    /// Empties the segment that is most worth it.
    pub(super) fn clean(&mut self) {
        let victim = self.victim();
        let now = self.now();
        let entry = self.log.take(victim);
        self.grouping.note_cleaning(&entry, now);
        let segment_blocks = self.log.segment_blocks();
        self.counters.victims += 1;
        self.counters.histogram_cleaning[bin(entry.live_blocks, segment_blocks)] += 1;
        let of_group =
            &mut self.counters.group_victims[usize::from(entry.data_group().unwrap_or(0) % 8)];
        of_group.0 += 1;
        of_group.1 += u64::from(entry.live_blocks);
        if entry.live_blocks > 0 {
            let first = victim * segment_blocks;
            for slot in first..first + segment_blocks {
                if let Some((block, history)) = self.log.live_at(slot) {
                    self.copy_out(block, history, entry.data_group());
                }
            }
        }
        self.log.free(victim);
    }

    fn copy_out(&mut self, block: u32, history: History, group: Option<u8>) {
        if self.capacity() > 0 && self.buffering.writing == Writing::Deferred {
            self.counters.cleaning_reads += u64::from(self.buffer.clean(block));
            return;
        }
        if self.buffer.is_dirty(block) {
            // What the user wrote goes to the log soon; this copy is not needed there.
            self.log.leave(block);
            return;
        }
        self.counters.cleaning_reads += 1;
        let candidate = self.candidate(block, Some(history), group, true);
        let group = self.grouping.group(&candidate, self.now());
        self.write_cleaned_to(block, history, group, group);
    }

    fn victim(&self) -> u32 {
        let now = self.now();
        let segment_blocks = self.log.segment_blocks();
        let mut best = (0.0, None);
        for (segment, entry) in (0..).zip(self.log.entries()) {
            if entry.state == SegmentState::Sealed {
                let worth = self.victims.score(entry, segment_blocks, now);
                if worth > best.0 {
                    best = (worth, Some(segment));
                }
            }
        }
        best.1.expect("a volume that is not full has a segment worth cleaning")
    }
}
