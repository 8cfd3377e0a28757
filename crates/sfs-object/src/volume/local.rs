//! The local cache: two headers, two maps, and a sparse image of the volume.
//!
//! The map of regions that are *ahead* says which regions may have content that the store does not have. Its bit is durable before the
//! region is written, and the region is whole by then. The map of present pages is written when the use ends, and counts only then: after a crash every
//! page of a region that is not ahead is read from the store again.
//!
//! Header, little-endian: 0: magic, 8: sequence number, 16: id of the volume, 32: blocks of the volume, 40: blocks of a region, 48: epoch whose state
//! the image continues, 56: epoch that was claimed and perhaps published since, 64: closed, 65: number of the newest manifest of the state's epoch that is
//! known to be published (7 bytes, 0 for none), 72: CRC-32C of bytes 0 to 71.

use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use sfs_device::{Block, Device, DeviceError, Geometry, ReadRun, Stream};

use super::shape::{BITS_PER_BLOCK, Shape};
use crate::name::Epoch;

const MAGIC: [u8; 8] = *b"SFSlocal";
const CHECKSUM_AT: usize = 72;

/// Header of a local cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalHeader {
    pub(crate) sequence: u64,
    pub(crate) id: [u8; 16],
    pub(crate) shape: Shape,
    /// Epoch whose state the image continues.
    pub(crate) state_epoch: Epoch,
    /// Epoch that was claimed since; its first manifest may be published.
    pub(crate) claimed_epoch: Epoch,
    /// `true` if the map of present pages counts.
    pub(crate) is_closed: bool,
    /// Number of the newest manifest of `state_epoch` that is known to be published, or 0.
    pub(crate) manifest: u64,
}

impl LocalHeader {
    /// Returns the newest header on `device`, of a volume of any shape, or `None` if it has none.
    pub(crate) fn read(device: &dyn Device) -> Result<Option<Self>, DeviceError> {
        let mut blocks = Block::zeroed(2);
        device.read(0, &mut blocks)?;
        let headers = blocks.iter().filter_map(Self::decode);
        Ok(headers.max_by_key(|header| header.sequence))
    }

    fn encode(&self) -> Box<[Block]> {
        let mut blocks = Block::zeroed(1);
        let bytes = &mut blocks[0].0;
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(8, &self.sequence.to_le_bytes());
        put(16, &self.id);
        put(32, &self.shape.volume_blocks.to_le_bytes());
        put(40, &self.shape.region_blocks.to_le_bytes());
        put(48, &self.state_epoch.0.to_le_bytes());
        put(56, &self.claimed_epoch.0.to_le_bytes());
        put(64, &[u8::from(self.is_closed)]);
        // No writer comes near larger numbers.
        put(65, &self.manifest.to_le_bytes()[..7]);
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]).to_le_bytes();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum);
        blocks
    }

    fn decode(block: &Block) -> Option<Self> {
        let bytes = &block.0;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]).to_le_bytes();
        if bytes[..8] != MAGIC || bytes[CHECKSUM_AT..CHECKSUM_AT + 4] != checksum {
            return None;
        }
        let shape = Shape { volume_blocks: number(32), region_blocks: number(40) };
        shape.is_sound().then_some(Self {
            sequence: number(8),
            id: bytes[16..32].try_into().expect("16 bytes"),
            shape,
            state_epoch: Epoch(number(48)),
            claimed_epoch: Epoch(number(56)),
            is_closed: bytes[64] == 1,
            manifest: number(64) >> 8,
        })
    }
}

/// The local cache.
pub(crate) struct Local {
    /// Headers and maps.
    device: Arc<dyn Device>,
    pub(crate) image: Image,
    pub(crate) shape: Shape,
}

/// The image of the volume in the local cache.
pub(crate) struct Image {
    device: Arc<dyn Device>,
    begin: u64,
}

impl Image {
    pub(crate) fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.device.read(self.begin + address, buffer)
    }

    pub(crate) fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        runs.iter_mut().for_each(|run| run.address += self.begin);
        let results = self.device.read_many(runs);
        runs.iter_mut().for_each(|run| run.address -= self.begin);
        results
    }

    pub(crate) fn write(
        &self,
        address: u64,
        parts: &[&[Block]],
        stream: Stream,
    ) -> Result<(), DeviceError> {
        self.device.write(self.begin + address, parts, stream)
    }

    pub(crate) fn discard(&self, blocks: Range<u64>) -> Result<(), DeviceError> {
        self.device.discard(self.begin + blocks.start, blocks.end - blocks.start)
    }
}

impl Local {
    pub(crate) fn new(device: Arc<dyn Device>, shape: Shape) -> Self {
        let image = Image { device: device.clone(), begin: shape.image() };
        Self { device, image, shape }
    }

    /// Makes what was written durable, in the image and in the maps.
    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    /// Returns the geometry of a volume in this cache.
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry { block_count: self.shape.volume_blocks, ..self.device.geometry().clone() }
    }

    /// Returns the newest header, of a volume of any shape, or `None` if the device has none.
    pub(crate) fn header(&self) -> Result<Option<LocalHeader>, DeviceError> {
        LocalHeader::read(&*self.device)
    }

    /// Writes the header with the next sequence number, durably. After an error the header before is still there.
    pub(crate) fn set_header(&self, header: &mut LocalHeader) -> Result<(), DeviceError> {
        self.device.flush()?;
        let before = *header;
        self.note_header(header)?;
        self.device.flush().inspect_err(|_| *header = before)
    }

    /// Writes the header as [`Local::set_header`] does, but durably only with the next flush. There is one before the next header, and no
    /// map depends on this one.
    pub(crate) fn note_header(&self, header: &mut LocalHeader) -> Result<(), DeviceError> {
        let next = LocalHeader { sequence: header.sequence + 1, ..*header };
        self.device.write(next.sequence % 2, &[&next.encode()], Stream::default())?;
        *header = next;
        Ok(())
    }

    /// Reads the map of regions that are ahead.
    pub(crate) fn ahead(&self) -> Result<FixedBitSet, DeviceError> {
        self.read_map(self.shape.ahead_map(), self.shape.regions())
    }

    /// Reads the map of pages that are present.
    pub(crate) fn present(&self) -> Result<FixedBitSet, DeviceError> {
        self.read_map(self.shape.present_map(), self.shape.pages())
    }

    /// Writes the blocks of the map of regions ahead that have the bits of `regions`.
    pub(crate) fn write_ahead(
        &self,
        ahead: &FixedBitSet,
        regions: impl IntoIterator<Item = u64>,
    ) -> Result<(), DeviceError> {
        let mut last = None;
        for block in regions.into_iter().map(|region| region / BITS_PER_BLOCK) {
            if last.replace(block) != Some(block) {
                self.write_map_block(self.shape.ahead_map(), ahead, block)?;
            }
        }
        Ok(())
    }

    /// Writes the map of pages that are present.
    pub(crate) fn write_present(&self, present: &FixedBitSet) -> Result<(), DeviceError> {
        let blocks = self.shape.pages().div_ceil(BITS_PER_BLOCK);
        (0..blocks).try_for_each(|no| self.write_map_block(self.shape.present_map(), present, no))
    }

    /// Makes a new cache without content, for a volume with this id. The image may have any content afterwards, since a device need not
    /// return zeros after a discard.
    pub(crate) fn reset(&self, id: [u8; 16]) -> Result<LocalHeader, DeviceError> {
        // Without a header the maps and the image do not count, so a crash from here on leaves an empty cache.
        let zeros = Block::zeroed(2);
        self.device.write(0, &[&zeros], Stream::default())?;
        self.device.flush()?;
        self.image.discard(0..self.shape.volume_blocks)?;
        self.write_ahead(&bits(self.shape.regions()), 0..self.shape.regions())?;
        let (state_epoch, claimed_epoch) = (Epoch(0), Epoch(0));
        Ok(LocalHeader {
            sequence: 0,
            id,
            shape: self.shape,
            state_epoch,
            claimed_epoch,
            is_closed: false,
            manifest: 0,
        })
    }

    fn read_map(&self, begin: u64, len: u64) -> Result<FixedBitSet, DeviceError> {
        let mut map = bits(len);
        let mut block = Block::zeroed(1);
        for no in 0..len.div_ceil(BITS_PER_BLOCK) {
            self.device.read(begin + no, &mut block)?;
            let bytes = block[0].0.iter().enumerate().filter(|(_, byte)| **byte != 0);
            for (at, byte) in bytes {
                let first = (no * BITS_PER_BLOCK) as usize + at * 8;
                let set = (0..8).filter(|bit| byte >> bit & 1 == 1).map(|bit| first + bit);
                set.filter(|bit| (*bit as u64) < len).for_each(|bit| map.insert(bit));
            }
        }
        Ok(map)
    }

    fn write_map_block(&self, begin: u64, map: &FixedBitSet, no: u64) -> Result<(), DeviceError> {
        let mut block = Block::zeroed(1);
        let first = (no * BITS_PER_BLOCK) as usize;
        let end = (first + BITS_PER_BLOCK as usize).min(map.len());
        for bit in (first..end).filter(|bit| map.contains(*bit)) {
            block[0].0[(bit - first) / 8] |= 1 << (bit % 8);
        }
        self.device.write(begin + no, &[&block], Stream::default())
    }
}

/// Returns a map of `len` bits that are not set.
pub(crate) fn bits(len: u64) -> FixedBitSet {
    FixedBitSet::with_capacity(len as usize)
}
