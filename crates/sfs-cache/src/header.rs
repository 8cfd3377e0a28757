//! The header of a cache, in two blocks that are written in turn.
//!
//! The sound block with the higher generation counts. A crash leaves the block before it.

use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::CacheError;
use crate::mutant::{Mutant, mutated};
use crate::policy::PolicyName;

const MAGIC: [u8; 8] = *b"SFScach\n";

/// Format version of a cache.
pub(crate) const VERSION: u32 = 1;

/// The two blocks of the header. The blocks before them stay zero, so that no other program takes the device for its own.
pub const HEADER_BLOCKS: [u64; 2] = [4, 5];

/// First block of the map of live blocks.
pub(crate) const MAP_FIRST: u64 = 16;

/// Largest number of sections.
pub const SECTIONS_MAX: usize = 16;

/// Smallest and largest number of blocks of a segment.
///
/// Freeing a segment checksums its blocks while readers and writers wait, for 4 MiB about a millisecond.
pub(crate) const SEGMENT_BLOCKS: [u32; 2] = [16, 1 << 10];

/// Smallest and largest number of blocks of an extent.
pub(crate) const EXTENT_BLOCKS: [u32; 2] = [1, 64];

/// The checksum covers everything after itself.
const UNSUMMED: usize = 12;

/// Part of the cache device with extents of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionPlan {
    /// First block.
    pub first: u64,
    /// Number of segments, at least 4.
    pub segment_count: u32,
    /// Number of blocks of an extent: a power of two, at most 64.
    pub extent_blocks: u32,
}

/// Identity, layout and state of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheHeader {
    /// Number of this state of the header.
    pub generation: u64,
    /// Identity of the cache, which the superblock of its volume repeats.
    pub cache_uuid: [u8; 16],
    /// Identity of the volume.
    pub volume_uuid: [u8; 16],
    /// Epoch of the last mount that used the cache, which the superblock had during that mount.
    pub epoch: [u8; 16],
    /// `true` if that mount has ended and has written the map of live blocks.
    pub is_closed: bool,
    /// Number that the summaries of segments repeat; an emptied cache has another one.
    pub filling: u64,
    /// Eviction policy.
    pub policy: PolicyName,
    /// Number of blocks of the device that the cache uses.
    pub block_count: u64,
    /// Number of blocks of a segment.
    pub segment_blocks: u32,
    /// Bytes written to the device since the cache was made.
    pub bytes_written: u64,
    /// Sections, 1 to 16, ascending and without overlap.
    pub sections: Vec<SectionPlan>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawSection {
    first: U64,
    segment_count: U32,
    extent_blocks: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    checksum: U32,
    version: U32,
    generation: U64,
    cache_uuid: [u8; 16],
    volume_uuid: [u8; 16],
    epoch: [u8; 16],
    filling: U64,
    block_count: U64,
    bytes_written: U64,
    segment_blocks: U32,
    section_count: U32,
    is_closed: u8,
    policy: u8,
    reserved: [u8; 6],
    sections: [RawSection; SECTIONS_MAX],
}

const RAW_LEN: usize = 112 + 16 * SECTIONS_MAX;
const _: () = assert!(size_of::<RawHeader>() == RAW_LEN);

impl CacheHeader {
    /// Reads the header of the cache on `device`.
    ///
    /// # Errors
    ///
    /// [`CacheError::NotACache`], [`CacheError::Newer`], [`CacheError::Truncated`] and errors of the device.
    pub fn read(device: &dyn Device) -> Result<Self, CacheError> {
        let mut found: Option<Self> = None;
        let mut failed = None;
        if device.geometry().block_count <= MAP_FIRST {
            return Err(CacheError::NotACache);
        }
        let mut blocks = Block::zeroed(1);
        for at in HEADER_BLOCKS {
            if let Err(error) = device.read(at, &mut blocks) {
                failed.get_or_insert(error);
                continue;
            }
            let Some(header) = Self::decode(&blocks[0])? else { continue };
            let is_newer = |before: &Self| {
                (header.generation > before.generation) != mutated(Mutant::OlderHeader)
            };
            if found.as_ref().is_none_or(is_newer) {
                found = Some(header);
            }
        }
        match (found, failed) {
            (Some(header), _) if header.block_count > device.geometry().block_count => {
                Err(CacheError::Truncated)
            }
            (Some(header), _) => Ok(header),
            (None, Some(error)) => Err(error.into()),
            (None, None) => Err(CacheError::NotACache),
        }
    }

    /// Writes this header as the next generation, and flushes before and after it.
    pub(crate) fn write(&mut self, device: &dyn Device) -> Result<(), DeviceError> {
        self.generation += 1;
        device.flush()?;
        let at = HEADER_BLOCKS[(self.generation % 2) as usize];
        device.write(at, &[&[self.encode()]], Stream::default())?;
        device.flush()
    }

    /// Returns the block of the header.
    pub(crate) fn encode(&self) -> Block {
        let none =
            RawSection { first: U64::ZERO, segment_count: U32::ZERO, extent_blocks: U32::ZERO };
        let mut sections = [none; SECTIONS_MAX];
        for (raw, section) in sections.iter_mut().zip(&self.sections) {
            *raw = RawSection {
                first: section.first.into(),
                segment_count: section.segment_count.into(),
                extent_blocks: section.extent_blocks.into(),
            };
        }
        let raw = RawHeader {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: VERSION.into(),
            generation: self.generation.into(),
            cache_uuid: self.cache_uuid,
            volume_uuid: self.volume_uuid,
            epoch: self.epoch,
            filling: self.filling.into(),
            block_count: self.block_count.into(),
            bytes_written: self.bytes_written.into(),
            segment_blocks: self.segment_blocks.into(),
            section_count: (self.sections.len() as u32).into(),
            is_closed: self.is_closed.into(),
            policy: self.policy as u8,
            reserved: [0; 6],
            sections,
        };
        let mut block = Block::ZERO;
        block.0[..RAW_LEN].copy_from_slice(raw.as_bytes());
        let checksum = crc32c::crc32c(&block.0[UNSUMMED..]);
        block.0[8..UNSUMMED].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Decodes a header; `None` if the block has none, or a damaged one.
    ///
    /// # Errors
    ///
    /// [`CacheError::Newer`] for a sound header of a later version.
    pub fn decode(block: &Block) -> Result<Option<Self>, CacheError> {
        let Ok((raw, _)) = RawHeader::ref_from_prefix(&block.0) else { return Ok(None) };
        if raw.magic != MAGIC || raw.checksum.get() != crc32c::crc32c(&block.0[UNSUMMED..]) {
            return Ok(None);
        }
        match raw.version.get() {
            VERSION => Ok(raw.header().filter(Self::is_sound)),
            version => Err(CacheError::Newer(version)),
        }
    }

    fn is_sound(&self) -> bool {
        let [least, most] = SEGMENT_BLOCKS;
        let is_segment = self.segment_blocks.is_power_of_two()
            && (least..=most).contains(&self.segment_blocks)
            && self.block_count < 1 << 40;
        let mut end = MAP_FIRST;
        let are_sections = self.sections.iter().all(|section| {
            let is_behind = section.first >= end;
            let [least, most] = EXTENT_BLOCKS;
            let is_extent = section.extent_blocks.is_power_of_two()
                && (least..=most).contains(&section.extent_blocks)
                && section.extent_blocks < self.segment_blocks;
            let blocks = u64::from(section.segment_count) * u64::from(self.segment_blocks);
            end = section.first.saturating_add(blocks);
            is_behind
                && is_extent
                && section.segment_count >= 4
                && end <= self.block_count
                && blocks < u64::from(u32::MAX)
        });
        let map_end = MAP_FIRST + crate::bitmap::block_count(self.bit_count());
        is_segment
            && are_sections
            && !self.sections.is_empty()
            && self.generation < 1 << 62
            && self.sections.first().is_some_and(|section| section.first >= map_end)
    }

    /// Returns the number of blocks in all segments.
    pub(crate) fn bit_count(&self) -> u64 {
        let segments = self.sections.iter().map(|section| u64::from(section.segment_count));
        segments.sum::<u64>() * u64::from(self.segment_blocks)
    }
}

impl RawHeader {
    fn header(&self) -> Option<CacheHeader> {
        let sections = self.sections.get(..self.section_count.get() as usize)?;
        let section = |raw: &RawSection| SectionPlan {
            first: raw.first.get(),
            segment_count: raw.segment_count.get(),
            extent_blocks: raw.extent_blocks.get(),
        };
        Some(CacheHeader {
            generation: self.generation.get(),
            cache_uuid: self.cache_uuid,
            volume_uuid: self.volume_uuid,
            epoch: self.epoch,
            is_closed: match self.is_closed {
                0 => false,
                1 => true,
                _ => return None,
            },
            filling: self.filling.get(),
            policy: PolicyName::by_code(self.policy)?,
            block_count: self.block_count.get(),
            segment_blocks: self.segment_blocks.get(),
            bytes_written: self.bytes_written.get(),
            sections: sections.iter().map(section).collect(),
        })
    }
}

const _: () = assert!(BLOCK_SIZE == 4096);

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> CacheHeader {
        CacheHeader {
            generation: 7,
            cache_uuid: [1; 16],
            volume_uuid: [2; 16],
            epoch: [3; 16],
            is_closed: true,
            filling: 0x0102_0304_0506_0708,
            policy: PolicyName::S3Fifo,
            block_count: 4096,
            segment_blocks: 512,
            bytes_written: 99,
            sections: vec![SectionPlan { first: 512, segment_count: 7, extent_blocks: 4 }],
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_has_these_bytes() {
        let block = header().encode();
        assert_eq!(CacheHeader::decode(&block).expect("this version"), Some(header()));
        assert_eq!(&block.0[..8], b"SFScach\n");
        assert_eq!(&block.0[12..24], [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&block.0[72..80], [8, 7, 6, 5, 4, 3, 2, 1], "filling");
        assert_eq!(&block.0[96..106], [0, 2, 0, 0, 1, 0, 0, 0, 1, 1], "512 blocks, a section");
        assert_eq!(&block.0[112..128], [0, 2, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(crc32c::crc32c(&block.0[12..]).to_le_bytes(), block.0[8..12]);
    }

    #[test]
    fn a_header_that_no_program_writes_does_not_decode() {
        let decodes = |change: &dyn Fn(&mut CacheHeader)| {
            let mut header = header();
            change(&mut header);
            CacheHeader::decode(&header.encode()).expect("this version").is_some()
        };
        assert!(decodes(&|_| ()));
        assert!(!decodes(&|header| header.segment_blocks = 500));
        assert!(!decodes(&|header| header.sections[0].extent_blocks = 0));
        assert!(!decodes(&|header| header.sections[0].first = 0));
        assert!(!decodes(&|header| header.sections[0].segment_count = 8));
        assert!(!decodes(&|header| header.sections.clear()));
        let mut torn = header().encode();
        torn.0[500] = 1;
        assert!(CacheHeader::decode(&torn).expect("this version").is_none());
        torn = header().encode();
        torn.0[12] = 2;
        let checksum = crc32c::crc32c(&torn.0[12..]).to_le_bytes();
        torn.0[8..12].copy_from_slice(&checksum);
        assert!(matches!(CacheHeader::decode(&torn), Err(CacheError::Newer(2))));
    }
}
