//! The last writes to the disk: content that was read before a write must not enter the cache after it.

use std::collections::VecDeque;
use std::ops::Range;

use sfs_device::Moment;

/// Number of writes that are remembered. An offer from before them is refused.
const WRITES_MAX: usize = 256;

/// Ring of the last writes.
#[derive(Debug, Default)]
pub(crate) struct RecentWrites {
    /// Number of writes so far.
    count: u64,
    ranges: VecDeque<Range<u64>>,
}

impl RecentWrites {
    /// Notes a write or discard of the blocks `range`.
    pub(crate) fn note(&mut self, range: Range<u64>) {
        self.count += 1;
        self.ranges.push_back(range);
        if self.ranges.len() > WRITES_MAX {
            self.ranges.pop_front();
        }
    }

    /// Returns the present moment.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.count)
    }

    /// Returns whether no block of `range` may have been written since `moment`.
    pub(crate) fn is_unwritten_since(&self, moment: Moment, range: &Range<u64>) -> bool {
        let since = self.count.saturating_sub(moment.0);
        if since > self.ranges.len() as u64 {
            return false;
        }
        let later = self.ranges.iter().rev().take(since as usize);
        later.into_iter().all(|other| other.end <= range.start || range.end <= other.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_later_writes_of_the_same_blocks_count() {
        let mut writes = RecentWrites::default();
        writes.note(10..20);
        let moment = writes.now();
        assert!(writes.is_unwritten_since(moment, &(10..20)));
        writes.note(19..30);
        assert!(!writes.is_unwritten_since(moment, &(10..20)));
        assert!(writes.is_unwritten_since(moment, &(10..19)));
        assert!(writes.is_unwritten_since(writes.now(), &(10..20)));
        (0..WRITES_MAX as u64).for_each(|_| writes.note(0..1));
        assert!(!writes.is_unwritten_since(moment, &(50..60)), "too long ago to know");
    }
}
