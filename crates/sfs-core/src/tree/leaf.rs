//! Leaves: search, insertion, removal and division of items, and the space between slots and values.
//!
//! The items of one leaf and a new one always fit in two leaves.

use std::ops::Range;

use sfs_device::BLOCK_SIZE;

use super::node::{Node, ROOM, Slot, count_first};
use crate::format::{Key, NodeHeader};

impl Node {
    /// Returns the index of `key`, or as an error the index at which it would be inserted.
    pub(super) fn find(&self, key: &Key) -> Result<usize, usize> {
        let index = self.lower_bound(key);
        match self.slots().get(index) {
            Some(slot) if slot.key() == *key => Ok(index),
            _ => Err(index),
        }
    }

    /// Returns the index of the first item that is not below `key`.
    pub(super) fn lower_bound(&self, key: &Key) -> usize {
        count_first(self.slots(), |slot| slot.key() < *key)
    }

    /// Returns the item at `index`, if there is one.
    pub(super) fn item(&self, index: usize) -> Option<(Key, &[u8])> {
        let slot = self.slots().get(index)?;
        Some((slot.key(), &self.bytes[slot.value()]))
    }

    /// Returns the value of the item at `index`.
    pub(super) fn value(&self, index: usize) -> &[u8] {
        &self.bytes[self.slots()[index].value()]
    }

    /// Returns the value of the item at `index` for a change in place.
    pub(super) fn value_mut(&mut self, index: usize) -> &mut [u8] {
        let range = self.slots()[index].value();
        &mut self.bytes[range]
    }

    /// Inserts or replaces an item. If the items do not fit, some move to a new leaf after this one, which is
    /// returned.
    pub(super) fn put(&mut self, key: &Key, value: &[u8]) -> Option<Node> {
        let index = match self.find(key) {
            Ok(index) if self.replace(index, value) => return None,
            Ok(index) => {
                self.remove_item(index);
                index
            }
            Err(index) => index,
        };
        if self.fits(value.len()) {
            self.insert_item(index, key, value);
            return None;
        }
        Some(self.divide(index, key, value))
    }

    /// Removes the item at `index`.
    pub(super) fn remove_item(&mut self, index: usize) {
        let count = self.len();
        self.free_range(self.slots()[index].value());
        self.slots_mut(count).copy_within(index + 1.., index);
        self.item_count -= 1;
    }

    /// Appends the items of the leaf after this one.
    pub(super) fn absorb_items(&mut self, right: &Node) {
        for slot in right.slots() {
            self.insert_item(self.len(), &slot.key(), &right.bytes[slot.value()]);
        }
    }

    /// Sets `values_start` and `values_len` from the slots.
    pub(super) fn measure_values(&mut self) {
        let (mut start, mut len) = (BLOCK_SIZE as u16, 0);
        for slot in self.slots().iter().filter(|slot| slot.value_len.get() > 0) {
            start = start.min(slot.value_offset.get());
            len += slot.value_len.get();
        }
        (self.values_start, self.values_len) = (start, len);
    }

    fn fits(&self, value_len: usize) -> bool {
        self.used_len() + size_of::<Slot>() + value_len <= ROOM
    }

    /// Replaces the value at `index`. Returns `false`, without effect, if the leaf has no room for it.
    fn replace(&mut self, index: usize, value: &[u8]) -> bool {
        let count = self.len();
        let old = self.slots()[index].value();
        if value.len() <= old.len() {
            let range = old.start..old.start + value.len();
            self.values_len -= (old.len() - value.len()) as u16;
            self.slots_mut(count)[index].set_value(&range);
            self.bytes[range].copy_from_slice(value);
            return true;
        }
        if self.used_len() - old.len() + value.len() > ROOM {
            return false;
        }
        self.free_range(old);
        self.slots_mut(count)[index].set_value(&(0..0));
        let range = self.store_value(value, count);
        self.slots_mut(count)[index].set_value(&range);
        true
    }

    /// Inserts an item that fits.
    fn insert_item(&mut self, index: usize, key: &Key, value: &[u8]) {
        let count = self.len();
        let range = self.store_value(value, count + 1);
        let mut slot = Slot { key: key.encode(), value_offset: 0.into(), value_len: 0.into() };
        slot.set_value(&range);
        let slots = self.slots_mut(count + 1);
        slots.copy_within(index..count, index + 1);
        slots[index] = slot;
        self.item_count += 1;
    }

    /// Copies `value` to free space beyond the first `slot_count` slots.
    fn store_value(&mut self, value: &[u8], slot_count: usize) -> Range<usize> {
        let slots_end = NodeHeader::LEN + slot_count * size_of::<Slot>();
        if usize::from(self.values_start) < slots_end + value.len() {
            self.compact();
        }
        let end = usize::from(self.values_start);
        assert!(slots_end + value.len() <= end, "an item is put where it does not fit");
        let range = end - value.len()..end;
        self.bytes[range.clone()].copy_from_slice(value);
        self.values_start = range.start as u16;
        self.values_len += value.len() as u16;
        range
    }

    /// Frees the space of the value at `range`.
    fn free_range(&mut self, range: Range<usize>) {
        self.values_len -= range.len() as u16;
        if range.start == usize::from(self.values_start) {
            self.values_start = range.end as u16;
        }
    }

    /// Moves the values together at the end, so that all free space is in one piece.
    fn compact(&mut self) {
        let count = self.len();
        let old = self.bytes.clone();
        let mut end = BLOCK_SIZE;
        for index in 0..count {
            let from = self.slots()[index].value();
            let to = end - from.len()..end;
            self.bytes[to.clone()].copy_from_slice(&old[from]);
            self.slots_mut(count)[index].set_value(&to);
            end = to.start;
        }
        self.values_start = end as u16;
    }

    /// Divides the items and a new one at `index` between this leaf and a new one after it.
    ///
    /// An item after all others leaves this leaf full, so that sequential inserts fill their nodes.
    fn divide(&mut self, index: usize, key: &Key, value: &[u8]) -> Node {
        let mut right = Node::new(0);
        if index == self.len() {
            right.insert_item(0, key, value);
            return right;
        }
        let split_at = self.middle(index, size_of::<Slot>() + value.len());
        let is_left = index < split_at;
        let first_moved = if is_left { split_at - 1 } else { split_at };
        self.move_items(first_moved, &mut right);
        if is_left {
            self.insert_item(index, key, value);
        } else {
            right.insert_item(index - split_at, key, value);
        }
        right
    }

    /// Returns the number of first items, with a new one of `new_len` bytes at `index`, whose bytes
    /// are nearest to half of all bytes; at least one, and not all.
    fn middle(&self, index: usize, new_len: usize) -> usize {
        let total = self.used_len() + new_len;
        let mut lens: Vec<usize> = self.slots().iter().map(Slot::item_len).collect();
        lens.insert(index, new_len);
        let mut left = lens[0];
        for (split_at, len) in lens.iter().enumerate().skip(1) {
            if left + len / 2 >= total / 2 {
                return split_at;
            }
            left += len;
        }
        lens.len() - 1
    }

    /// Moves the items from `first` on to the end of `right`.
    fn move_items(&mut self, first: usize, right: &mut Node) {
        for slot in &self.slots()[first..] {
            right.insert_item(right.len(), &slot.key(), &self.bytes[slot.value()]);
        }
        self.item_count = first as u16;
        self.measure_values();
    }
}

impl Slot {
    /// Returns the bytes of the value in the node.
    pub(super) fn value(&self) -> Range<usize> {
        let offset = usize::from(self.value_offset.get());
        offset..offset + usize::from(self.value_len.get())
    }

    /// Sets the bytes of the value. An empty value is at the end of the node, where no slot can be.
    fn set_value(&mut self, range: &Range<usize>) {
        let offset = if range.is_empty() { BLOCK_SIZE } else { range.start };
        self.value_offset = (offset as u16).into();
        self.value_len = (range.len() as u16).into();
    }

    fn item_len(&self) -> usize {
        size_of::<Self>() + usize::from(self.value_len.get())
    }
}
