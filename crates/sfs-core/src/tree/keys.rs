//! Ranges of keys.

use crate::format::Key;

/// A range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// First key.
    pub from: Key,
    /// First key after the range; `None` for a range up to the last key.
    pub end: Option<Key>,
}

impl Keys {
    /// The empty range.
    pub(super) const NONE: Self = Self { from: Key::MAX, end: Some(Key::MIN) };

    /// Returns whether the range contains `first` and `last`, and so all keys between them.
    pub(super) fn hold(&self, first: Key, last: Key) -> bool {
        self.from <= first && self.end.is_none_or(|end| last < end)
    }
}
