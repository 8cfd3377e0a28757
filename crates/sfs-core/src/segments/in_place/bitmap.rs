//! A bitmap of the taken blocks, in whole words for each segment.
//!
//! `fixedbitset` has no search for a run of free bits within a range; with that crate, this module
//! would still have to read the words.

use std::ops::Range;

const WORD_BITS: u32 = u64::BITS;

/// The taken blocks of all segments.
pub(crate) struct Bitmap {
    words: Vec<u64>,
    segment_blocks: u32,
}

impl Bitmap {
    /// Returns a bitmap without taken blocks. `segment_blocks` is a power of two of at least 32.
    pub(crate) fn new(segment_count: u32, segment_blocks: u32) -> Self {
        let mut bitmap = Self { words: Vec::new(), segment_blocks };
        bitmap.resize(segment_count);
        bitmap
    }

    /// Adds segments without taken blocks at the end, or drops segments there.
    pub(crate) fn resize(&mut self, segment_count: u32) {
        let count = segment_count as usize * words_per_segment(self.segment_blocks);
        // A segment of 32 blocks has the lower half of its word; the upper half counts as taken.
        let empty =
            if self.segment_blocks < WORD_BITS { u64::MAX << self.segment_blocks } else { 0 };
        self.words.resize(count, empty);
    }

    /// Returns the number of bytes of the bitmap.
    pub(crate) fn state_len(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    pub(crate) fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    /// Returns the number of free blocks of `segment`.
    pub(crate) fn free(&self, segment: u32) -> u32 {
        self.words[self.range(segment)].iter().map(|word| word.count_zeros()).sum()
    }

    /// Returns the first run of free blocks of `segment`, cut to `most`: first block and length.
    pub(crate) fn first_free(&self, segment: u32, most: u32) -> Option<(u32, u32)> {
        let words = &self.words[self.range(segment)];
        let index = words.iter().position(|word| *word != u64::MAX)?;
        let bit = words[index].trailing_ones();
        let mut count = (words[index] >> bit).trailing_zeros().min(WORD_BITS - bit);
        if bit + count == WORD_BITS {
            for word in &words[index + 1..] {
                let more = word.trailing_zeros();
                count += more;
                if more < WORD_BITS || count >= most {
                    break;
                }
            }
        }
        Some((index as u32 * WORD_BITS + bit, count.min(most)))
    }

    /// Takes `count` blocks from `first` on. Returns whether all were free.
    pub(crate) fn take(&mut self, segment: u32, first: u32, count: u32) -> bool {
        let words = self.range(segment);
        masks(first, count).fold(true, |free, (index, mask)| {
            let word = &mut self.words[words.start + index];
            let was_free = *word & mask == 0;
            *word |= mask;
            free && was_free
        })
    }

    /// Frees `count` blocks from `first` on. Returns the number of blocks that were taken.
    pub(crate) fn clear(&mut self, segment: u32, first: u32, count: u32) -> u32 {
        let words = self.range(segment);
        let mut taken = 0;
        for (index, mask) in masks(first, count) {
            let word = &mut self.words[words.start + index];
            taken += (*word & mask).count_ones();
            *word &= !mask;
        }
        taken
    }

    fn range(&self, segment: u32) -> Range<usize> {
        let per_segment = words_per_segment(self.segment_blocks);
        let start = segment as usize * per_segment;
        start..start + per_segment
    }
}

fn words_per_segment(segment_blocks: u32) -> usize {
    segment_blocks.div_ceil(WORD_BITS) as usize
}

/// Returns the words of `count` blocks from `first` on, and the bits in each.
fn masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = first + count;
    (first / WORD_BITS..end.div_ceil(WORD_BITS)).map(move |index| {
        let base = index * WORD_BITS;
        let (low, high) = (first.max(base) - base, end.min(base + WORD_BITS) - base);
        (index as usize, u64::MAX >> (WORD_BITS - (high - low)) << low)
    })
}
