//! Places at which the device has failed to read nodes together.

use std::ops::Range;

/// Number of places at which the device may fail to read nodes together: a device may try a bad block for half a minute, and so keep the
/// readers of its neighbours waiting. From then on every node is read alone.
const FAILED_PLACES_MAX: usize = 4;

/// Blocks that the device has failed to read together. The nodes in them are read alone.
#[derive(Debug, Default)]
pub(super) struct FailedTogether(Vec<Range<u64>>);

impl FailedTogether {
    /// Notes that the device has failed to read these blocks together.
    pub(super) fn note(&mut self, blocks: Range<u64>) {
        self.0.push(blocks);
    }

    /// Returns whether no nodes are read together any more.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= FAILED_PLACES_MAX
    }

    /// Returns whether some of `blocks` were among those of a failure.
    pub(super) fn overlaps(&self, blocks: &Range<u64>) -> bool {
        self.0.iter().any(|failed| failed.start < blocks.end && blocks.start < failed.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_together_except_where_that_has_failed() {
        let mut failed = FailedTogether::default();
        failed.note(100..116);
        assert!(failed.overlaps(&(115..120)) && failed.overlaps(&(90..101)));
        assert!(!failed.overlaps(&(116..120)) && !failed.overlaps(&(90..100)));
        (1..FAILED_PLACES_MAX as u64).for_each(|no| {
            assert!(!failed.is_full());
            failed.note(1000 * no..1000 * no + 2);
        });
        assert!(failed.is_full());
    }
}
