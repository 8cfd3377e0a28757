//! Nodes read from a device, checked before they enter the tree.
//!
//! The items of a [`VerifiedNode`] are inside the node, do not overlap, and ascend.

use std::borrow::Borrow;
use std::ops::Range;

use sfs_device::{BLOCK_SIZE, Block};

use super::NodeNotCached;
use super::inner::CHILDREN_MAX;
use super::node::{ChildEntry, Node, ROOM, Slot};
use super::node_cache::is_on_device;
use crate::format::{
    Corruption, CorruptionKind, Key, NodeHeader, NodePointer, Structure, Tolerance, VALUE_LEN_MAX,
};

/// Highest level of a node from a device. No volume needs more than 8.
const LEVEL_MAX: u8 = 32;

/// A node that passed its checksum and whose items are well-formed.
///
/// The range of its keys is checked against `missing`, and again by each lookup that reaches it.
#[derive(Clone)]
pub struct VerifiedNode {
    pointer: NodePointer,
    node: Node,
    /// First key after the node's range.
    end: Option<Key>,
}

impl VerifiedNode {
    /// Verifies and decodes the node in `bytes`, which were read for `missing` from the volume `volume`.
    ///
    /// Kinds of items that `tolerance` does not allow are damage. A leaf without items passes if `missing` has no
    /// range of keys, as for a root.
    ///
    /// # Errors
    ///
    /// [`CorruptionKind::Value`] for a wrong level, kind or child, `Length` for a count or value
    /// out of range, `Order` also for keys outside the range, and errors of [`NodeHeader::verify`].
    pub fn decode(
        bytes: impl Borrow<Block>,
        volume: u64,
        missing: &NodeNotCached,
        tolerance: Tolerance,
    ) -> Result<Self, Corruption> {
        let (pointer, Block(bytes)) = (missing.pointer, bytes.borrow());
        let header = NodeHeader::verify(bytes, volume, pointer)?;
        let wrong = |kind| Corruption::in_block(Structure::Node, pointer.address, kind);
        check_header(header, missing).map_err(wrong)?;
        let mut node = Node::from_bytes(Box::new(*bytes), header, pointer.checksum);
        if header.level == 0 {
            check_slots(node.slots(), tolerance).map_err(wrong)?;
            node.measure_values();
        } else {
            check_entries(node.entries(), tolerance).map_err(wrong)?;
        }
        node.note_bounds();
        if !node.belongs_to(missing.keys) {
            return Err(wrong(CorruptionKind::Order));
        }
        Ok(Self { pointer, node, end: missing.end() })
    }

    /// Returns the pointer to the node.
    pub fn pointer(&self) -> NodePointer {
        self.pointer
    }

    /// Returns the level: 0 for a leaf.
    pub fn level(&self) -> u8 {
        self.node.level
    }

    /// Returns the first key; a leaf may have none.
    pub fn first_key(&self) -> Option<Key> {
        self.node.first_key()
    }

    /// Returns the items of a leaf, ascending; none for an inner node.
    pub fn items(&self) -> impl Iterator<Item = (Key, &[u8])> {
        let count = if self.level() == 0 { self.node.len() } else { 0 };
        (0..count).filter_map(|index| self.node.item(index))
    }

    /// Returns the children of an inner node; none for a leaf.
    pub fn children(&self) -> impl Iterator<Item = NodeNotCached> {
        let count = if self.level() == 0 { 0 } else { self.node.len() };
        (0..count).map(|index| self.node.child_at(index, self.end))
    }

    /// Returns a copy of a leaf in memory, which `found` describes. The pointer of a dirty leaf leads to no block.
    pub(super) fn copy_of(node: &Node, found: &NodeNotCached) -> Self {
        Self { pointer: found.pointer, node: node.clone(), end: found.end() }
    }

    pub(super) fn into_parts(self) -> (NodePointer, Node) {
        (self.pointer, self.node)
    }
}

fn check_header(header: NodeHeader, missing: &NodeNotCached) -> Result<(), CorruptionKind> {
    if header.level != missing.level || header.level > LEVEL_MAX {
        return Err(CorruptionKind::Value);
    }
    if !is_on_device(missing.pointer.address) {
        return Err(CorruptionKind::Address);
    }
    let least = usize::from(header.level > 0 || missing.keys.is_some());
    let most = if header.level == 0 { ROOM / size_of::<Slot>() } else { CHILDREN_MAX };
    if !(least..=most).contains(&header.item_count.into()) {
        return Err(CorruptionKind::Length);
    }
    Ok(())
}

fn check_slots(slots: &[Slot], tolerance: Tolerance) -> Result<(), CorruptionKind> {
    check_keys(slots.iter().map(Slot::key), tolerance)?;
    let mut taken = Taken([0; BLOCK_SIZE / 64]);
    taken.take(0..NodeHeader::LEN + size_of_val(slots))?;
    for slot in slots {
        if slot.value().len() > VALUE_LEN_MAX {
            return Err(CorruptionKind::Length);
        }
        taken.take(slot.value())?;
    }
    Ok(())
}

fn check_entries(entries: &[ChildEntry], tolerance: Tolerance) -> Result<(), CorruptionKind> {
    check_keys(entries.iter().map(ChildEntry::key), tolerance)?;
    let is_sound = |entry: &ChildEntry| is_on_device(entry.pointer().address);
    if entries.iter().all(is_sound) { Ok(()) } else { Err(CorruptionKind::Value) }
}

fn check_keys(keys: impl Iterator<Item = Key>, tolerance: Tolerance) -> Result<(), CorruptionKind> {
    let mut last = None;
    for key in keys {
        if !tolerance.allows_kind(key.kind) {
            return Err(CorruptionKind::Value);
        }
        if last >= Some(key) {
            return Err(CorruptionKind::Order);
        }
        last = Some(key);
    }
    Ok(())
}

/// The bytes of a node that are in use, one bit each.
struct Taken([u64; BLOCK_SIZE / 64]);

impl Taken {
    /// Takes the bytes of `range`; fails if they are outside the node or in use.
    fn take(&mut self, range: Range<usize>) -> Result<(), CorruptionKind> {
        if range.end > BLOCK_SIZE {
            return Err(CorruptionKind::Length);
        }
        let mut at = range.start;
        while at < range.end {
            let (word, bit) = (at / 64, at % 64);
            let len = (64 - bit).min(range.end - at);
            let mask = (u64::MAX >> (64 - len)) << bit;
            if self.0[word] & mask != 0 {
                return Err(CorruptionKind::Length);
            }
            self.0[word] |= mask;
            at += len;
        }
        Ok(())
    }
}
