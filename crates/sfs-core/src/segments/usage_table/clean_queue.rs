//! The Clean segments in the order of their allocation: least recently freed first, then by number.
//!
//! The queue holds four bytes for a segment, and reads the stamps in the entries of the table,
//! which do not change while a segment is Clean. Segments become Clean in about the order in which
//! they were freed, so an insertion moves few other numbers.

use std::collections::VecDeque;

use crate::format::{SegmentState, UsageEntry};

/// Numbers of the Clean segments, the next to be opened first.
pub(super) struct CleanQueue(VecDeque<u32>);

impl CleanQueue {
    /// Returns the queue of the Clean segments among `entries`.
    pub(super) fn new(entries: &[UsageEntry]) -> Self {
        let numbered = (0u32..).zip(entries);
        let clean = numbered.filter(|(_, entry)| entry.state == SegmentState::Clean);
        let mut segments: Vec<u32> = clean.map(|(segment, _)| segment).collect();
        segments.sort_unstable_by_key(|segment| freed(entries, *segment));
        segments.shrink_to_fit();
        Self(segments.into())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the segments in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Returns the segment at `position`.
    pub(super) fn get(&self, position: usize) -> Option<u32> {
        self.0.get(position).copied()
    }

    /// Takes the first segment out of the queue.
    pub(super) fn pop_first(&mut self) -> Option<u32> {
        self.0.pop_front()
    }

    /// Adds a segment, whose entry has its stamp.
    pub(super) fn insert(&mut self, entries: &[UsageEntry], segment: u32) {
        self.0.insert(self.position(entries, segment), segment);
    }

    /// Removes a segment, whose entry still has its stamp; returns whether the queue had it.
    pub(super) fn remove(&mut self, entries: &[UsageEntry], segment: u32) -> bool {
        let position = self.position(entries, segment);
        let is_there = self.get(position) == Some(segment);
        if is_there {
            self.0.remove(position);
        }
        is_there
    }

    fn position(&self, entries: &[UsageEntry], segment: u32) -> usize {
        let key = freed(entries, segment);
        self.0.partition_point(|other| freed(entries, *other) < key)
    }
}

/// Returns the key of the order.
fn freed(entries: &[UsageEntry], segment: u32) -> (u64, u32) {
    (entries[segment as usize].stamp, segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_leave_in_the_order_in_which_they_were_freed() {
        let entry = |stamp| UsageEntry { stamp, ..UsageEntry::NEW };
        let mut entries: Vec<_> = [7, 3, 9, 3, 5].map(entry).into();
        entries[4].state = SegmentState::Sealed;
        let mut queue = CleanQueue::new(&entries);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [1, 3, 0, 2]);
        queue.insert(&entries, 4);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [1, 3, 4, 0, 2]);
        assert!(queue.remove(&entries, 3) && !queue.remove(&entries, 3));
        assert_eq!((queue.pop_first(), queue.get(0), queue.len()), (Some(1), Some(4), 3));
    }
}
