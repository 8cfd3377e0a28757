//! Searching for items by their order.
//!
//! Owns: the way from leaf to leaf.
//! Promises: a search ends, and what it finds in a tree as it is on a device is what [`Tree::get`]
//! gives for the key, however that tree was forged: who removes what he finds comes to an end, too.
//! Never: reads the device.

use std::ops::{Bound, RangeBounds};

use super::node::Node;
use super::{Missing, Tree};
use crate::format::Key;

/// An item, by its key and value.
pub type Item<'a> = (Key, &'a [u8]);

/// The items of a range of keys, in their order. After a [`Missing`] there are no more.
pub struct Range<'a> {
    tree: &'a Tree,
    /// `None` before the first item.
    place: Option<Place<'a>>,
    from: Key,
    end: Bound<Key>,
    is_over: bool,
}

/// Where a search is: between two items of a leaf.
struct Place<'a> {
    leaf: &'a Node,
    /// The next item.
    index: usize,
    /// First key after those that the tree looks for in the leaf.
    end: Option<Key>,
}

impl<'a> Place<'a> {
    fn item(&self) -> Option<Item<'a>> {
        self.leaf.item(self.index).filter(|(key, _)| self.end.is_none_or(|end| *key < end))
    }
}

impl Tree {
    /// The item with the smallest key that is not below `key`.
    pub fn first_from(&self, key: &Key) -> Result<Option<Item<'_>>, Missing> {
        Ok(self.place_from(key)?.and_then(|place| place.item()))
    }

    /// The item with the largest key that is below `key`.
    pub fn last_before(&self, key: &Key) -> Result<Option<Item<'_>>, Missing> {
        let mut at = *key;
        for _ in 0..self.leaves_max() {
            let mut start = None;
            let leaf = self.descend(|node| {
                let index = node.route_below(&at);
                start = start.max((index > 0).then(|| node.key(index)));
                index
            })?;
            let last = leaf.lower_bound(&at).checked_sub(1).and_then(|index| leaf.item(index));
            match (last.filter(|(key, _)| start.is_none_or(|start| start <= *key)), start) {
                (Some(item), _) => return Ok(Some(item)),
                (None, Some(start)) => at = start,
                (None, None) => break,
            }
        }
        Ok(None)
    }

    /// The items whose keys are in `keys`.
    pub fn range(&self, keys: impl RangeBounds<Key>) -> Range<'_> {
        let from = match keys.start_bound() {
            Bound::Included(key) => *key,
            Bound::Excluded(key) => key.next(),
            Bound::Unbounded => Key::MIN,
        };
        Range { tree: self, place: None, from, end: keys.end_bound().cloned(), is_over: false }
    }

    /// The place of the item with the smallest key that is not below `key`.
    fn place_from(&self, key: &Key) -> Result<Option<Place<'_>>, Missing> {
        let mut at = *key;
        for _ in 0..self.leaves_max() {
            let mut end: Option<Key> = None;
            let leaf = self.descend(|node| {
                let index = node.route(&at);
                let next = (index + 1 < node.len()).then(|| node.key(index + 1));
                end = end.into_iter().chain(next).min();
                index
            })?;
            let place = Place { leaf, index: leaf.lower_bound(&at), end };
            match (place.item(), end) {
                (Some(_), _) => return Ok(Some(place)),
                (None, Some(end)) => at = end,
                (None, None) => break,
            }
        }
        Ok(None)
    }

    /// Leaves that a search may have to look at: the one of the key, the one beside it, and those
    /// between them that wait for [`Tree::prune`]. A forged tree does not get more.
    fn leaves_max(&self) -> usize {
        self.emptied.len() + 2
    }
}

impl<'a> Range<'a> {
    fn find(&mut self) -> Result<Option<Item<'a>>, Missing> {
        let in_leaf = self.place.as_ref().and_then(Place::item);
        let item = match in_leaf {
            Some(item) => Some(item),
            None => {
                self.place = self.tree.place_from(&self.from)?;
                self.place.as_ref().and_then(Place::item)
            }
        };
        Ok(item.filter(|(key, _)| (Bound::Unbounded, self.end).contains(key)))
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Result<Item<'a>, Missing>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let found = self.find().transpose();
        match (&found, &mut self.place) {
            (Some(Ok((key, _))), Some(place)) => {
                self.from = key.next();
                place.index += 1;
            }
            _ => self.is_over = true,
        }
        found
    }
}
