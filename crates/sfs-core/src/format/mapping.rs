//! Block mappings: address, checksum and write history of a file's block.
//!
//! The mappings of 32 neighbouring blocks are one tree item, a [`MappingRun`].

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::tolerance::Class;
use super::{
    Corruption, CorruptionKind, DecodeError, Encoding, History, Incompatibility, ItemKind, Key,
    Tolerance, VALUE_LEN_MAX,
};

/// Number of blocks whose mappings share one item.
pub const RUN_BLOCKS: u32 = 32;

/// Highest address: addresses have 40 bits, for 4 PiB.
const ADDRESS_MAX: u64 = (1 << 40) - 1;

/// Returns the key of the item with the mapping of `block` of `ino`.
pub fn run_key(ino: u64, block: u32) -> Key {
    Key::new(ino, ItemKind::Mapping, u64::from(block / RUN_BLOCKS))
}

/// The mapping of one block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Device address, in blocks; below 2^40.
    pub address: u64,
    /// CRC-32C of the block; `None` for a block that is overwritten in place, because no single
    /// write could change both the block and its checksum.
    pub checksum: Option<u32>,
    /// History of the block's writes.
    pub history: History,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMapping {
    address_low: U32,
    address_high: u8,
    encoding: u8,
    writes: U16,
    modified: U32,
    checksum: U32,
}

const RAW_LEN: usize = 16;
const _: () = assert!(size_of::<RawMapping>() == RAW_LEN);

impl Mapping {
    /// Returns the mapping of a block that is overwritten in place at `address`. An overwrite does
    /// not change the mapping, so the mapping has no history.
    pub fn in_place(address: u64) -> Self {
        Self { address, checksum: None, history: History::default() }
    }

    fn encode(self) -> RawMapping {
        debug_assert!(self.address <= ADDRESS_MAX);
        RawMapping {
            address_low: U32::new(self.address as u32),
            address_high: (self.address >> 32) as u8,
            encoding: match self.checksum {
                Some(_) => Encoding::Plain as u8,
                None => Encoding::InPlace as u8,
            },
            writes: self.history.writes.into(),
            modified: self.history.modified.into(),
            checksum: self.checksum.unwrap_or_default().into(),
        }
    }

    fn decode(raw: &RawMapping, ino: u64, tolerance: Tolerance) -> Result<Self, DecodeError> {
        let checksum = match (Encoding::decode(raw.encoding), tolerance) {
            (Some(Encoding::Plain), _) => Some(raw.checksum.get()),
            (Some(Encoding::InPlace), _) => None,
            (_, Tolerance::Newer) if raw.encoding != 0 => {
                return Err(Incompatibility::Encoding { encoding: raw.encoding, ino }.into());
            }
            _ => return Err(Corruption::in_item(ino, CorruptionKind::Value).into()),
        };
        Ok(Self {
            address: u64::from(raw.address_high) << 32 | u64::from(raw.address_low.get()),
            checksum,
            history: History { writes: raw.writes.get(), modified: raw.modified.get() },
        })
    }
}

/// The mappings of [`RUN_BLOCKS`] neighbouring blocks: a bitmap of the mapped ones, and their mappings.
///
/// Extension records about the whole run may follow. This program knows no such record, and preserves the
/// records that may be skipped while the run has a mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingRun {
    slots: [Option<Mapping>; RUN_BLOCKS as usize],
    /// The extension records, encoded.
    records: Vec<u8>,
}

impl MappingRun {
    /// Returns the mapping of `block` (of the file) in the encoded run `value`, without decoding the other mappings: damage of
    /// those is not found.
    ///
    /// # Errors
    ///
    /// As [`MappingRun::decode`], of this mapping, the bitmap, the lengths and the records.
    pub fn find(
        value: &[u8],
        key: &Key,
        block: u32,
        tolerance: Tolerance,
    ) -> Result<Option<Mapping>, DecodeError> {
        let (bitmap, raws, records) = Self::split(value, key)?;
        check_records(records, key.ino)?;
        let bit = 1u32 << (block % RUN_BLOCKS);
        if bitmap & bit == 0 {
            return Ok(None);
        }
        let index = (bitmap & (bit - 1)).count_ones() as usize;
        Mapping::decode(&raws[index], key.ino, tolerance).map(Some)
    }

    /// Decodes an item's value.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Incompatible`] for a record that must not be skipped, and, if `tolerance` allows newer programs,
    /// for an unknown encoding. [`DecodeError::Corrupt`] for damage.
    pub fn decode(value: &[u8], key: &Key, tolerance: Tolerance) -> Result<Self, DecodeError> {
        let (bitmap, raws, records) = Self::split(value, key)?;
        check_records(records, key.ino)?;
        let mut run = Self { records: records.to_vec(), ..Self::default() };
        let present = (0..RUN_BLOCKS).filter(|slot| bitmap & (1 << slot) != 0);
        for (slot, raw) in present.zip(raws) {
            run.slots[slot as usize] = Some(Mapping::decode(raw, key.ino, tolerance)?);
        }
        Ok(run)
    }

    /// Splits a value into bitmap, mappings and extension records.
    fn split<'a>(
        value: &'a [u8],
        key: &Key,
    ) -> Result<(u32, &'a [RawMapping], &'a [u8]), Corruption> {
        let wrong = Corruption::in_item(key.ino, CorruptionKind::Length);
        let (bitmap, rest) = U32::read_from_prefix(value).map_err(|_| wrong)?;
        let bitmap = bitmap.get();
        let (raws, records) =
            <[RawMapping]>::ref_from_prefix_with_elems(rest, bitmap.count_ones() as usize)
                .map_err(|_| wrong)?;
        if raws.is_empty() || records.len() > RECORDS_LEN_MAX {
            return Err(wrong);
        }
        Ok((bitmap, raws, records))
    }

    /// Appends the item's value to `value`. An empty run has no item.
    pub fn encode(&self, value: &mut Vec<u8>) {
        let mut bitmap = 0u32;
        value.extend_from_slice(&[0; 4]);
        for (slot, mapping) in self.slots.iter().enumerate() {
            if let Some(mapping) = mapping {
                bitmap |= 1 << slot;
                value.extend_from_slice(mapping.encode().as_bytes());
            }
        }
        value[..4].copy_from_slice(U32::new(bitmap).as_bytes());
        value.extend_from_slice(&self.records);
    }

    /// Returns the mapping of `block` (of the file).
    pub fn get(&self, block: u32) -> Option<Mapping> {
        self.slots[(block % RUN_BLOCKS) as usize]
    }

    /// Sets the mapping of `block` and returns the old one.
    pub fn set(&mut self, block: u32, mapping: Option<Mapping>) -> Option<Mapping> {
        std::mem::replace(&mut self.slots[(block % RUN_BLOCKS) as usize], mapping)
    }

    /// Returns the extension records, encoded.
    pub fn records(&self) -> &[u8] {
        &self.records
    }

    /// Returns whether no block is mapped.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Returns the mapped blocks of the run, whose first block is `first`, ascending.
    pub fn iter(&self, first: u32) -> impl Iterator<Item = (u32, Mapping)> {
        let present = |(block, slot): (u64, Option<Mapping>)| Some((block as u32, slot?));
        (u64::from(first)..).zip(self.slots).filter_map(present)
    }
}

impl MappingRun {
    /// Number of bytes that each mapping adds to an item's value.
    pub const MAPPING_LEN: usize = RAW_LEN;

    /// Number of bytes of an item's value besides mappings and extension records.
    pub const HEAD_LEN: usize = 4;
}

/// Maximum length in bytes of extension records: the room beside the mappings of a full run.
const RECORDS_LEN_MAX: usize = VALUE_LEN_MAX - MappingRun::HEAD_LEN - RUN_BLOCKS as usize * RAW_LEN;

/// The header of an extension record.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordHeader {
    tag: u8,
    class: u8,
    len: U16,
}

/// Checks that the extension records of a run of `ino` are well-formed, ascend by tag, and may be skipped.
fn check_records(mut records: &[u8], ino: u64) -> Result<(), DecodeError> {
    let wrong = |kind| Corruption::in_item(ino, kind);
    let mut last = None;
    while !records.is_empty() {
        let (RecordHeader { tag, class, len }, rest) =
            RecordHeader::read_from_prefix(records).map_err(|_| wrong(CorruptionKind::Length))?;
        records = rest.get(usize::from(len.get())..).ok_or(wrong(CorruptionKind::Length))?;
        if last >= Some(tag) {
            return Err(wrong(CorruptionKind::Order).into());
        }
        last = Some(tag);
        match Class::decode(class).ok_or(wrong(CorruptionKind::Value))? {
            Class::Skip => {}
            Class::Refuse => return Err(Incompatibility::RunRecord { tag, ino }.into()),
        }
    }
    Ok(())
}
