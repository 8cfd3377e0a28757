//! Searches by key order: the first item from a key on, the last before a key, and ranges.
//!
//! A search terminates, and finds the same items as [`Tree::get`], however the tree was forged.
//! Between two write-outs no node comes back that the tree has changed or removed. So a caller that
//! removes the found item and searches again terminates, too.

use std::ops::{Bound, RangeBounds};

use super::node::Node;
use super::{NodeNotCached, Tree};
use crate::format::Key;

/// Key and value of an item.
pub type Item<'a> = (Key, &'a [u8]);

/// An iterator over the items of a range of keys, ascending. The iterator ends after a [`NodeNotCached`].
pub struct Range<'a> {
    tree: &'a Tree,
    /// Position in the current leaf; `None` before the first leaf.
    cursor: Option<Cursor<'a>>,
    /// Key from which the next leaf is searched.
    from: Key,
    end: Bound<Key>,
    is_over: bool,
}

/// The position of a search: between two items of a leaf.
struct Cursor<'a> {
    leaf: &'a Node,
    /// Index of the next item.
    index: usize,
    /// First key after the leaf's range.
    end: Option<Key>,
}

impl Tree {
    /// Returns the item with the smallest key that is not below `key`.
    pub fn first_from(&self, key: &Key) -> Result<Option<Item<'_>>, NodeNotCached> {
        self.range(*key..).next().transpose()
    }

    /// Returns the item with the largest key below `key`.
    pub fn last_before(&self, key: &Key) -> Result<Option<Item<'_>>, NodeNotCached> {
        let mut at = *key;
        loop {
            let mut start = None;
            let (leaf, _) = self.descend(|node| {
                let index = node.route_below(&at);
                if index > 0 {
                    start = Some(node.key(index));
                }
                index
            })?;
            match (leaf.lower_bound(&at).checked_sub(1), start) {
                (Some(index), _) => return Ok(leaf.item(index)),
                // Continue in the leaf before this one.
                (None, Some(start)) => at = start,
                (None, None) => return Ok(None),
            }
        }
    }

    /// Returns the items with keys in `keys`; none for a range that starts after its end.
    pub fn range(&self, keys: impl RangeBounds<Key>) -> Range<'_> {
        let from = match keys.start_bound() {
            Bound::Included(key) => *key,
            Bound::Excluded(key) => key.next(),
            Bound::Unbounded => Key::MIN,
        };
        Range { tree: self, cursor: None, from, end: keys.end_bound().cloned(), is_over: false }
    }

    /// Returns the position before the first item of `key`'s leaf that is not below `key`.
    fn cursor_at(&self, key: &Key) -> Result<Cursor<'_>, NodeNotCached> {
        let (leaf, end) = self.descend(|node| node.route(key))?;
        Ok(Cursor { leaf, index: leaf.lower_bound(key), end })
    }
}

impl<'a> Range<'a> {
    fn find(&mut self) -> Result<Option<Item<'a>>, NodeNotCached> {
        loop {
            if let Some(cursor) = &mut self.cursor {
                if let Some(item) = cursor.leaf.item(cursor.index) {
                    cursor.index += 1;
                    return Ok(Some(item).filter(|(key, _)| self.is_before_end(key)));
                }
                let Some(end) = cursor.end else { return Ok(None) };
                self.from = end;
            }
            // No leaf beyond the end is read.
            if !self.is_before_end(&self.from) {
                return Ok(None);
            }
            self.cursor = Some(self.tree.cursor_at(&self.from)?);
        }
    }

    fn is_before_end(&self, key: &Key) -> bool {
        (Bound::Unbounded, self.end).contains(key)
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Result<Item<'a>, NodeNotCached>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let found = self.find().transpose();
        self.is_over = !matches!(found, Some(Ok(_)));
        found
    }
}
