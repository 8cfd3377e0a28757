//! The summary of a segment: the key, checksum and state of each of its blocks.
//!
//! A segment is written by one request, summary first. A summary that a crash has torn does not decode; a block that a crash
//! has torn does not have its checksum.

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"SFSe";

/// Place of a block in its medium: the object, and the block within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) object: u64,
    pub(crate) block: u64,
}

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: BlockKey,
    /// CRC-32C of the block.
    pub(crate) checksum: u32,
    /// `true` if the medium does not have the content yet. No cache of this version has such blocks.
    pub(crate) is_dirty: bool,
}

/// Summary of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The `filling` of the header when the segment was written.
    pub(crate) filling: u64,
    /// Number of the segment in the order of writing.
    pub(crate) sequence: u64,
    /// Blocks, in the order in which they follow the summary.
    pub(crate) entries: Vec<Entry>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSummary {
    magic: [u8; 4],
    checksum: U32,
    filling: U64,
    sequence: U64,
    count: U32,
    reserved: [u8; 36],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    object: U64,
    block: U64,
    checksum: U32,
    state: U32,
}

const HEAD_LEN: usize = 64;
const ENTRY_LEN: usize = 24;
const _: () = assert!(size_of::<RawSummary>() == HEAD_LEN && size_of::<RawEntry>() == ENTRY_LEN);

/// The checksum covers everything after itself.
const UNSUMMED: usize = 8;

const CLEAN: u32 = 1;
const DIRTY: u32 = 2;

/// Returns the number of blocks of the summaries of segments of `segment_blocks` blocks.
pub(crate) fn summary_blocks(segment_blocks: u32) -> u32 {
    let has_room = |blocks: &u32| {
        let entries = (segment_blocks - blocks) as usize * ENTRY_LEN;
        HEAD_LEN + entries <= *blocks as usize * BLOCK_SIZE
    };
    (1..segment_blocks).find(has_room).unwrap_or(segment_blocks)
}

impl Summary {
    /// Returns whether a block is nowhere else.
    pub(crate) fn has_dirty(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_dirty)
    }

    /// Returns the summary in `blocks` blocks.
    ///
    /// # Panics
    ///
    /// If the entries do not fit.
    pub(crate) fn encode(&self, blocks: u32) -> Box<[Block]> {
        let mut memory = Block::zeroed(blocks as usize);
        let bytes = Block::bytes_of_mut(&mut memory);
        let head = RawSummary {
            magic: MAGIC,
            checksum: U32::ZERO,
            filling: self.filling.into(),
            sequence: self.sequence.into(),
            count: (self.entries.len() as u32).into(),
            reserved: [0; 36],
        };
        bytes[..HEAD_LEN].copy_from_slice(head.as_bytes());
        let rooms = bytes[HEAD_LEN..].chunks_exact_mut(ENTRY_LEN);
        assert!(rooms.len() >= self.entries.len(), "the entries of a segment fit");
        for (room, entry) in rooms.zip(&self.entries) {
            let raw = RawEntry {
                object: entry.key.object.into(),
                block: entry.key.block.into(),
                checksum: entry.checksum.into(),
                state: if entry.is_dirty { DIRTY } else { CLEAN }.into(),
            };
            room.copy_from_slice(raw.as_bytes());
        }
        let len = HEAD_LEN + self.entries.len() * ENTRY_LEN;
        let checksum = crc32c::crc32c(&bytes[UNSUMMED..len]);
        bytes[4..UNSUMMED].copy_from_slice(&checksum.to_le_bytes());
        memory
    }

    /// Decodes a summary with at most `count_max` entries; `None` if it is damaged.
    pub(crate) fn decode(memory: &[Block], count_max: u32) -> Option<Self> {
        let bytes = Block::bytes_of(memory);
        let (head, _) = RawSummary::ref_from_prefix(bytes).ok()?;
        let count = head.count.get();
        if head.magic != MAGIC || count > count_max {
            return None;
        }
        let summed = bytes.get(UNSUMMED..HEAD_LEN + count as usize * ENTRY_LEN)?;
        if crc32c::crc32c(summed) != head.checksum.get() {
            return None;
        }
        let entries = bytes[HEAD_LEN..].chunks_exact(ENTRY_LEN).take(count as usize);
        let entries: Option<Vec<Entry>> = entries.map(entry).collect();
        Some(Self { filling: head.filling.get(), sequence: head.sequence.get(), entries: entries? })
    }
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let raw = RawEntry::ref_from_bytes(bytes).ok()?;
    let key = BlockKey { object: raw.object.get(), block: raw.block.get() };
    let is_dirty = match raw.state.get() {
        CLEAN => false,
        DIRTY => true,
        _ => return None,
    };
    Some(Entry { key, checksum: raw.checksum.get(), is_dirty })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let entry = |no: u64| Entry {
            key: BlockKey { object: 5, block: 100 + no },
            checksum: 7,
            is_dirty: no == 1,
        };
        Summary { filling: 3, sequence: 9, entries: (0..200).map(entry).collect() }
    }

    #[test]
    fn a_summary_is_read_as_it_was_written_and_has_these_bytes() {
        let blocks = summary().encode(2);
        assert_eq!(Summary::decode(&blocks, 200), Some(summary()));
        assert_eq!(Summary::decode(&blocks, 199), None, "more entries than blocks");
        let bytes = Block::bytes_of(&blocks);
        assert_eq!(&bytes[..4], b"SFSe");
        assert_eq!(&bytes[8..28], [3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0]);
        let second = [5, 0, 0, 0, 0, 0, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0];
        assert_eq!(&bytes[88..112], second);
        let mut torn = blocks.clone();
        torn[1] = Block::ZERO;
        assert_eq!(Summary::decode(&torn, 200), None, "the second block is missing");
    }

    #[test]
    fn summaries_have_room_for_all_other_blocks() {
        assert_eq!([16, 128, 512, 2048].map(summary_blocks), [1, 1, 3, 12]);
    }
}
