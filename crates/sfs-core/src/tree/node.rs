//! The memory of a node: its bytes as on the device, and a few fields for fast access.
//!
//! `item_count` slots (leaf) or entries (inner node) are inside the node, and their keys ascend.

use std::sync::atomic::{AtomicBool, Ordering};

use sfs_device::BLOCK_SIZE;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Keys;
use crate::format::{Key, NodeHeader, NodePointer};

/// Number of bytes of a node for its items.
pub(super) const ROOM: usize = BLOCK_SIZE - NodeHeader::LEN;

/// Maximum number of bytes of items in a merged node. The limit is below a full node, so that a
/// merge is not followed by a split.
pub(super) const MERGED_LEN_MAX: usize = ROOM * 7 / 10;

/// An item in a leaf.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Slot {
    pub(super) key: [u8; Key::LEN],
    pub(super) value_offset: U16,
    pub(super) value_len: U16,
}

/// A child in an inner node. In memory the address of a dirty child is its number.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ChildEntry {
    pub(super) key: [u8; Key::LEN],
    pub(super) pointer: [u8; NodePointer::LEN],
}

/// A node in memory. The header in `bytes` is written by [`Node::seal`] only.
pub(super) struct Node {
    /// Not a `Block`, whose alignment would double the memory.
    pub(super) bytes: Box<[u8; BLOCK_SIZE]>,
    /// Checksum in the pointer to the node; 0 while dirty.
    pub(super) checksum: u32,
    /// Number of slots or entries.
    pub(super) item_count: u16,
    /// Leaf: lowest offset of a value.
    pub(super) values_start: u16,
    /// Leaf: number of bytes of all values.
    pub(super) values_len: u16,
    /// Level: 0 for a leaf.
    pub(super) level: u8,
    /// `true` if the node was used since the cache's clock passed it.
    used: AtomicBool,
    /// Clean: first and last key, encoded to save memory. A lookup compares them at every level; reading them from
    /// `bytes` would be two more cache misses.
    bounds: [[u8; Key::LEN]; 2],
}

impl Clone for Node {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), used: AtomicBool::new(self.is_used()), ..*self }
    }
}

impl Node {
    /// Returns an empty node.
    pub(super) fn new(level: u8) -> Self {
        Self::from_bytes(Box::new([0; BLOCK_SIZE]), NodeHeader { level, item_count: 0 }, 0)
    }

    /// Returns the node in `bytes`. The caller has checked its items, and sets `values_*` of a leaf.
    pub(super) fn from_bytes(
        bytes: Box<[u8; BLOCK_SIZE]>,
        header: NodeHeader,
        checksum: u32,
    ) -> Self {
        Self {
            bytes,
            checksum,
            item_count: header.item_count,
            values_start: BLOCK_SIZE as u16,
            values_len: 0,
            level: header.level,
            used: AtomicBool::new(false),
            bounds: [[0; Key::LEN]; 2],
        }
    }

    /// Copies the first and last key to `bounds`; these keys do not change while the node is clean.
    pub(super) fn note_bounds(&mut self) {
        if let (Some(first), Some(last)) = (self.first_key(), self.last_key()) {
            self.bounds = [first.encode(), last.encode()];
        }
    }

    /// Returns whether this clean node may be the child of an entry with the range `keys`.
    pub(super) fn belongs_to(&self, keys: Option<Keys>) -> bool {
        let [first, last] = &self.bounds;
        keys.is_none_or(|keys| {
            self.item_count > 0 && keys.hold(Key::decode(first), Key::decode(last))
        })
    }

    /// Returns the number of slots or entries.
    pub(super) fn len(&self) -> usize {
        usize::from(self.item_count)
    }

    /// Returns the number of bytes of the items, at most [`ROOM`].
    pub(super) fn used_len(&self) -> usize {
        match self.level {
            0 => self.len() * size_of::<Slot>() + usize::from(self.values_len),
            _ => self.len() * size_of::<ChildEntry>(),
        }
    }

    /// Returns the first key.
    pub(super) fn first_key(&self) -> Option<Key> {
        match self.level {
            0 => self.slots().first().map(Slot::key),
            _ => self.entries().first().map(ChildEntry::key),
        }
    }

    /// Returns the last key.
    pub(super) fn last_key(&self) -> Option<Key> {
        match self.level {
            0 => self.slots().last().map(Slot::key),
            _ => self.entries().last().map(ChildEntry::key),
        }
    }

    /// Marks the node as used.
    pub(super) fn mark_used(&self) {
        // Readers share the cache line, so it is written only if the flag changes.
        if !self.is_used() {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Clears the mark of use and returns whether it was set.
    pub(super) fn take_used(&mut self) -> bool {
        std::mem::take(self.used.get_mut())
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Writes the header for `address` and returns the pointer to the node.
    pub(super) fn seal(&mut self, volume: u64, address: u64, checkpoint: u64) -> NodePointer {
        let header = NodeHeader { level: self.level, item_count: self.item_count };
        self.checksum = header.seal(&mut self.bytes, volume, address, checkpoint);
        self.note_bounds();
        NodePointer { address, checksum: self.checksum }
    }

    /// Returns the slots of a leaf.
    pub(super) fn slots(&self) -> &[Slot] {
        let items = &self.bytes[NodeHeader::LEN..];
        let (slots, _) = <[Slot]>::ref_from_prefix_with_elems(items, self.len()).expect(FITS);
        slots
    }

    /// Returns the first `count` slots of a leaf, in use or not.
    pub(super) fn slots_mut(&mut self, count: usize) -> &mut [Slot] {
        let items = &mut self.bytes[NodeHeader::LEN..];
        let (slots, _) = <[Slot]>::mut_from_prefix_with_elems(items, count).expect(FITS);
        slots
    }

    /// Returns the entries of an inner node.
    pub(super) fn entries(&self) -> &[ChildEntry] {
        let items = &self.bytes[NodeHeader::LEN..];
        let (entries, _) =
            <[ChildEntry]>::ref_from_prefix_with_elems(items, self.len()).expect(FITS);
        entries
    }

    /// Returns the first `count` entries of an inner node, in use or not.
    pub(super) fn entries_mut(&mut self, count: usize) -> &mut [ChildEntry] {
        let items = &mut self.bytes[NodeHeader::LEN..];
        let (entries, _) = <[ChildEntry]>::mut_from_prefix_with_elems(items, count).expect(FITS);
        entries
    }
}

/// Panic message for slots or entries outside the node.
const FITS: &str = "the items of a node are inside it";

/// Returns the number of first `items` for which `is_passed` holds.
///
/// The search branches, unlike `partition_point`. A lookup is bound by memory latency, and a
/// processor that predicts the branch loads the next item before the current item has arrived.
pub(super) fn count_first<T>(items: &[T], is_passed: impl Fn(&T) -> bool) -> usize {
    let (mut start, mut end) = (0, items.len());
    while start < end {
        let middle = start.midpoint(end);
        if is_passed(&items[middle]) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

impl Slot {
    /// Returns the key of the item.
    pub(super) fn key(&self) -> Key {
        Key::decode(&self.key)
    }
}

impl ChildEntry {
    /// Returns the key of the entry, which is not above any key of the child.
    pub(super) fn key(&self) -> Key {
        Key::decode(&self.key)
    }

    /// Returns the pointer to the child.
    pub(super) fn pointer(&self) -> NodePointer {
        NodePointer::decode(&self.pointer)
    }
}
