//! Greedy-Space (FAST 2009, section 4): the segment with the most free blocks is filled up.
//!
//! A binary heap holds the InPlace segments with free blocks. The heap takes 12 bytes for each segment of
//! the volume; the tree of the paper takes 36.

use std::cmp::Reverse;

use super::scheme::{FreeSpaceView, Scheme};

/// Number of bytes of state for each segment.
#[cfg(test)]
pub(super) const ENTRY_LEN: usize = size_of::<HeapSlot>() + size_of::<u32>();

/// Heap position of a segment that is not in the heap.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct HeapSlot {
    free: u32,
    /// Position in the heap.
    at: u32,
}

pub(super) struct GreedySpace {
    entries: Vec<HeapSlot>,
    /// Segment numbers in heap order: most free blocks first, then the lowest number.
    heap: Vec<u32>,
}

impl GreedySpace {
    pub(super) fn new(segment_count: u32) -> Self {
        let entries = vec![HeapSlot { free: 0, at: NOWHERE }; segment_count as usize];
        Self { entries, heap: Vec::with_capacity(segment_count as usize) }
    }

    /// Returns the sort key of the segment at heap position `at`.
    fn rank(&self, at: usize) -> (u32, Reverse<u32>) {
        let segment = self.heap[at];
        (self.entries[segment as usize].free, Reverse(segment))
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            self.entries[self.heap[at] as usize].at = at as u32;
        }
    }

    /// Restores the heap order after the segment at position `at` has changed.
    fn sift(&mut self, mut at: usize) {
        while at > 0 && self.rank(at) > self.rank((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        while let Some(child) =
            (2 * at + 1..self.heap.len().min(2 * at + 3)).max_by_key(|child| self.rank(*child))
            && self.rank(child) > self.rank(at)
        {
            self.swap(at, child);
            at = child;
        }
    }

    fn insert(&mut self, segment: u32) {
        self.entries[segment as usize].at = self.heap.len() as u32;
        self.heap.push(segment);
        self.sift(self.heap.len() - 1);
    }

    fn remove(&mut self, at: usize) {
        let last = self.heap.len() - 1;
        self.swap(at, last);
        if let Some(segment) = self.heap.pop() {
            self.entries[segment as usize].at = NOWHERE;
        }
        if at < last {
            self.sift(at);
        }
    }
}

impl Scheme for GreedySpace {
    fn choose(&mut self, space: &FreeSpaceView<'_>, _ino: u64) -> Option<u32> {
        // No segment is emptier than a Clean one.
        space.clean.map(|(_, segment)| segment).or_else(|| self.heap.first().copied())
    }

    fn fills_up(&self) -> bool {
        true
    }

    fn state_len(&self) -> usize {
        self.entries.capacity() * size_of::<HeapSlot>() + self.heap.capacity() * size_of::<u32>()
    }

    fn resize(&mut self, segment_count: u32) {
        assert!(self.entries.iter().skip(segment_count as usize).all(|entry| entry.at == NOWHERE));
        self.entries.resize(segment_count as usize, HeapSlot { free: 0, at: NOWHERE });
    }

    fn note_free(&mut self, segment: u32, free: u32) {
        let entry = &mut self.entries[segment as usize];
        entry.free = free;
        match (entry.at, free) {
            (NOWHERE, 0) => {}
            (NOWHERE, _) => self.insert(segment),
            (at, 0) => self.remove(at as usize),
            (at, _) => self.sift(at as usize),
        }
    }
}
