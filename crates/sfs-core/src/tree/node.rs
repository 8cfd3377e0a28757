//! The memory of a node: its bytes as on the device, and what is worth knowing without them.
//!
//! Owns: the layout of slots and entries behind the header.
//! Promises: `item_count` slots or entries are inside the node; keys ascend.
//! Never: knows where its parent or its children are in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use sfs_device::BLOCK_SIZE;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Keys;
use crate::format::{Key, NodeHeader, NodePointer};

/// Bytes of a node that items can have.
pub(super) const ROOM: usize = BLOCK_SIZE - NodeHeader::LEN;

/// Two neighbours become one when their items have at most this many bytes together.
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
    /// Not a `Block`: its alignment would double the memory.
    pub(super) bytes: Box<[u8; BLOCK_SIZE]>,
    /// The checksum in the pointer to it; 0 while dirty.
    pub(super) checksum: u32,
    /// Slots or entries.
    pub(super) item_count: u16,
    /// Leaf: no value is below this offset.
    pub(super) values_start: u16,
    /// Leaf: bytes of all values together.
    pub(super) values_len: u16,
    /// 0 for a leaf.
    pub(super) level: u8,
    /// Used since the clock hand passed.
    used: AtomicBool,
    /// Clean: the first key and the last, encoded, for that is smaller. A lookup compares them at
    /// every level, and would have to wait for each of them if they were only in `bytes`.
    bounds: [[u8; Key::LEN]; 2],
}

impl Clone for Node {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), used: AtomicBool::new(self.is_used()), ..*self }
    }
}

impl Node {
    /// An empty node.
    pub(super) fn new(level: u8) -> Self {
        Self::from_bytes(Box::new([0; BLOCK_SIZE]), NodeHeader { level, item_count: 0 }, 0)
    }

    /// The node in `bytes`; the caller vouches for its items, and sets `values_*` of a leaf.
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

    /// Remembers the first key and the last: nothing changes them while the node is clean.
    pub(super) fn note_bounds(&mut self) {
        if let (Some(first), Some(last)) = (self.first_key(), self.last_key()) {
            self.bounds = [first.encode(), last.encode()];
        }
    }

    /// Whether an entry that leads to `keys` may lead to this node, which is clean.
    pub(super) fn belongs_to(&self, keys: Option<Keys>) -> bool {
        let [first, last] = &self.bounds;
        keys.is_none_or(|keys| {
            self.item_count > 0 && keys.hold(Key::decode(first), Key::decode(last))
        })
    }

    /// Slots or entries.
    pub(super) fn len(&self) -> usize {
        usize::from(self.item_count)
    }

    /// Bytes that the items have, of [`ROOM`].
    pub(super) fn used_len(&self) -> usize {
        match self.level {
            0 => self.len() * size_of::<Slot>() + usize::from(self.values_len),
            _ => self.len() * size_of::<ChildEntry>(),
        }
    }

    /// The first key, as stored.
    pub(super) fn first_key(&self) -> Option<Key> {
        match self.level {
            0 => self.slots().first().map(Slot::key),
            _ => self.entries().first().map(ChildEntry::key),
        }
    }

    /// The last key, as stored.
    pub(super) fn last_key(&self) -> Option<Key> {
        match self.level {
            0 => self.slots().last().map(Slot::key),
            _ => self.entries().last().map(ChildEntry::key),
        }
    }

    /// Remembers that the node was used.
    pub(super) fn mark_used(&self) {
        // Readers share the cache line: it is written only when that changes something.
        if !self.is_used() {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets that the node was used, and says whether it was.
    pub(super) fn take_used(&mut self) -> bool {
        std::mem::take(self.used.get_mut())
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Writes the header, for `address`, and gives the pointer to the node.
    pub(super) fn seal(&mut self, volume: u64, address: u64, checkpoint: u64) -> NodePointer {
        let header = NodeHeader { level: self.level, item_count: self.item_count };
        self.checksum = header.seal(&mut self.bytes, volume, address, checkpoint);
        self.note_bounds();
        NodePointer { address, checksum: self.checksum }
    }

    /// The slots of a leaf.
    pub(super) fn slots(&self) -> &[Slot] {
        let items = &self.bytes[NodeHeader::LEN..];
        let (slots, _) = <[Slot]>::ref_from_prefix_with_elems(items, self.len()).expect(FITS);
        slots
    }

    /// The first `count` slots of a leaf, in use or not.
    pub(super) fn slots_mut(&mut self, count: usize) -> &mut [Slot] {
        let items = &mut self.bytes[NodeHeader::LEN..];
        let (slots, _) = <[Slot]>::mut_from_prefix_with_elems(items, count).expect(FITS);
        slots
    }

    /// The entries of an inner node.
    pub(super) fn entries(&self) -> &[ChildEntry] {
        let items = &self.bytes[NodeHeader::LEN..];
        let (entries, _) =
            <[ChildEntry]>::ref_from_prefix_with_elems(items, self.len()).expect(FITS);
        entries
    }

    /// The first `count` entries of an inner node, in use or not.
    pub(super) fn entries_mut(&mut self, count: usize) -> &mut [ChildEntry] {
        let items = &mut self.bytes[NodeHeader::LEN..];
        let (entries, _) = <[ChildEntry]>::mut_from_prefix_with_elems(items, count).expect(FITS);
        entries
    }
}

/// Why a slice of slots or entries cannot fail.
const FITS: &str = "the items of a node are inside it";

/// How many of `items` `is_passed` is true of, which are the first ones; never more than there are.
///
/// Branches, unlike `partition_point`: a lookup costs what it waits for memory, and a processor
/// that guesses the branch has asked for the next item before it has seen this one.
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
    /// The key of the item.
    pub(super) fn key(&self) -> Key {
        Key::decode(&self.key)
    }
}

impl ChildEntry {
    /// A key that is not above any key of the child.
    pub(super) fn key(&self) -> Key {
        Key::decode(&self.key)
    }

    /// The child.
    pub(super) fn pointer(&self) -> NodePointer {
        NodePointer::decode(&self.pointer)
    }
}
