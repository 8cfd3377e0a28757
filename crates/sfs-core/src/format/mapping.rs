//! Block mappings: where a file's block is, what it must contain, and how hot it is.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Corruption, CorruptionKind, History, ItemKind, Key, Structure};

/// Blocks whose mappings share one item.
pub const RUN_BLOCKS: u32 = 32;

/// Addresses have 40 bits: 4 PiB.
const ADDRESS_MAX: u64 = (1 << 40) - 1;

/// The block is stored as it is.
const ENCODING_PLAIN: u8 = 1;

/// The block is stored as it is, and overwritten in place: it has no checksum.
const ENCODING_PLACED: u8 = 2;

/// The item that holds the mapping of `block` of `ino`.
pub fn run_key(ino: u64, block: u32) -> Key {
    Key::new(ino, ItemKind::Mapping, u64::from(block / RUN_BLOCKS))
}

/// Where one block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Device address, in blocks; below 2^40.
    pub address: u64,
    /// CRC-32C of the block; none if it is overwritten in place, which could not change both at once.
    pub checksum: Option<u32>,
    /// What is remembered of its writes.
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
    /// A block that is overwritten in place at `address`. It has no history: an overwriting leaves the
    /// mapping as it is.
    pub fn placed(address: u64) -> Self {
        Self { address, checksum: None, history: History::default() }
    }

    fn encode(self) -> RawMapping {
        debug_assert!(self.address <= ADDRESS_MAX);
        RawMapping {
            address_low: U32::new(self.address as u32),
            address_high: (self.address >> 32) as u8,
            encoding: if self.checksum.is_some() { ENCODING_PLAIN } else { ENCODING_PLACED },
            writes: self.history.writes.into(),
            modified: self.history.modified.into(),
            checksum: self.checksum.unwrap_or_default().into(),
        }
    }

    fn decode(raw: &RawMapping) -> Option<Self> {
        let checksum = match raw.encoding {
            ENCODING_PLAIN => Some(raw.checksum.get()),
            ENCODING_PLACED => None,
            _ => return None,
        };
        Some(Self {
            address: u64::from(raw.address_high) << 32 | u64::from(raw.address_low.get()),
            checksum,
            history: History { writes: raw.writes.get(), modified: raw.modified.get() },
        })
    }
}

/// The mappings of [`RUN_BLOCKS`] neighbouring blocks: a bitmap of those that exist, and they.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingRun {
    slots: [Option<Mapping>; RUN_BLOCKS as usize],
}

impl MappingRun {
    /// The mapping of `block` (of the file) in the encoded run `value`, without decoding the rest.
    pub fn find(value: &[u8], key: &Key, block: u32) -> Result<Option<Mapping>, Corruption> {
        let (bitmap, raws) = Self::split(value, key)?;
        let bit = 1u32 << (block % RUN_BLOCKS);
        if bitmap & bit == 0 {
            return Ok(None);
        }
        let index = (bitmap & (bit - 1)).count_ones() as usize;
        Mapping::decode(&raws[index]).map(Some).ok_or(Corruption::new(
            Structure::Item,
            key.ino,
            CorruptionKind::Value,
        ))
    }

    /// Decodes an item's value.
    pub fn decode(value: &[u8], key: &Key) -> Result<Self, Corruption> {
        let (bitmap, raws) = Self::split(value, key)?;
        let mut run = Self::default();
        let present = (0..RUN_BLOCKS).filter(|slot| bitmap & (1 << slot) != 0);
        for (slot, raw) in present.zip(raws) {
            let mapping = Mapping::decode(raw).ok_or(Corruption::new(
                Structure::Item,
                key.ino,
                CorruptionKind::Value,
            ))?;
            run.slots[slot as usize] = Some(mapping);
        }
        Ok(run)
    }

    fn split<'a>(value: &'a [u8], key: &Key) -> Result<(u32, &'a [RawMapping]), Corruption> {
        let wrong = Corruption::new(Structure::Item, key.ino, CorruptionKind::Length);
        let (bitmap, rest) = U32::read_from_prefix(value).map_err(|_| wrong)?;
        let raws = <[RawMapping]>::ref_from_bytes(rest).map_err(|_| wrong)?;
        if raws.is_empty() || raws.len() != bitmap.get().count_ones() as usize {
            return Err(wrong);
        }
        Ok((bitmap.get(), raws))
    }

    /// The item's value, appended to `value`. An empty run has no item.
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
    }

    /// The mapping of `block` (of the file).
    pub fn get(&self, block: u32) -> Option<Mapping> {
        self.slots[(block % RUN_BLOCKS) as usize]
    }

    /// Maps `block`, and gives what it was.
    pub fn set(&mut self, block: u32, mapping: Option<Mapping>) -> Option<Mapping> {
        std::mem::replace(&mut self.slots[(block % RUN_BLOCKS) as usize], mapping)
    }

    /// Whether no block is mapped.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// The mapped blocks of the run that begins at block `first`, ascending.
    pub fn iter(&self, first: u32) -> impl Iterator<Item = (u32, Mapping)> {
        let present = |(block, slot): (u64, Option<Mapping>)| Some((block as u32, slot?));
        (u64::from(first)..).zip(self.slots).filter_map(present)
    }
}
