//! Changes of a tree, in memory.
//!
//! Owns: the new value of each item that changes, or that it is gone.
//! Promises: ascending iteration.
//! Never: checks values.

use std::collections::BTreeMap;

use sfs_core::format::Key;

use crate::walk::Keys;

/// What becomes of items, by key: their value, or `None` if they are gone.
#[derive(Default)]
pub(crate) struct Edits(BTreeMap<Key, Option<Box<[u8]>>>);

impl Edits {
    pub(crate) fn put(&mut self, key: Key, value: impl Into<Box<[u8]>>) {
        self.0.insert(key, Some(value.into()));
    }

    pub(crate) fn delete(&mut self, key: Key) {
        self.0.insert(key, None);
    }

    /// What becomes of the item `key`, if anything does.
    pub(crate) fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.0.get(key).map(Option::as_deref)
    }

    /// Those of `keys`.
    pub(crate) fn of(&self, keys: &Keys) -> impl Iterator<Item = (&Key, Option<&[u8]>)> {
        let low = keys.low;
        let high = keys.high.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        // Forged bounds may be the wrong way round, which `range` does not take.
        let some = keys.high.is_none_or(|high| low < high);
        let range = some.then(|| self.0.range((std::ops::Bound::Included(low), high)));
        range.into_iter().flatten().map(|(key, value)| (key, value.as_deref()))
    }

    /// Calls `each` for the `items` of a leaf (ascending) as these edits, those of its keys, leave them.
    pub(crate) fn merge(
        &self,
        keys: &Keys,
        items: &[(Key, &[u8])],
        mut each: impl FnMut(&Key, &[u8]),
    ) {
        let mut old = items.iter().peekable();
        for (key, value) in self.of(keys) {
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
