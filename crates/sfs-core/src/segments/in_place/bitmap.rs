//! A bit for each block of each segment, looked at by the word.

use std::ops::Range;

const WORD_BITS: u32 = u64::BITS;

/// Which blocks are taken.
pub(crate) struct Bitmap {
    words: Vec<u64>,
    segment_blocks: u32,
}

impl Bitmap {
    /// No block is taken. Segments are a power of two of blocks, at least 32.
    pub(crate) fn new(segment_count: u32, segment_blocks: u32) -> Self {
        let count = segment_count as usize * words_per_segment(segment_blocks);
        // A segment of half a word has only the lower half.
        let empty = if segment_blocks < WORD_BITS { u64::MAX << segment_blocks } else { 0 };
        Self { words: vec![empty; count], segment_blocks }
    }

    pub(crate) fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    /// Blocks of `segment` that are free.
    pub(crate) fn free(&self, segment: u32) -> u32 {
        self.words[self.range(segment)].iter().map(|word| word.count_zeros()).sum()
    }

    /// The first free blocks of `segment`, up to `most` neighbours: the first, and how many.
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

    /// Takes `count` blocks from `first` on; says whether all had been free.
    pub(crate) fn take(&mut self, segment: u32, first: u32, count: u32) -> bool {
        let words = self.range(segment);
        masks(first, count).fold(true, |free, (index, mask)| {
            let word = &mut self.words[words.start + index];
            let was_free = *word & mask == 0;
            *word |= mask;
            free && was_free
        })
    }

    /// Frees `count` blocks from `first` on; gives how many of them were taken.
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

/// The words, and the bits of each, of `count` blocks from `first` on.
fn masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = first + count;
    (first / WORD_BITS..end.div_ceil(WORD_BITS)).map(move |index| {
        let base = index * WORD_BITS;
        let (low, high) = (first.max(base) - base, end.min(base + WORD_BITS) - base);
        (index as usize, u64::MAX >> (WORD_BITS - (high - low)) << low)
    })
}
