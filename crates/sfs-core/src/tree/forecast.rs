//! Forecast of a set of changes: how many nodes they make dirty, before the first one is made.

use super::Tree;
use super::descent::DescentPath;
use super::inner::CHILDREN_MAX;
use super::node::{Node, ROOM, Slot};
use super::node_cache::is_dirty;
use crate::format::{Key, VALUE_LEN_MAX};

/// Least number of bytes by which half of a divided leaf has to grow before it is divided again: a half has at most half of
/// a full leaf and of the item that did not fit, and half an item more.
const GROWTH_TO_DIVIDE: usize = (ROOM - 2 * (size_of::<Slot>() + VALUE_LEN_MAX)) / 2;

/// A change that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct PlannedChange {
    /// Key of the item.
    pub key: Key,
    /// Its value afterwards.
    pub value: PlannedValue,
}

/// The value of an item after a change.
#[derive(Clone, Copy, Debug)]
pub enum PlannedValue {
    /// It has at most this many bytes. The item may be new.
    Len(usize),
    /// It has at most this many bytes more. A new item has as many.
    Longer(usize),
    /// The item is removed.
    Gone,
}

impl PlannedChange {
    /// Returns the largest number of bytes by which the change lets `leaf` grow.
    fn growth(&self, leaf: &Node) -> usize {
        let old = leaf.find(&self.key).ok().map(|index| leaf.value(index).len());
        match (self.value, old) {
            (PlannedValue::Gone, _) => 0,
            (PlannedValue::Longer(more), Some(_)) => more,
            (PlannedValue::Len(new), Some(old)) => new.saturating_sub(old),
            (PlannedValue::Len(new) | PlannedValue::Longer(new), None) => size_of::<Slot>() + new,
        }
    }
}

impl Tree {
    /// Returns the largest number by which [`Tree::dirty_count`] grows if `changes` are made, in any order. Nodes that are not
    /// in memory count as clean and full.
    pub fn dirtied_by(&self, mut changes: Vec<PlannedChange>) -> usize {
        if changes.is_empty() {
            return 0;
        }
        changes.sort_unstable_by_key(|change| change.key);
        let mut dirtied = 0;
        let mut added = self.forecast(self.root_path(), &changes, &mut dirtied);
        // New roots.
        while added > 0 {
            added = divisions_above(1, added);
            dirtied += 1 + added;
        }
        dirtied
    }

    /// Adds the number of nodes that `changes`, all of which concern the node at the end of `path` and those below it, make
    /// dirty. Returns how many of them are new and beside that node.
    fn forecast(
        &self,
        path: DescentPath<'_>,
        changes: &[PlannedChange],
        dirtied: &mut usize,
    ) -> usize {
        let Ok(node) = self.cache.follow(&path) else {
            let nodes = changes.len() * (usize::from(path.level) + 1);
            *dirtied += 2 * nodes;
            return changes.len();
        };
        *dirtied += usize::from(!is_dirty(path.pointer.address));
        let added = if path.level == 0 {
            divisions(node, changes)
        } else {
            let (mut rest, mut added) = (changes, 0);
            while let Some(first) = rest.first() {
                let child = path.below(node, node.route(&first.key));
                let end = child.end();
                let is_below = |change: &PlannedChange| end.is_none_or(|end| change.key < end);
                // In a forged tree no key may be below the end.
                let count = rest.partition_point(is_below).max(1);
                added += self.forecast(child, &rest[..count], dirtied);
                rest = &rest[count..];
            }
            divisions_above(node.len(), added)
        };
        *dirtied += added;
        added
    }
}

/// Returns how many times `leaf` is divided at most by `changes`.
fn divisions(leaf: &Node, changes: &[PlannedChange]) -> usize {
    let growths = changes.iter().map(|change| change.growth(leaf)).filter(|growth| *growth > 0);
    let (count, sum) = growths.fold((0, 0), |(count, sum), growth| (count + 1, sum + growth));
    match leaf.used_len() + sum {
        ..=ROOM => 0,
        // An item after all others leaves the leaf full, and the next one divides it.
        _ => count.min(2 + sum / GROWTH_TO_DIVIDE),
    }
}

/// Returns how many times an inner node with `count` children is divided at most when it gets `added` more.
fn divisions_above(count: usize, added: usize) -> usize {
    match count + added {
        ..=CHILDREN_MAX => 0,
        _ => added.min(2 + added / (CHILDREN_MAX / 2)),
    }
}
