//! Ranges of bytes of a file.

use std::ops::Range;

/// Set of bytes, as ranges in their order that do not touch each other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ByteRanges(Vec<Range<u64>>);

impl ByteRanges {
    /// Adds `range`.
    pub(super) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|of| of.end < range.start);
        let after = self.0.partition_point(|of| of.start <= range.end);
        let touched = &self.0[first..after];
        let start = touched.first().map_or(range.start, |of| of.start.min(range.start));
        let end = touched.last().map_or(range.end, |of| of.end.max(range.end));
        self.0.splice(first..after, std::iter::once(start..end));
    }

    /// Returns the parts of `range` that are not in the set.
    pub(super) fn without(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        if range.is_empty() {
            return Vec::new();
        }
        let first = self.0.partition_point(|of| of.end <= range.start);
        let mut parts = Vec::new();
        let mut at = range.start;
        for of in self.0[first..].iter().take_while(|of| of.start < range.end) {
            parts.push(at..of.start.max(at));
            at = of.end;
        }
        parts.push(at..range.end);
        parts.retain(|part| !part.is_empty());
        parts
    }
}

#[cfg(test)]
mod tests {
    use sfs_testkit::SeededRng;

    use super::*;

    #[test]
    fn the_rest_of_a_range_is_what_was_not_added() {
        let mut random = SeededRng::new(1);
        for _ in 0..200 {
            let (mut set, mut added) = (ByteRanges::default(), [false; 40]);
            for _ in 0..random.below(8) {
                let start = random.below(40);
                let end = start + random.below(41 - start);
                set.add(start..end);
                added[start as usize..end as usize].fill(true);
            }
            let apart = set.0.windows(2).all(|two| two[0].end < two[1].start);
            assert!(apart, "{set:?}");
            let start = random.below(40);
            let range = start..start + random.below(41 - start);
            let rest = set.without(&range);
            for at in 0..40 {
                let expected = range.contains(&at) && !added[at as usize];
                assert_eq!(rest.iter().any(|of| of.contains(&at)), expected, "{range:?} {set:?}");
            }
        }
    }
}
