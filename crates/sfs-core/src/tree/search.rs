//! Searching for items by their order.
//!
//! Owns: the way from leaf to leaf.
//! Promises: a search ends, and what it finds is what [`Tree::get`] gives for the key, however the
//! tree was forged. Between two write-outs no node comes back that the tree has changed or removed,
//! so who removes what he finds comes to an end, too.
//! Never: reads the device.

use std::ops::{Bound, RangeBounds};

use super::node::Node;
use super::{NodeNotCached, Tree};
use crate::format::Key;

/// An item, by its key and value.
pub type Item<'a> = (Key, &'a [u8]);

/// The items of a range of keys, in their order. After a [`NodeNotCached`] there are no more.
pub struct Range<'a> {
    tree: &'a Tree,
    /// `None` before the first leaf.
    cursor: Option<Cursor<'a>>,
    /// Where the search in a leaf begins.
    from: Key,
    end: Bound<Key>,
    is_over: bool,
}

/// Where a search is: between two items of a leaf.
struct Cursor<'a> {
    leaf: &'a Node,
    /// The next item.
    index: usize,
    /// The first key after those that may be in the leaf.
    end: Option<Key>,
}

impl Tree {
    /// The item with the smallest key that is not below `key`.
    pub fn first_from(&self, key: &Key) -> Result<Option<Item<'_>>, NodeNotCached> {
        self.range(*key..).next().transpose()
    }

    /// The item with the largest key that is below `key`.
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
                // To the leaf before this one.
                (None, Some(start)) => at = start,
                (None, None) => return Ok(None),
            }
        }
    }

    /// The items whose keys are in `keys`: none if these start after their end.
    pub fn range(&self, keys: impl RangeBounds<Key>) -> Range<'_> {
        let from = match keys.start_bound() {
            Bound::Included(key) => *key,
            Bound::Excluded(key) => key.next(),
            Bound::Unbounded => Key::MIN,
        };
        Range { tree: self, cursor: None, from, end: keys.end_bound().cloned(), is_over: false }
    }

    /// The place in the leaf of `key` before the first item that is not below it.
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
            // What is after the end is not even read.
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
