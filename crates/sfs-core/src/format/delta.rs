//! Deltas: the changes of the tree since the last delta.
//!
//! A delta is the concatenation of encoded [`Change`]s. The changes are a net effect that is applied as a whole: first every
//! `Unmap`, then every `Put` and `Delete`, then the mappings that the summaries of the same batch imply and those of
//! every `Map`, then every `Release`.
//!
//! Each change is encoded with its kind, class and length. A program that does not know the kind skips the change or
//! refuses the delta, by its class. Changes of version 1 have neither class nor length.

use std::collections::BTreeMap;

use bincode::{Decode, Encode};

use super::tolerance::Class;
use super::{
    COUNT_KEPT_MAX, ChunkSummary, Corruption, CorruptionKind, DataLayout, DecodeError, DeltaForm,
    Incompatibility, ItemKind, Key, Layout, Structure, Superblock, Tolerance, VALUE_LEN_MAX, codec,
};

/// Maximum length of a delta in bytes. Changes are written out long before a batch has so many
/// bytes.
pub const DELTA_LEN_MAX: usize = 256 << 20;

/// Number of kinds that this program knows; kinds are numbered from 0.
const KINDS: u16 = 6;

/// Length in bytes of the kind with which bincode begins a change; the whole header in version 1.
const NUMBER_LEN: usize = 4;

/// One change of the tree. The order of the variants numbers the kinds.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Change {
    /// Inode numbers below this one have been given out.
    NextIno(u64),
    /// Blocks `first..=last` of `ino` are no longer mapped.
    Unmap {
        /// Inode number of the file.
        ino: u64,
        /// First block.
        first: u32,
        /// Last block.
        last: u32,
    },
    /// Inserts the item or replaces its value.
    Put {
        /// Encoded key.
        key: [u8; Key::LEN],
        /// Value.
        value: Vec<u8>,
    },
    /// Removes the item.
    Delete {
        /// Encoded key.
        key: [u8; Key::LEN],
    },
    /// A Drained segment is Clean after this batch.
    Release {
        /// The segment.
        segment: u32,
        /// Stamp of the segment: its place in the order of allocation.
        stamp: u64,
    },
    /// Maps `count` blocks of `ino`, from `block` on, to the blocks from `address` on, in one segment. A Clean segment
    /// becomes InPlace.
    Map {
        /// Inode number of the file.
        ino: u64,
        /// First block of the file.
        block: u32,
        /// Number of blocks.
        count: u32,
        /// Address of the first block.
        address: u64,
    },
}

impl Change {
    /// Returns whether a delta of this volume may contain these changes, independent of the state before.
    pub fn are_sound(changes: &[Self], superblock: &Superblock) -> bool {
        changes.iter().all(|change| change.is_sound(superblock))
            && Self::maps_fit(changes, &superblock.layout)
    }

    fn is_sound(&self, superblock: &Superblock) -> bool {
        match *self {
            Self::NextIno(next) => next < COUNT_KEPT_MAX,
            Self::Unmap { first, last, .. } => first <= last,
            Self::Put { key, ref value } => {
                is_allowed_in_delta(&Key::decode(&key), superblock.tolerance())
                    && value.len() <= VALUE_LEN_MAX
            }
            Self::Delete { key } => is_allowed_in_delta(&Key::decode(&key), superblock.tolerance()),
            // The usage table checks the segment.
            Self::Release { .. } => true,
            Self::Map { .. } => {
                superblock.data_layout != DataLayout::Log
                    && self.mapped_segment(&superblock.layout).is_some()
            }
        }
    }

    /// Returns the segment of a `Map` whose blocks are all in one segment and in the range of a file.
    pub fn mapped_segment(&self, layout: &Layout) -> Option<u32> {
        let Self::Map { block, count, address, .. } = *self else { return None };
        let last = count.checked_sub(1)?;
        block.checked_add(last)?;
        let segment = layout.segment_of(address)?;
        (layout.segment_of(address + u64::from(last)) == Some(segment)).then_some(segment)
    }

    /// Returns whether the `Map`s of one delta map no more blocks of a segment than it has. A short forged delta that
    /// maps the same blocks again and again would take all memory.
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

    /// Number of bytes before the fields of a change: kind, class, a zero byte, and the length of
    /// the fields.
    pub const HEADER_LEN: usize = 8;

    /// Appends the change to a delta.
    pub fn append(&self, delta: &mut Vec<u8>) {
        let start = delta.len();
        delta.extend_from_slice(&[0; Self::HEADER_LEN - NUMBER_LEN]);
        codec::append(self, delta);
        let len = (delta.len() - start - Self::HEADER_LEN) as u32;
        let header = &mut delta[start..start + Self::HEADER_LEN];
        // bincode wrote the kind to the place of the length.
        let kind = [header[4], header[5]];
        header[..2].copy_from_slice(&kind);
        header[2] = Class::Refuse as u8;
        header[4..].copy_from_slice(&len.to_le_bytes());
    }

    /// Decodes the delta of a whole batch. Errors carry the address of the first chunk, or of the
    /// first chunk in another form. Unknown changes that may be skipped are left out.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Incompatible`] for a change that must not be skipped, and [`DecodeError::Corrupt`] for damage.
    pub fn decode_batch(batch: &[ChunkSummary]) -> Result<Vec<Self>, DecodeError> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let (at, form) = (first.header.address, first.header.form);
        if let Some(other) = batch.iter().find(|chunk| chunk.header.form != form) {
            let at = other.header.address;
            return Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Value).into());
        }
        let delta: Vec<u8> = batch.iter().flat_map(|chunk| chunk.delta.iter().copied()).collect();
        Self::decode_all(&delta, form, at)
    }

    /// Decodes a whole delta whose chunk is at block `at`.
    ///
    /// # Errors
    ///
    /// As [`Change::decode_batch`].
    pub fn decode_all(
        mut bytes: &[u8],
        form: DeltaForm,
        at: u64,
    ) -> Result<Vec<Self>, DecodeError> {
        let wrong = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
        let (mut changes, mut scratch) = (Vec::new(), Vec::new());
        while !bytes.is_empty() {
            let (change, len) = match form {
                DeltaForm::Plain => {
                    let (change, len) = codec::decode(bytes).ok_or(wrong)?;
                    (Some(change), len)
                }
                DeltaForm::Tagged => {
                    let tagged = Tagged::split(bytes).ok_or(wrong)?;
                    let change = match (tagged.kind, tagged.class) {
                        (0..KINDS, _) => Some(tagged.decode(&mut scratch).ok_or(wrong)?),
                        (_, Class::Skip) => None,
                        (kind, Class::Refuse) => Err(Incompatibility::Change { kind, at })?,
                    };
                    (change, Self::HEADER_LEN + tagged.payload.len())
                }
            };
            changes.extend(change);
            bytes = &bytes[len..];
        }
        Ok(changes)
    }
}

/// A change with its header, not yet decoded.
struct Tagged<'a> {
    kind: u16,
    class: Class,
    payload: &'a [u8],
}

impl<'a> Tagged<'a> {
    /// Splits the first change off a delta.
    fn split(delta: &'a [u8]) -> Option<Self> {
        let (header, rest) = delta.split_first_chunk::<{ Change::HEADER_LEN }>()?;
        let [kind_low, kind_high, class, _, len @ ..] = *header;
        Some(Self {
            kind: u16::from_le_bytes([kind_low, kind_high]),
            class: Class::decode(class)?,
            payload: rest.get(..u32::from_le_bytes(len) as usize)?,
        })
    }

    /// Decodes the change. Fields that a later program appended are ignored.
    fn decode(&self, scratch: &mut Vec<u8>) -> Option<Change> {
        let known = &self.payload[..self.payload.len().min(codec::RECORD_LEN_MAX)];
        scratch.clear();
        scratch.extend_from_slice(&u32::from(self.kind).to_le_bytes());
        scratch.extend_from_slice(known);
        codec::decode(scratch).map(|(change, _)| change)
    }
}

/// Returns whether a delta may contain items with `key`. Mappings follow from summaries and `Map`s, usage entries
/// from the checkpoint.
pub fn is_allowed_in_delta(key: &Key, tolerance: Tolerance) -> bool {
    let forbidden = [ItemKind::Mapping as u8, ItemKind::Usage as u8];
    tolerance.allows_kind(key.kind) && !forbidden.contains(&key.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_maps_each_block_of_a_segment_once() {
        let layout = Layout::new(1 << 16, 256, 0).expect("the layout fits");
        let map = |ino, segment, block, count| {
            let address = layout.segment_address(segment) + block;
            Change::Map { ino, block: 0, count, address }
        };
        let whole = [map(20, 7, 0, 256), map(20, 8, 0, 100), map(21, 8, 100, 156)];
        assert!(Change::maps_fit(&whole, &layout));
        assert!(!Change::maps_fit(&[map(20, 7, 0, 256), map(21, 7, 0, 1)], &layout));
        assert!(
            !Change::maps_fit(&[map(20, 7, 200, 100)], &layout),
            "the blocks reach into the next segment"
        );
    }
}
