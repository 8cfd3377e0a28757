//! Deltas: what changed in the tree since the last one.
//!
//! A delta is the concatenation of encoded [`Change`]s, a net effect that is applied whole: first
//! every `Unmap`, then every `Put` and `Delete`, then the mappings that the summaries of the same
//! batch imply and those of every `Map`, then every `Release`.
//!
//! Each change says its kind, its class and its length, so that a program that does not know the kind can
//! pass over it or refuse, as the class says. In volumes of version 1 changes have neither.

use std::collections::BTreeMap;

use bincode::{Decode, Encode};

use super::{
    COUNT_KEPT_MAX, ChunkSummary, Class, Corruption, CorruptionKind, DataLayout, DecodeError,
    Incompatibility, ItemKind, Key, Layout, Structure, Superblock, Tolerance, VALUE_LEN_MAX, codec,
};

/// Bytes of the longest delta. No commit says more: changes are written out long before.
pub const DELTA_LEN_MAX: usize = 256 << 20;

/// How changes are written; all chunks of a batch agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeltaForm {
    /// As in version 1: a number and the fields of that change.
    Plain,
    /// With kind, class and length before the fields.
    Tagged,
}

/// Number of kinds that this program knows, from 0 on.
const KINDS: u16 = 6;

/// Bytes of the number with which bincode begins a change: its kind, and all there is in version 1.
const NUMBER_LEN: usize = 4;

/// One change of the tree. Kinds are numbered in this order.
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
                is_sayable(&Key::decode(&key), superblock.tolerance())
                    && value.len() <= VALUE_LEN_MAX
            }
            Self::Delete { key } => is_sayable(&Key::decode(&key), superblock.tolerance()),
            // The usage table knows.
            Self::Release { .. } => true,
            Self::Map { .. } => {
                superblock.data_layout != DataLayout::Log
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

    /// Bytes before the fields of a change: kind, class, a zero byte, and the length of the fields.
    pub const HEADER_LEN: usize = 8;

    /// Appends the change to a delta.
    pub fn append(&self, delta: &mut Vec<u8>) {
        let start = delta.len();
        delta.extend_from_slice(&[0; Self::HEADER_LEN - NUMBER_LEN]);
        codec::append(self, delta);
        let len = (delta.len() - start - Self::HEADER_LEN) as u32;
        let header = &mut delta[start..start + Self::HEADER_LEN];
        // The number is where the length goes.
        let kind = [header[4], header[5]];
        header[..2].copy_from_slice(&kind);
        header[2] = Class::Refuse as u8;
        header[4..].copy_from_slice(&len.to_le_bytes());
    }

    /// Decodes the delta of a whole batch, whose first chunk names it in errors. Changes that may be
    /// passed over are left out.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Incompatible`] for a change that must not be passed over, and damage.
    pub fn decode_batch(batch: &[ChunkSummary]) -> Result<Vec<Self>, DecodeError> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let (at, form) = (first.header.address, first.header.form);
        if let Some(other) = batch.iter().find(|chunk| chunk.header.form != form) {
            let at = other.header.address;
            return Err(Corruption::new(Structure::Delta, at, CorruptionKind::Value).into());
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
        let wrong = Corruption::new(Structure::Delta, at, CorruptionKind::Value);
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
    /// The first change of a delta.
    fn split(delta: &'a [u8]) -> Option<Self> {
        let (header, rest) = delta.split_first_chunk::<{ Change::HEADER_LEN }>()?;
        let [kind_low, kind_high, class, _, len @ ..] = *header;
        Some(Self {
            kind: u16::from_le_bytes([kind_low, kind_high]),
            class: Class::decode(class)?,
            payload: rest.get(..u32::from_le_bytes(len) as usize)?,
        })
    }

    /// The change. A later program may have written more fields, which are ignored.
    fn decode(&self, scratch: &mut Vec<u8>) -> Option<Change> {
        let known = &self.payload[..self.payload.len().min(codec::RECORD_LEN_MAX)];
        scratch.clear();
        scratch.extend_from_slice(&u32::from(self.kind).to_le_bytes());
        scratch.extend_from_slice(known);
        codec::decode(scratch).map(|(change, _)| change)
    }
}

/// Whether deltas name such items: mappings follow from summaries, usage from the checkpoint.
pub fn is_sayable(key: &Key, tolerance: Tolerance) -> bool {
    let unsayable = [ItemKind::Mapping as u8, ItemKind::Usage as u8];
    tolerance.allows_kind(key.kind) && !unsayable.contains(&key.kind)
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
