//! Which manifests may be deleted, so that the newest is found without a list.

use crate::mutant::{Mutant, mutated};

/// The distances of manifests that are kept longer.
///
/// A multiple of `base` has rank 1, a multiple of the square of `base` rank 2, other numbers rank 0. A manifest may be deleted when a
/// later one of a higher rank is confirmed; rank 2 stays for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinning {
    base: u64,
}

impl Thinning {
    /// The thinning of all volumes: ranks at multiples of 32 and 1,024.
    pub const OF_VOLUMES: Self = Self { base: 32 };

    /// Returns a thinning by another distance, for tests. `base` is at least 2.
    pub const fn by(base: u64) -> Self {
        assert!(base >= 2, "ranks would be equal");
        Self { base }
    }

    /// Returns the largest number of names that a search asks about at once.
    pub(crate) fn at_once(self) -> usize {
        self.base as usize
    }

    /// Returns the distance of manifests with rank 1.
    pub(crate) fn middle(self) -> u64 {
        self.base
    }

    /// Returns the distance of manifests with rank 2.
    pub(crate) fn large(self) -> u64 {
        self.base * self.base
    }

    /// Returns the numbers whose existence would allow that manifest `number` is deleted: the first ones after it of each
    /// higher rank.
    pub(crate) fn later_of_higher_rank(self, number: u64) -> impl Iterator<Item = u64> {
        let next = |distance: u64| (number / distance + 1) * distance;
        let middle = (!number.is_multiple_of(self.middle())).then(|| next(self.middle()));
        let large = (!number.is_multiple_of(self.large())).then(|| next(self.large()));
        middle.into_iter().chain(large)
    }

    /// Returns the manifests that the confirmed manifest `newest` allows to be deleted, and its predecessors did not.
    pub fn deletable_after(self, newest: u64) -> Vec<u64> {
        let (middle, large) = (self.middle(), self.large());
        if mutated(Mutant::RanksIgnored) {
            return (newest.saturating_sub(1)..newest).filter(|number| *number > 0).collect();
        }
        let begin = |distance: u64| newest.saturating_sub(distance) + 1;
        if newest.is_multiple_of(large) {
            let of_rank_1 = (begin(large)..newest).filter(|number| number.is_multiple_of(middle));
            of_rank_1.chain(begin(middle)..newest).collect()
        } else if newest.is_multiple_of(middle) {
            (begin(middle)..newest).collect()
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every deletion is allowed by the rule, and of a million manifests few are left.
    #[test]
    fn the_rule_is_kept() {
        for (thinning, last) in
            [(Thinning::by(2), 64), (Thinning::by(4), 300), (Thinning::OF_VOLUMES, 100_000)]
        {
            let mut kept = BTreeSet::new();
            for newest in 1..=last {
                kept.insert(newest);
                for number in thinning.deletable_after(newest) {
                    assert!(kept.remove(&number), "{number} after {newest}");
                    assert!(thinning.later_of_higher_rank(number).any(|later| later <= newest));
                    assert!(!number.is_multiple_of(thinning.large()));
                }
            }
            let bound = last / thinning.large() + 2 * thinning.base;
            assert!(kept.len() as u64 <= bound, "{} of {last}", kept.len());
        }
    }
}
