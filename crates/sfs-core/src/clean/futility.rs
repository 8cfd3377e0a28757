//! Futility of cleaning: whether another round would only wear the device.

use super::progress::GarbageBlocks;
use super::watermarks::Urgency;

/// State in which cleaning has gained nothing. Cleaning stays futile until users have changed something and made a segment's
/// worth of garbage, or cleaning is more urgent: a victim that is not worthwhile at rest may be when segments are short.
#[derive(Clone, Copy, Debug)]
pub(super) struct Futility {
    /// Number of changes by users at that time.
    changes: u64,
    /// Least garbage since then, in blocks.
    least_garbage: u64,
    urgency: Urgency,
}

impl Futility {
    /// Returns the state at these `changes`, `garbage` and `urgency`.
    pub(super) fn new(changes: u64, garbage: GarbageBlocks, urgency: Urgency) -> Self {
        Self { changes, least_garbage: garbage.blocks, urgency }
    }

    /// Returns whether cleaning is still futile; updates the least garbage.
    pub(super) fn holds(&mut self, changes: u64, garbage: GarbageBlocks, urgency: Urgency) -> bool {
        let has_grown = garbage.has_grown(&mut self.least_garbage);
        // From the steady watermark on, victims are chosen alike.
        let [before, now] = [self.urgency, urgency].map(|urgency| urgency.min(Urgency::Steady));
        now <= before && (!has_grown || changes == self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_is_futile_until_there_is_garbage_or_urgency() {
        let garbage = |blocks| GarbageBlocks { blocks, segment_blocks: 100 };
        let mut futility = Futility::new(1, garbage(50), Urgency::Background);
        assert!(futility.holds(1, garbage(50), Urgency::Background));
        assert!(futility.holds(2, garbage(149), Urgency::Background), "too little garbage");
        assert!(futility.holds(1, garbage(150), Urgency::Background), "the cleaner made it");
        assert!(!futility.holds(2, garbage(150), Urgency::Background));
        assert!(!futility.holds(1, garbage(50), Urgency::Steady), "segments are short");
        assert!(futility.holds(2, garbage(20), Urgency::None));
        assert!(!futility.holds(2, garbage(120), Urgency::Background), "less was left meanwhile");
        let mut futility = Futility::new(1, garbage(50), Urgency::Steady);
        assert!(futility.holds(1, garbage(50), Urgency::Critical), "the same victims");
    }
}
