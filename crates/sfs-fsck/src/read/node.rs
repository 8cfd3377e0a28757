//! Content of a tree node: the slots and values of a leaf, the entries of an inner node (`docs/FORMAT.md`).
//!
//! Decoded values lie within the node and do not overlap; keys ascend. Values are not interpreted.

use std::ops::Range;

use sfs_core::format::{
    Corruption, CorruptionKind, Key, NodeHeader, NodePointer, Structure, VALUE_LEN_MAX,
};
use sfs_device::BLOCK_SIZE;

const SLOT_LEN: usize = Key::LEN + 4;
const ENTRY_LEN: usize = Key::LEN + NodePointer::LEN;

/// Content of a node.
pub(crate) enum NodeContent<'a> {
    /// Keys and values, ascending.
    Leaf(Vec<(Key, &'a [u8])>),
    /// Smallest key and pointer of each child, ascending.
    Inner(Vec<(Key, NodePointer)>),
}

impl NodeContent<'_> {
    /// Returns the keys in the node, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let (items, children) = match self {
            Self::Leaf(items) => (&items[..], &[][..]),
            Self::Inner(children) => (&[][..], &children[..]),
        };
        items.iter().map(|(key, _)| key).chain(children.iter().map(|(key, _)| key))
    }
}

/// Decodes a node whose checksum has been verified.
pub(crate) fn decode(
    bytes: &[u8; BLOCK_SIZE],
    header: NodeHeader,
    address: u64,
) -> Result<NodeContent<'_>, Corruption> {
    let count = usize::from(header.item_count);
    let content = if header.level == 0 {
        leaf(bytes, count).map(NodeContent::Leaf)
    } else {
        inner(bytes, count).map(NodeContent::Inner)
    };
    content.map_err(|kind| Corruption::in_block(Structure::Node, address, kind))
}

fn leaf(bytes: &[u8; BLOCK_SIZE], count: usize) -> Result<Vec<(Key, &[u8])>, CorruptionKind> {
    let table_end = NodeHeader::LEN + count * SLOT_LEN;
    let table = bytes.get(NodeHeader::LEN..table_end).ok_or(CorruptionKind::Length)?;
    let mut items = Vec::with_capacity(count);
    let mut taken: Vec<Range<usize>> = Vec::with_capacity(count);
    for slot in table.chunks_exact(SLOT_LEN) {
        let (key, position) = slot.split_at(Key::LEN);
        let from = usize::from(u16::from_le_bytes([position[0], position[1]]));
        let len = usize::from(u16::from_le_bytes([position[2], position[3]]));
        if from < table_end || len > VALUE_LEN_MAX {
            return Err(CorruptionKind::Length);
        }
        let value = bytes.get(from..from + len).ok_or(CorruptionKind::Length)?;
        items.push((decode_key(key), value));
        taken.push(from..from + len);
    }
    taken.retain(|range| !range.is_empty());
    taken.sort_by_key(|range| range.start);
    if taken.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(CorruptionKind::Length);
    }
    check_order(items.iter().map(|(key, _)| *key))?;
    Ok(items)
}

fn inner(
    bytes: &[u8; BLOCK_SIZE],
    count: usize,
) -> Result<Vec<(Key, NodePointer)>, CorruptionKind> {
    if count == 0 {
        return Err(CorruptionKind::Length);
    }
    let table = bytes
        .get(NodeHeader::LEN..NodeHeader::LEN + count * ENTRY_LEN)
        .ok_or(CorruptionKind::Length)?;
    let entries: Vec<(Key, NodePointer)> = table
        .chunks_exact(ENTRY_LEN)
        .map(|entry| {
            let (key, pointer) = entry.split_at(Key::LEN);
            let pointer = pointer.try_into().expect("an entry ends with a pointer");
            (decode_key(key), NodePointer::decode(pointer))
        })
        .collect();
    check_order(entries.iter().map(|(key, _)| *key))?;
    Ok(entries)
}

fn decode_key(bytes: &[u8]) -> Key {
    Key::decode(bytes.try_into().expect("a slot or entry begins with a key"))
}

fn check_order(keys: impl Iterator<Item = Key>) -> Result<(), CorruptionKind> {
    let mut last = None;
    for key in keys {
        if last >= Some(key) {
            return Err(CorruptionKind::Order);
        }
        last = Some(key);
    }
    Ok(())
}
