//! The inside of a tree node.
//!
//! Owns: slots, values and entries, as FORMAT.md states them.
//! Promises: what it gives is inside the node, apart from each other, and ascending.
//! Never: knows what a value means.

use std::ops::Range;

use sfs_core::format::{
    Corruption, CorruptionKind, Key, NodeHeader, NodePointer, Structure, VALUE_LEN_MAX,
};
use sfs_device::BLOCK_SIZE;

const SLOT_LEN: usize = Key::LEN + 4;
const ENTRY_LEN: usize = Key::LEN + NodePointer::LEN;

/// What a node holds.
pub(crate) enum Content<'a> {
    /// Items: key and value, ascending.
    Leaf(Vec<(Key, &'a [u8])>),
    /// Children: smallest key and pointer, ascending.
    Inner(Vec<(Key, NodePointer)>),
}

impl Content<'_> {
    /// The keys in it, ascending.
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
) -> Result<Content<'_>, Corruption> {
    let count = usize::from(header.item_count);
    let content = if header.level == 0 {
        leaf(bytes, count).map(Content::Leaf)
    } else {
        inner(bytes, count).map(Content::Inner)
    };
    content.map_err(|kind| Corruption::in_block(Structure::Node, address, kind))
}

fn leaf(bytes: &[u8; BLOCK_SIZE], count: usize) -> Result<Vec<(Key, &[u8])>, CorruptionKind> {
    let table_end = NodeHeader::LEN + count * SLOT_LEN;
    let table = bytes.get(NodeHeader::LEN..table_end).ok_or(CorruptionKind::Length)?;
    let mut items = Vec::with_capacity(count);
    let mut taken: Vec<Range<usize>> = Vec::with_capacity(count);
    for slot in table.chunks_exact(SLOT_LEN) {
        let (key, place) = slot.split_at(Key::LEN);
        let from = usize::from(u16::from_le_bytes([place[0], place[1]]));
        let len = usize::from(u16::from_le_bytes([place[2], place[3]]));
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
