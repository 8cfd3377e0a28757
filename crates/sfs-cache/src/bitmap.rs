//! The map of live blocks: one bit for each block of the segments, written when a mount ends.
//!
//! Every block of the map repeats the epoch: a map of another mount, or a half-written one, is recognized.

use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

use crate::header::{CacheHeader, MAP_FIRST};

const MAGIC: [u8; 4] = *b"SFSm";

/// Bytes before the bits: magic number, checksum, epoch, number of the block, zeros.
const HEAD_LEN: usize = 32;

/// The checksum covers everything after itself.
const UNSUMMED: usize = 8;

/// Bits in a block.
const BLOCK_BITS: u64 = 8 * (BLOCK_SIZE - HEAD_LEN) as u64;

/// Number of blocks in a request.
const REQUEST_BLOCKS: usize = 256;

/// Returns the number of blocks of a map of `bits` bits.
pub(crate) fn block_count(bits: u64) -> u64 {
    bits.div_ceil(BLOCK_BITS)
}

/// Bits of the blocks of all segments, in their order on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveMap(Vec<u8>);

impl LiveMap {
    /// Returns a map of `bits` bits, none of which is set.
    pub(crate) fn new(bits: u64) -> Self {
        Self(vec![0; bits.div_ceil(8) as usize])
    }

    /// Sets a bit.
    pub(crate) fn set(&mut self, bit: u64) {
        self.0[(bit / 8) as usize] |= 1 << (bit % 8);
    }

    /// Returns whether a bit is set.
    pub(crate) fn is_set(&self, bit: u64) -> bool {
        self.0.get((bit / 8) as usize).is_some_and(|byte| byte & 1 << (bit % 8) != 0)
    }

    /// Writes the map of the mount with `header.epoch`, without a flush. Returns the number of bytes.
    pub(crate) fn write(
        &self,
        device: &dyn Device,
        header: &CacheHeader,
    ) -> Result<u64, DeviceError> {
        let parts: Vec<&[u8]> = self.0.chunks(BLOCK_SIZE - HEAD_LEN).collect();
        for (no, request) in parts.chunks(REQUEST_BLOCKS).enumerate() {
            let first = no * REQUEST_BLOCKS;
            let mut blocks = Block::zeroed(request.len());
            for (at, (block, bits)) in blocks.iter_mut().zip(request).enumerate() {
                block.0[..4].copy_from_slice(&MAGIC);
                block.0[8..24].copy_from_slice(&header.epoch);
                block.0[24..28].copy_from_slice(&((first + at) as u32).to_le_bytes());
                block.0[HEAD_LEN..][..bits.len()].copy_from_slice(bits);
                let checksum = crc32c::crc32c(&block.0[UNSUMMED..]);
                block.0[4..UNSUMMED].copy_from_slice(&checksum.to_le_bytes());
            }
            device.write(MAP_FIRST + first as u64, &[&blocks], Stream::default())?;
        }
        Ok((parts.len() * BLOCK_SIZE) as u64)
    }

    /// Reads the map of the mount with `header.epoch`; `None` if any part of it is damaged or of another mount.
    pub(crate) fn read(
        device: &dyn Device,
        header: &CacheHeader,
    ) -> Result<Option<Self>, DeviceError> {
        let mut map = Self::new(header.bit_count());
        let count = block_count(header.bit_count());
        let mut parts = map.0.chunks_mut(BLOCK_SIZE - HEAD_LEN);
        for first in (0..count).step_by(REQUEST_BLOCKS) {
            let mut blocks = Block::zeroed((count - first).min(REQUEST_BLOCKS as u64) as usize);
            device.read(MAP_FIRST + first, &mut blocks)?;
            for (no, block) in (first..).zip(&blocks) {
                let Some(part) = parts.next() else { return Ok(None) };
                if !is_part(block, header, no) {
                    return Ok(None);
                }
                part.copy_from_slice(&block.0[HEAD_LEN..][..part.len()]);
            }
        }
        Ok(Some(map))
    }
}

fn is_part(block: &Block, header: &CacheHeader, no: u64) -> bool {
    let is_whole = crc32c::crc32c(&block.0[UNSUMMED..]).to_le_bytes() == block.0[4..UNSUMMED];
    block.0[..4] == MAGIC
        && is_whole
        && block.0[8..24] == header.epoch
        && block.0[24..28] == (no as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use sfs_device::RamDevice;

    use super::*;
    use crate::header::SectionPlan;
    use crate::policy::PolicyName;

    #[test]
    fn a_map_of_another_mount_or_a_half_written_one_is_recognized() {
        let device = RamDevice::new(1 << 17);
        let sections = vec![SectionPlan { first: 512, segment_count: 200, extent_blocks: 4 }];
        let mut header = CacheHeader {
            generation: 1,
            cache_uuid: [1; 16],
            volume_uuid: [2; 16],
            epoch: [3; 16],
            is_closed: true,
            filling: 4,
            policy: PolicyName::Lru,
            block_count: 1 << 17,
            segment_blocks: 512,
            bytes_written: 0,
            sections,
        };
        let mut map = LiveMap::new(header.bit_count());
        (0..header.bit_count()).step_by(7).for_each(|bit| map.set(bit));
        assert!(map.is_set(7 * 1000) && !map.is_set(7 * 1000 + 1));
        assert_eq!(map.write(&device, &header).expect("RAM"), 4 * BLOCK_SIZE as u64);
        let read = |header: &CacheHeader| LiveMap::read(&device, header).expect("RAM");
        assert_eq!(read(&header), Some(map));
        header.epoch = [9; 16];
        assert_eq!(read(&header), None, "another epoch");
        header.epoch = [3; 16];
        let mut block = Block::zeroed(1);
        device.read(MAP_FIRST + 3, &mut block).expect("RAM");
        block[0].0[2048..].fill(0xff);
        device.write(MAP_FIRST + 3, &[&block], Stream::default()).expect("RAM");
        assert_eq!(read(&header), None, "a torn block");
    }
}
