//! Deltas: what changed in the tree since the last one.
//!
//! A delta is the concatenation of encoded [`Change`]s, a net effect that is applied whole: first
//! every `Unmap`, then every `Put` and `Delete`, then the mappings that the summaries of the same
//! batch imply and those of every `Map`, then every `Release`.

use std::collections::BTreeMap;

use bincode::{Decode, Encode};

use super::{
    COUNT_KEPT_MAX, Corruption, CorruptionKind, DataPlacement, ItemKind, Key, Layout, Structure,
    Superblock, VALUE_LEN_MAX, codec,
};

/// Bytes of the longest delta. No commit says more: changes are written out long before.
pub const DELTA_LEN_MAX: usize = 256 << 20;

/// One change of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Change {
    /// Inode numbers below this one have been given out.
    NextIno(u64),
    /// Blocks `first..=last` of `ino` are no longer mapped.
    Unmap {
        /// The file.
        ino: u64,
        /// First block.
        first: u32,
        /// Last block.
        last: u32,
    },
    /// The item has this value now.
    Put {
        /// Encoded key.
        key: [u8; Key::LEN],
        /// Value.
        value: Vec<u8>,
    },
    /// The item does not exist any more.
    Delete {
        /// Encoded key.
        key: [u8; Key::LEN],
    },
    /// A Drained segment is Clean after this batch.
    Release {
        /// The segment.
        segment: u32,
        /// Its stamp: its place in the order of allocation.
        stamp: u64,
    },
    /// Blocks from `block` of `ino` on, `count` of them, are those from `address` on, in one segment,
    /// which is Placed from now on if it was Clean.
    Map {
        /// The file.
        ino: u64,
        /// First block of the file.
        block: u32,
        /// How many.
        count: u32,
        /// Address of the first.
        address: u64,
    },
}

impl Change {
    /// Whether a delta on this volume may say all this, whatever was there before.
    pub fn are_sound(changes: &[Self], superblock: &Superblock) -> bool {
        changes.iter().all(|change| change.is_sound(superblock))
            && Self::maps_fit(changes, &superblock.layout)
    }

    fn is_sound(&self, superblock: &Superblock) -> bool {
        match *self {
            Self::NextIno(next) => next < COUNT_KEPT_MAX,
            Self::Unmap { first, last, .. } => first <= last,
            Self::Put { key, ref value } => {
                is_sayable(&Key::decode(&key)) && value.len() <= VALUE_LEN_MAX
            }
            Self::Delete { key } => is_sayable(&Key::decode(&key)),
            // The usage table knows.
            Self::Release { .. } => true,
            Self::Map { .. } => {
                superblock.placement != DataPlacement::Log
                    && self.mapped_segment(&superblock.layout).is_some()
            }
        }
    }

    /// The segment of a `Map`, if its blocks are all in one and those of a file.
    pub fn mapped_segment(&self, layout: &Layout) -> Option<u32> {
        let Self::Map { block, count, address, .. } = *self else { return None };
        let last = count.checked_sub(1)?;
        block.checked_add(last)?;
        let segment = layout.segment_of(address)?;
        (layout.segment_of(address + u64::from(last)) == Some(segment)).then_some(segment)
    }

    /// Whether the `Map`s of one delta place no more blocks in a segment than it has. A few bytes that
    /// place the same blocks again and again would take all memory there is.
    fn maps_fit(changes: &[Self], layout: &Layout) -> bool {
        let mut placed = BTreeMap::new();
        changes.iter().all(|change| {
            let Self::Map { count, .. } = *change else { return true };
            let Some(segment) = change.mapped_segment(layout) else { return false };
            let sum = placed.entry(segment).or_insert(0_u64);
            *sum += u64::from(count);
            *sum <= u64::from(layout.segment_blocks)
        })
    }

    /// Decodes a whole delta whose chunk is at block `at`.
    pub fn decode_all(mut bytes: &[u8], at: u64) -> Result<Vec<Self>, Corruption> {
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            let (change, len) = codec::decode(bytes).ok_or(Corruption::new(
                Structure::Delta,
                at,
                CorruptionKind::Value,
            ))?;
            changes.push(change);
            bytes = &bytes[len..];
        }
        Ok(changes)
    }
}

/// Whether deltas name such items: mappings follow from summaries, usage from the checkpoint.
pub fn is_sayable(key: &Key) -> bool {
    let kind = ItemKind::decode(key.kind);
    kind.is_some_and(|kind| !matches!(kind, ItemKind::Mapping | ItemKind::Usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_placed_once() {
        let layout = Layout::new(1 << 16, 256, 0).expect("it fits");
        let map = |ino, segment, block, count| {
            let address = layout.segment_address(segment) + block;
            Change::Map { ino, block: 0, count, address }
        };
        let whole = [map(20, 7, 0, 256), map(20, 8, 0, 100), map(21, 8, 100, 156)];
        assert!(Change::maps_fit(&whole, &layout));
        assert!(!Change::maps_fit(&[map(20, 7, 0, 256), map(21, 7, 0, 1)], &layout));
        assert!(!Change::maps_fit(&[map(20, 7, 200, 100)], &layout), "it reaches into the next");
    }
}
