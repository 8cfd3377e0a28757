//! The form of an image: a header and records with checksums. `docs/sfs-ctl.md` states the bytes.
//!
//! The checksum of each record continues that of the one before, so no record can be left out, repeated or moved, and
//! the last one says that the image is complete.

use std::fmt;
use std::io::{self, Read, Write};

use sfs_core::format::{LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS};
use sfs_device::{BLOCK_SIZE, Block, DeviceError};
use sfs_mkfs::Human;

/// Beginning of an image.
const MAGIC: [u8; 8] = *b"SFSimage";

/// Version of the form.
const VERSION: u32 = 1;

/// Length of the header in bytes.
const HEADER_LEN: usize = 64;

/// Length of a record without its content.
const RECORD_LEN: usize = 32;

/// Maximum number of blocks of a record.
pub(super) const RECORD_BLOCKS_MAX: usize = 256;

/// Error of an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file is no image.
    #[error("is not an image of an SFS volume")]
    Magic,
    /// A later version of SFS has made the image.
    #[error("image version {0} is newer than this program knows")]
    Version(u32),
    /// The image ends before its end mark.
    #[error("the image is cut off after {0} records")]
    CutOff(u64),
    /// A checksum is wrong, or a field has an impossible value.
    #[error("the image is damaged at record {0}")]
    Damaged(u64),
    /// The mount was not frozen until the last block was read.
    #[error("the mount has thawed by itself meanwhile; the copy is useless")]
    Thawed,
    /// The superblock in the image is not one of the volume.
    #[error("the image has no sound superblock")]
    Superblock,
    /// There are bytes after the end mark.
    #[error("the image has bytes after its end")]
    Excess,
    /// The device is too small.
    #[error("the device has {device} bytes, and the volume {volume}")]
    TooSmall {
        /// Size of the device.
        device: u64,
        /// Size of the volume.
        volume: u64,
    },
    /// A device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A copy that was made or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Number of blocks with content.
    pub blocks: u64,
    /// Number of blocks of the volume.
    pub volume_blocks: u64,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |blocks: u64| Human(blocks * BLOCK_SIZE as u64);
        write!(f, "{} of a volume of {}", bytes(self.blocks), bytes(self.volume_blocks))
    }
}

/// Header of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageHeader {
    /// Number of blocks of the volume.
    pub(super) block_count: u64,
    /// Number that the structures of the volume repeat.
    pub(super) volume: u64,
    pub(super) uuid: [u8; 16],
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// Blocks that follow.
    Blocks,
    /// Blocks of zeros, which do not follow.
    Zeros,
    /// End of the image; the address is the number of blocks of all records.
    End,
}

/// Record of an image, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: RecordKind,
    /// Number of blocks.
    pub(super) count: u32,
    /// Address of the first block.
    pub(super) address: u64,
}

impl ImageHeader {
    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.block_count.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.volume.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.uuid);
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, ImageError> {
        if bytes[..8] != MAGIC {
            return Err(ImageError::Magic);
        }
        let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if version > VERSION {
            return Err(ImageError::Version(version));
        }
        let checksum = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let is_sound = version == VERSION && checksum == crc32c::crc32c(&bytes[16..]);
        let header = Self {
            block_count: number(16),
            volume: number(24),
            uuid: bytes[32..48].try_into().expect("sixteen bytes"),
        };
        // Volumes have less than 2^40 blocks.
        match is_sound && (1..1 << 40).contains(&header.block_count) {
            true => Ok(header),
            false => Err(ImageError::Damaged(0)),
        }
    }
}

impl Record {
    /// Returns the record's bytes without the checksum, which is zero.
    fn encode(&self, number: u64) -> [u8; RECORD_LEN] {
        let kind: u32 = match self.kind {
            RecordKind::Blocks => 1,
            RecordKind::Zeros => 2,
            RecordKind::End => 3,
        };
        let mut bytes = [0; RECORD_LEN];
        bytes[..4].copy_from_slice(b"SFSr");
        bytes[8..12].copy_from_slice(&kind.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..32].copy_from_slice(&number.to_le_bytes());
        bytes
    }
}

/// Writer of an image.
pub(super) struct ImageWriter<'a> {
    out: &'a mut dyn Write,
    checksum: u32,
    number: u64,
    /// Number of blocks of all records.
    blocks: u64,
}

impl<'a> ImageWriter<'a> {
    /// Writes `header` to `out`.
    pub(super) fn begin(out: &'a mut dyn Write, header: &ImageHeader) -> io::Result<Self> {
        let bytes = header.encode();
        out.write_all(&bytes)?;
        let checksum = crc32c::crc32c(&bytes);
        Ok(Self { out, checksum, number: 1, blocks: 0 })
    }

    /// Writes a record with `count` blocks from `address` on: `content`, or zeros without content.
    pub(super) fn put(&mut self, address: u64, count: u32, content: &[Block]) -> io::Result<()> {
        let kind = if content.is_empty() { RecordKind::Zeros } else { RecordKind::Blocks };
        self.blocks += u64::from(count);
        self.write(Record { kind, count, address }, Block::bytes_of(content))
    }

    /// Writes the end mark; returns the number of blocks of all records.
    pub(super) fn end(mut self) -> io::Result<u64> {
        let blocks = self.blocks;
        self.write(Record { kind: RecordKind::End, count: 0, address: blocks }, &[])?;
        Ok(blocks)
    }

    fn write(&mut self, record: Record, content: &[u8]) -> io::Result<()> {
        let mut bytes = record.encode(self.number);
        let sum = crc32c::crc32c_append(self.checksum, &bytes[8..]);
        self.checksum = crc32c::crc32c_append(sum, content);
        bytes[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        self.number += 1;
        self.out.write_all(&bytes)?;
        self.out.write_all(content)
    }
}

/// Reader of an image.
pub(super) struct ImageReader<'a> {
    input: &'a mut dyn Read,
    checksum: u32,
    number: u64,
    blocks: u64,
    block_count: u64,
}

/// Reads the header of an image.
pub(super) fn read_header(input: &mut dyn Read) -> Result<ImageHeader, ImageError> {
    let mut bytes = [0; HEADER_LEN];
    input.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ImageError::Magic,
        _ => error.into(),
    })?;
    ImageHeader::decode(&bytes)
}

impl<'a> ImageReader<'a> {
    /// Reads the records that follow `header`.
    pub(super) fn after(input: &'a mut dyn Read, header: &ImageHeader) -> Self {
        let checksum = crc32c::crc32c(&header.encode());
        Self { input, checksum, number: 1, blocks: 0, block_count: header.block_count }
    }

    /// Reads the next record into `content`, which has room for the longest one; `None` at the end of a complete image.
    /// A record that is returned has its checksum, and lies within the volume.
    pub(super) fn next(&mut self, content: &mut [Block]) -> Result<Option<Record>, ImageError> {
        let number = self.number;
        let cut_off = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ImageError::CutOff(number - 1),
            _ => error.into(),
        };
        let mut bytes = [0; RECORD_LEN];
        self.input.read_exact(&mut bytes).map_err(cut_off)?;
        let record = self.decode(&bytes).ok_or(ImageError::Damaged(number))?;
        let stored = match record.kind {
            RecordKind::Blocks => Block::bytes_of_mut(&mut content[..record.count as usize]),
            RecordKind::Zeros | RecordKind::End => &mut [],
        };
        self.input.read_exact(stored).map_err(cut_off)?;
        let sum = crc32c::crc32c_append(self.checksum, &bytes[8..]);
        self.checksum = crc32c::crc32c_append(sum, stored);
        if bytes[4..8] != self.checksum.to_le_bytes() {
            return Err(ImageError::Damaged(number));
        }
        self.number += 1;
        self.blocks += u64::from(record.count);
        if record.kind != RecordKind::End {
            return Ok(Some(record));
        }
        match self.input.read(&mut [0])? {
            0 => Ok(None),
            _ => Err(ImageError::Excess),
        }
    }

    /// Returns the number of blocks of the records so far.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    fn decode(&self, bytes: &[u8; RECORD_LEN]) -> Option<Record> {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let (count, address) = (half(12), number(16));
        let kind = match half(8) {
            1 => RecordKind::Blocks,
            2 => RecordKind::Zeros,
            3 => RecordKind::End,
            _ => return None,
        };
        let is_sound = match kind {
            RecordKind::End => count == 0 && address == self.blocks,
            RecordKind::Blocks | RecordKind::Zeros => {
                // A superblock has a record of its own, which a restore holds back until the end.
                let superblocks = [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, self.block_count - 1];
                let end = address.checked_add(count.into());
                (1..=RECORD_BLOCKS_MAX as u32).contains(&count)
                    && end.is_some_and(|end| {
                        let has_superblock =
                            superblocks.iter().any(|at| (address..end).contains(at));
                        end <= self.block_count && (count == 1 || !has_superblock)
                    })
            }
        };
        let is_next = bytes.starts_with(b"SFSr") && number(24) == self.number && is_sound;
        is_next.then_some(Record { kind, count, address })
    }
}

const _: () = assert!(RECORD_BLOCKS_MAX * BLOCK_SIZE <= 1 << 20, "a record fits the buffers");
