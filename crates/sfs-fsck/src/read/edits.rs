//! Changes of a tree, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use sfs_core::format::Key;

use crate::read::key_range::KeyRange;

/// New values of changed items by key; `None` for a deleted item.
#[derive(Clone, Default)]
pub(crate) struct TreeEdits(BTreeMap<Key, Option<Box<[u8]>>>);

impl TreeEdits {
    /// Sets the value of the item `key`.
    pub(crate) fn put(&mut self, key: Key, value: impl Into<Box<[u8]>>) {
        self.0.insert(key, Some(value.into()));
    }

    /// Deletes the item `key`.
    pub(crate) fn delete(&mut self, key: Key) {
        self.0.insert(key, None);
    }

    /// Returns the edit of the item `key`, if there is one: its new value, or `None` inside for a deletion.
    pub(crate) fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.0.get(key).map(Option::as_deref)
    }

    /// Returns the edits of keys in `range`, ascending.
    pub(crate) fn in_range(&self, range: &KeyRange) -> impl Iterator<Item = (&Key, Option<&[u8]>)> {
        let low = range.low;
        let high = range.high.map_or(Bound::Unbounded, Bound::Excluded);
        // `BTreeMap::range` panics on bounds in the wrong order, which a forged tree may have.
        let is_ordered = range.high.is_none_or(|high| low < high);
        let edits = is_ordered.then(|| self.0.range((Bound::Included(low), high)));
        edits.into_iter().flatten().map(|(key, value)| (key, value.as_deref()))
    }

    /// Calls `each` for `items`, ascending, with the edits of `range` applied.
    pub(crate) fn merge(
        &self,
        range: &KeyRange,
        items: &[(Key, &[u8])],
        mut each: impl FnMut(&Key, &[u8]),
    ) {
        let mut old = items.iter().peekable();
        for (key, value) in self.in_range(range) {
            while let Some((before, value)) = old.next_if(|(other, _)| other < key) {
                each(before, value);
            }
            old.next_if(|(other, _)| other == key);
            if let Some(value) = value {
                each(key, value);
            }
        }
        old.for_each(|(key, value)| each(key, value));
    }
}
