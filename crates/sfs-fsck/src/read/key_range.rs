//! Ranges of keys of the tree.

use sfs_core::format::{ItemKind, Key};

/// Half-open range of keys. The bounds of a forged tree may be in the wrong order; such a range is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// Lowest key of the range.
    pub(crate) low: Key,
    /// First key above the range; `None` for a range without an upper bound.
    pub(crate) high: Option<Key>,
}

impl KeyRange {
    /// Range of every key.
    pub(crate) const ALL: Self = Self { low: Key::MIN, high: None };

    /// Returns the range of every key of `ino`.
    pub(crate) fn of_inode(ino: u64) -> Self {
        let first = |ino| Key { ino, kind: 0, offset: 0 };
        Self { low: first(ino), high: ino.checked_add(1).map(first) }
    }

    /// Returns the range of every key of `ino` with this `kind`.
    pub(crate) fn of_kind(ino: u64, kind: ItemKind) -> Self {
        let last = Key::new(ino, kind, u64::MAX);
        Self { low: Key::new(ino, kind, 0), high: Some(last.next()) }
    }

    /// Returns whether the range contains `key`.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        *key >= self.low && self.high.is_none_or(|high| *key < high)
    }

    /// Returns whether neither range ends before the other begins.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let below = |range: &Self, low: &Key| range.high.is_some_and(|high| high <= *low);
        !below(self, &other.low) && !below(other, &self.low)
    }
}

/// Returns whether one of `ranges`, which ascend without overlap, contains `key`.
pub(crate) fn any_contains(ranges: &[KeyRange], key: &Key) -> bool {
    let after = ranges.partition_point(|range| range.low <= *key);
    after.checked_sub(1).is_some_and(|last| ranges[last].contains(key))
}

/// Returns whether one of `ranges`, which ascend without overlap, overlaps `other`.
pub(crate) fn any_overlaps(ranges: &[KeyRange], other: &KeyRange) -> bool {
    let after = ranges.partition_point(|range| other.high.is_none_or(|high| range.low < high));
    after.checked_sub(1).is_some_and(|last| ranges[last].overlaps(other))
}
