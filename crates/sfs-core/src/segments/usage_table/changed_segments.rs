//! The set of segments whose entries have changed since the set was last taken.

/// Numbers of segments, each once. Keeps nothing unless it was made for a number of segments.
#[derive(Default)]
pub(super) struct ChangedSegments {
    /// A bit for each segment.
    has: Vec<u64>,
    segments: Vec<u32>,
}

impl ChangedSegments {
    /// Returns an empty set for segments below `count`.
    pub(super) fn new(count: usize) -> Self {
        Self { has: vec![0; count.div_ceil(64)], segments: Vec::new() }
    }

    /// Adds a segment.
    pub(super) fn add(&mut self, segment: u32) {
        let Some(bits) = self.has.get_mut(segment as usize / 64) else { return };
        let bit = 1 << (segment % 64);
        if *bits & bit == 0 {
            *bits |= bit;
            self.segments.push(segment);
        }
    }

    /// Removes and returns all segments.
    pub(super) fn take(&mut self) -> Vec<u32> {
        for segment in &self.segments {
            self.has[*segment as usize / 64] = 0;
        }
        std::mem::take(&mut self.segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_is_returned_once() {
        let mut changed = ChangedSegments::new(130);
        [5, 129, 5, 64].into_iter().for_each(|segment| changed.add(segment));
        assert_eq!(changed.take(), [5, 129, 64]);
        assert_eq!(changed.take(), []);
        changed.add(64);
        assert_eq!(changed.take(), [64]);
    }
}
