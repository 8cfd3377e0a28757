//! Chunks: each is one append to a head, of summary blocks and the blocks that the summary
//! describes.
//!
//! The summary blocks hold the header, one entry for each block that follows, and a part of the batch's delta. A
//! *batch* is a run of chunks with consecutive sequence numbers, the last of which has the END flag. A batch takes
//! effect as a whole or not at all.

use sfs_device::BLOCK_SIZE;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{COUNT_MAX, Corruption, CorruptionKind, DeltaForm, Head, History, LogEra, Structure};
use crate::mutant::{Mutant, mutated};

const MAGIC: [u8; 4] = *b"SFSc";
const UNSUMMED: usize = 8;
const FLAG_END: u8 = 1;
const FLAG_TAGGED: u8 = 2;

const KIND_DATA: u8 = 1;
const KIND_NODE: u8 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    checksum: U32,
    volume: U64,
    sequence: U64,
    address: U64,
    previous: U32,
    entry_count: U32,
    delta_len: U32,
    time: U32,
    head: u8,
    flags: u8,
    era_mount: U32,
    era_first: U64,
    reserved: [u8; 2],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    ino: U64,
    block: U32,
    checksum: U32,
    modified: U32,
    writes: U16,
    kind: u8,
    reserved: u8,
}

const HEADER_LEN: usize = 64;
const ENTRY_LEN: usize = 24;
const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);
const _: () = assert!(size_of::<RawEntry>() == ENTRY_LEN);

/// Returns the length in bytes of a summary with `entry_count` entries and no delta.
pub fn summary_len(entry_count: usize) -> usize {
    HEADER_LEN + entry_count * ENTRY_LEN
}

/// Returns the number of blocks of a summary with `entry_count` entries and `delta_len` bytes of
/// delta.
pub fn summary_blocks(entry_count: usize, delta_len: usize) -> usize {
    (summary_len(entry_count) + delta_len).div_ceil(BLOCK_SIZE)
}

/// The owner of a block of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryEntry {
    /// Block `block` of file `ino`.
    Data {
        /// Inode number of the file.
        ino: u64,
        /// Block number in the file.
        block: u32,
        /// CRC-32C of the block.
        checksum: u32,
        /// History of the block, as in the mapping.
        history: History,
    },
    /// A tree node.
    Node {
        /// Checksum in the node's header.
        checksum: u32,
    },
}

impl SummaryEntry {
    fn encode(&self) -> RawEntry {
        let (ino, block, checksum, history, kind) = match *self {
            Self::Data { ino, block, checksum, history } => {
                (ino, block, checksum, history, KIND_DATA)
            }
            Self::Node { checksum } => (0, 0, checksum, History::default(), KIND_NODE),
        };
        RawEntry {
            ino: ino.into(),
            block: block.into(),
            checksum: checksum.into(),
            modified: history.modified.into(),
            writes: history.writes.into(),
            kind,
            reserved: 0,
        }
    }

    fn decode(raw: &RawEntry) -> Option<Self> {
        match raw.kind {
            KIND_DATA => Some(Self::Data {
                ino: raw.ino.get(),
                block: raw.block.get(),
                checksum: raw.checksum.get(),
                history: History { writes: raw.writes.get(), modified: raw.modified.get() },
            }),
            KIND_NODE => Some(Self::Node { checksum: raw.checksum.get() }),
            _ => None,
        }
    }
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Number of the volume, [`Superblock::volume`](super::Superblock::volume).
    pub volume: u64,
    /// Position in the log; consecutive over all heads.
    pub sequence: u64,
    /// Block address of the chunk itself.
    pub address: u64,
    /// Checksum of the chunk before this one in sequence; a stale chunk of an earlier use of the
    /// segment does not match.
    pub previous: u32,
    /// Time of writing, in ticks.
    pub time: u32,
    /// Head that wrote the chunk.
    pub head: Head,
    /// `true` for the last chunk of its batch.
    pub end: bool,
    /// Encoding of the changes of its batch.
    pub form: DeltaForm,
}

impl ChunkHeader {
    fn flags(&self) -> u8 {
        let tagged = match self.form {
            DeltaForm::Plain => 0,
            DeltaForm::Tagged => FLAG_TAGGED,
        };
        tagged | if self.end { FLAG_END } else { 0 }
    }
}

/// A verified summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkSummary {
    /// The header.
    pub header: ChunkHeader,
    /// Owners of the blocks after the summary, in order.
    pub entries: Vec<SummaryEntry>,
    /// Part of the batch's delta in this chunk.
    pub delta: Vec<u8>,
    /// Checksum of the chunk, which the next chunk repeats.
    pub checksum: u32,
}

/// Check of a summary, block by block.
#[derive(Clone, Copy, Debug)]
pub struct SummaryCheck {
    /// Sequence number of the chunk.
    pub sequence: u64,
    /// Number of blocks of the summary.
    pub summary_blocks: u32,
    /// Number of blocks of the chunk, those of the summary included.
    pub blocks: u32,
    checksum: u32,
    sum: u32,
}

impl SummaryCheck {
    /// Adds the next blocks of the summary.
    pub fn add(&mut self, bytes: &[u8]) {
        self.sum = crc32c::crc32c_append(self.sum, bytes);
    }

    /// Returns whether the checksum is right; all blocks of the summary were added.
    pub fn is_sound(&self) -> bool {
        self.sum == self.checksum
    }
}

impl ChunkSummary {
    /// Returns the number of blocks of the whole chunk, summary included.
    pub fn block_count(&self) -> u64 {
        (self.summary_blocks() + self.entries.len()) as u64
    }

    /// Returns the number of blocks of the summary.
    pub fn summary_blocks(&self) -> usize {
        summary_blocks(self.entries.len(), self.delta.len())
    }

    /// Writes a summary of an unknown era as [`ChunkSummary::encode_in_era`] does.
    pub fn encode(
        header: &ChunkHeader,
        entries: &[SummaryEntry],
        delta: &[u8],
        bytes: &mut [u8],
    ) -> u32 {
        Self::encode_in_era(header, LogEra::UNKNOWN, entries, delta, bytes)
    }

    /// Writes a summary of `era` over `bytes`, which have the length of [`summary_blocks`], and returns its checksum.
    pub fn encode_in_era(
        header: &ChunkHeader,
        era: LogEra,
        entries: &[SummaryEntry],
        delta: &[u8],
        bytes: &mut [u8],
    ) -> u32 {
        assert_eq!(bytes.len(), summary_blocks(entries.len(), delta.len()) * BLOCK_SIZE);
        let mut raw = RawHeader {
            magic: MAGIC,
            checksum: U32::ZERO,
            volume: header.volume.into(),
            sequence: header.sequence.into(),
            address: header.address.into(),
            previous: header.previous.into(),
            entry_count: (entries.len() as u32).into(),
            delta_len: (delta.len() as u32).into(),
            time: header.time.into(),
            head: header.head.0,
            flags: header.flags(),
            era_mount: era.mount.into(),
            era_first: era.first_sequence.into(),
            reserved: [0; 2],
        };
        let (head, rest) = bytes.split_at_mut(HEADER_LEN);
        let (table, rest) = rest.split_at_mut(entries.len() * ENTRY_LEN);
        for (slot, entry) in table.chunks_exact_mut(ENTRY_LEN).zip(entries) {
            slot.copy_from_slice(entry.encode().as_bytes());
        }
        rest[..delta.len()].copy_from_slice(delta);
        rest[delta.len()..].fill(0);
        head.copy_from_slice(raw.as_bytes());
        let checksum = crc32c::crc32c(&bytes[UNSUMMED..]);
        raw.checksum = checksum.into();
        bytes[..HEADER_LEN].copy_from_slice(raw.as_bytes());
        checksum
    }

    /// Returns the number of blocks of the summary whose first block is `first`, read at block
    /// `at`. The chunk must fit in `room` blocks. The checksum is not verified here:
    /// [`ChunkSummary::decode`] verifies it with all blocks of the summary.
    pub fn peek(first: &[u8], at: u64, room: u64) -> Result<usize, Corruption> {
        let wrong = |kind| Corruption::in_block(Structure::Chunk, at, kind);
        let (raw, _) =
            RawHeader::read_from_prefix(first).map_err(|_| wrong(CorruptionKind::Length))?;
        if raw.magic != MAGIC {
            return Err(wrong(CorruptionKind::Magic));
        }
        let (entries, delta) = (u64::from(raw.entry_count.get()), u64::from(raw.delta_len.get()));
        let len = HEADER_LEN as u64 + entries * ENTRY_LEN as u64 + delta;
        let blocks = len.div_ceil(BLOCK_SIZE as u64);
        if blocks + entries > room {
            return Err(wrong(CorruptionKind::Length));
        }
        Ok(blocks as usize)
    }

    /// Begins to verify the summary whose first block is `first`, without the memory for all of it.
    ///
    /// # Errors
    ///
    /// Those of [`ChunkSummary::peek`], and a wrong volume or address.
    pub fn begin_check(
        first: &[u8],
        volume: u64,
        at: u64,
        room: u64,
    ) -> Result<SummaryCheck, Corruption> {
        let wrong = |kind| Corruption::in_block(Structure::Chunk, at, kind);
        let summary_blocks = Self::peek(first, at, room)? as u32;
        let (raw, _) =
            RawHeader::read_from_prefix(first).map_err(|_| wrong(CorruptionKind::Length))?;
        if raw.volume.get() != volume {
            return Err(wrong(CorruptionKind::Volume));
        }
        if raw.address.get() != at {
            return Err(wrong(CorruptionKind::Address));
        }
        Ok(SummaryCheck {
            sequence: raw.sequence.get(),
            summary_blocks,
            blocks: summary_blocks + raw.entry_count.get(),
            checksum: raw.checksum.get(),
            sum: crc32c::crc32c(&first[UNSUMMED..]),
        })
    }

    /// Returns whether `first` begins like a summary of volume `volume`. The rest of the summary is not
    /// verified.
    pub fn begins(first: &[u8], volume: u64) -> bool {
        RawHeader::ref_from_prefix(first)
            .is_ok_and(|(raw, _)| raw.magic == MAGIC && raw.volume.get() == volume)
    }

    /// Returns the address in bytes that begin like a summary of volume `volume`; `None` for others.
    pub(super) fn address_of(first: &[u8], volume: u64) -> Option<u64> {
        let (raw, _) = RawHeader::ref_from_prefix(first).ok()?;
        Self::begins(first, volume).then(|| raw.address.get())
    }

    /// Returns the era in a summary whose first block is `first`. The checksum is not verified here.
    pub fn era_of(first: &[u8]) -> LogEra {
        let raw = RawHeader::read_from_prefix(first).ok();
        raw.map_or(LogEra::UNKNOWN, |(raw, _)| LogEra {
            mount: raw.era_mount.get(),
            first_sequence: raw.era_first.get(),
        })
    }

    /// Verifies and decodes the summary blocks `bytes`, read at block `at` of volume `volume`.
    /// The blocks that follow it are verified by their entries' checksums.
    pub fn decode(bytes: &[u8], volume: u64, at: u64) -> Result<Self, Corruption> {
        let wrong = |kind| Corruption::in_block(Structure::Chunk, at, kind);
        let (raw, rest) =
            RawHeader::read_from_prefix(bytes).map_err(|_| wrong(CorruptionKind::Length))?;
        if raw.magic != MAGIC {
            return Err(wrong(CorruptionKind::Magic));
        }
        let is_sound = raw.checksum.get() == crc32c::crc32c(&bytes[UNSUMMED..]);
        if !is_sound && !mutated(Mutant::TornSummary) {
            return Err(wrong(CorruptionKind::Checksum));
        }
        if raw.volume.get() != volume {
            return Err(wrong(CorruptionKind::Volume));
        }
        if raw.address.get() != at {
            return Err(wrong(CorruptionKind::Address));
        }
        let (entry_count, delta_len) =
            (raw.entry_count.get() as usize, raw.delta_len.get() as usize);
        let table_len = entry_count.checked_mul(ENTRY_LEN).filter(|len| *len <= rest.len());
        let (table, rest) = rest.split_at(table_len.ok_or(wrong(CorruptionKind::Length))?);
        if delta_len > rest.len()
            || summary_blocks(entry_count, delta_len) * BLOCK_SIZE != bytes.len()
        {
            return Err(wrong(CorruptionKind::Length));
        }
        if raw.flags & !(FLAG_END | FLAG_TAGGED) != 0 || raw.sequence.get() >= COUNT_MAX {
            return Err(wrong(CorruptionKind::Value));
        }
        let raws =
            <[RawEntry]>::ref_from_bytes(table).map_err(|_| wrong(CorruptionKind::Length))?;
        let entries = raws.iter().map(SummaryEntry::decode).collect::<Option<_>>();
        Ok(Self {
            header: ChunkHeader {
                volume,
                sequence: raw.sequence.get(),
                address: at,
                previous: raw.previous.get(),
                time: raw.time.get(),
                head: Head(raw.head),
                end: raw.flags & FLAG_END != 0,
                form: match raw.flags & FLAG_TAGGED {
                    0 => DeltaForm::Plain,
                    _ => DeltaForm::Tagged,
                },
            },
            entries: entries.ok_or(wrong(CorruptionKind::Value))?,
            delta: rest[..delta_len].to_vec(),
            checksum: raw.checksum.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_is_read_as_it_was_written() {
        let header = ChunkHeader {
            volume: 7,
            sequence: 40,
            address: 64,
            previous: 1,
            time: 2,
            head: Head::METADATA,
            end: true,
            form: DeltaForm::Tagged,
        };
        let mut bytes = vec![0; BLOCK_SIZE];
        for era in [LogEra::UNKNOWN, LogEra::of_mount(3, 33), LogEra::of_mount(1 << 40, 1 << 60)] {
            ChunkSummary::encode_in_era(&header, era, &[], &[1], &mut bytes);
            assert_eq!(ChunkSummary::era_of(&bytes), era);
            let summary = ChunkSummary::decode(&bytes, 7, 64).expect("a summary");
            assert_eq!((summary.header, summary.delta), (header, vec![1]));
        }
        ChunkSummary::encode(&header, &[], &[1], &mut bytes);
        assert!(!ChunkSummary::era_of(&bytes).is_known());
        assert!(LogEra::of_mount(1, 0).is_known());
        assert!(LogEra::of_mount(2, 5) > LogEra::of_mount(1, 9));
    }
}
