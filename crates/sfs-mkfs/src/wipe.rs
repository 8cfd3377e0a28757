//! Wiping: old content must not be recognized again.
//!
//! Afterwards the superblocks, the checkpoint slots and all [`signatures::ranges`] are zero and
//! durable. The caller decides whether wiping is allowed.

use std::ops::Range;

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, ChunkSummary, LOCATOR_ADDRESS, Layout, NodeHeader, SUPERBLOCK_ADDRESS,
};
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

use crate::signatures;

/// Number of blocks of one request.
const REQUEST_BLOCKS: u64 = 256;

/// Number of blocks of one discard: 1 GiB, so that a signal does not wait for the discard of a
/// whole disk.
const DISCARD_BLOCKS: u64 = 1 << 18;

/// Zeroes the ranges of old signatures, and the superblocks and checkpoint slots of the new volume.
pub(crate) fn wipe(device: &dyn Device, layout: &Layout) -> Result<(), DeviceError> {
    // The superblocks go first, so that an interrupted run leaves no volume that can be mounted.
    let last = device.geometry().block_count - 1;
    for superblock in [LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, last, layout.backup] {
        zero(device, superblock..superblock + 1)?;
    }
    device.flush()?;
    wipe_signatures(device)?;
    for slot in layout.slots {
        zero(device, slot..slot + CHECKPOINT_SLOT_BLOCKS)?;
    }
    device.flush()
}

/// Zeroes the ranges where signatures can be, without a flush.
pub(crate) fn wipe_signatures(device: &dyn Device) -> Result<(), DeviceError> {
    let block_size = BLOCK_SIZE as u64;
    for range in signatures::ranges(device.geometry().block_count * block_size) {
        zero(device, range.start / block_size..range.end / block_size)?;
    }
    Ok(())
}

/// Discards all blocks, and wipes again, since the content of a discarded block is undefined.
pub(crate) fn discard(device: &dyn Device, layout: &Layout) -> Result<(), DeviceError> {
    let block_count = device.geometry().block_count;
    for start in (0..block_count).step_by(DISCARD_BLOCKS as usize) {
        device.discard(start, DISCARD_BLOCKS.min(block_count - start))?;
    }
    wipe(device, layout)
}

/// Zeroes every block that begins like a chunk or node of the volume with number `volume`. A repair
/// of a new volume with the same number would take such a block for its own. Reads the whole
/// device, and reports the number of bytes done, and of all bytes, to `progress`.
pub fn erase_volume(
    device: &dyn Device,
    volume: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), DeviceError> {
    let block_count = device.geometry().block_count;
    let mut blocks = Block::zeroed(REQUEST_BLOCKS as usize);
    for start in (0..block_count).step_by(REQUEST_BLOCKS as usize) {
        let end = block_count.min(start + REQUEST_BLOCKS);
        let read = &mut blocks[..(end - start) as usize];
        device.read(start, read)?;
        let is_old = |block: &Block| {
            ChunkSummary::begins(&block.0, volume) || NodeHeader::begins(&block.0, volume)
        };
        let old = (start..).zip(&*read).filter(|(_, block)| is_old(block));
        let old: Vec<u64> = old.map(|(at, _)| at).collect();
        for run in old.chunk_by(|a, b| a + 1 == *b) {
            zero(device, run[0]..run[0] + run.len() as u64)?;
        }
        progress(end * BLOCK_SIZE as u64, block_count * BLOCK_SIZE as u64);
    }
    device.flush()
}

fn zero(device: &dyn Device, blocks: Range<u64>) -> Result<(), DeviceError> {
    let zeros = Block::zeroed(REQUEST_BLOCKS as usize);
    for start in blocks.clone().step_by(REQUEST_BLOCKS as usize) {
        let count = REQUEST_BLOCKS.min(blocks.end - start);
        device.write(start, &[&zeros[..count as usize]], Stream::default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sfs_device::RamDevice;

    use super::*;

    #[test]
    fn wiping_zeroes_slots_and_superblocks() {
        let device = RamDevice::new(16 << 10);
        let layout = Layout::new(16 << 10, 256, 0).expect("a layout");
        let ones = [Block([1; BLOCK_SIZE])];
        let places = [4, 5, layout.slots[0], layout.slots[1] + 15, layout.backup];
        for at in places {
            device.write(at, &[&ones], Stream::default()).expect("a write");
        }
        wipe(&device, &layout).expect("wiping");
        for at in places {
            let mut block = Block::zeroed(1);
            device.read(at, &mut block).expect("a read");
            assert_eq!(block[0], Block::ZERO, "block {at}");
        }
    }

    #[test]
    fn only_blocks_of_the_volume_are_erased() {
        let (count, volume) = (2 * REQUEST_BLOCKS + 3, 7u64);
        let device = RamDevice::new(count);
        let begun = |magic: &[u8; 4], of: u64| {
            let mut block = Block([1; BLOCK_SIZE]);
            block.0[..4].copy_from_slice(magic);
            block.0[8..16].copy_from_slice(&of.to_le_bytes());
            block
        };
        let last = count - 1;
        let old = [(0, b"SFSc"), (1, b"SFSn"), (REQUEST_BLOCKS, b"SFSn"), (last, b"SFSc")];
        let others = [(2, b"SFSc", 8), (3, b"SFSx", 7), (last - 1, b"SFSn", 8)];
        let all = old.iter().map(|(at, magic)| (*at, *magic, volume)).chain(others);
        for (at, magic, of) in all {
            device.write(at, &[&[begun(magic, of)]], Stream::default()).expect("a write");
        }
        let mut done = 0;
        erase_volume(&device, volume, &mut |bytes, _| done = bytes).expect("the volume is erased");
        assert_eq!(done, count * BLOCK_SIZE as u64);
        let content = |at: u64| {
            let mut block = Block::zeroed(1);
            device.read(at, &mut block).expect("a read");
            block[0].clone()
        };
        old.iter().for_each(|(at, _)| assert_eq!(content(*at), Block::ZERO, "block {at}"));
        for (at, magic, of) in others {
            assert_eq!(content(at), begun(magic, of), "block {at}");
        }
    }
}
