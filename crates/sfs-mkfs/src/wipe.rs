//! Wiping: old content must not be recognized again.
//!
//! Afterwards the superblocks, the checkpoint slots and all [`signatures::ranges`] are zero and
//! durable. The caller decides whether wiping is allowed.

use std::ops::Range;

use sfs_core::format::{CHECKPOINT_SLOT_BLOCKS, LOCATOR_ADDRESS, Layout, SUPERBLOCK_ADDRESS};
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

use crate::signatures;

/// Blocks of one request.
const REQUEST_BLOCKS: u64 = 256;

/// Blocks of one discard: 1 GiB, so that an interrupt does not wait for a whole disk.
const DISCARD_BLOCKS: u64 = 1 << 18;

/// Zeroes the ranges of old marks, and the superblocks and checkpoint slots of the new volume.
pub(crate) fn wipe(device: &dyn Device, layout: &Layout) -> Result<(), DeviceError> {
    let block_size = BLOCK_SIZE as u64;
    // The superblocks go first: without them an interrupted run leaves no old volume.
    let last = device.geometry().block_count - 1;
    for superblock in [LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, last, layout.backup] {
        zero(device, superblock..superblock + 1)?;
    }
    device.flush()?;
    for range in signatures::ranges(device.geometry().block_count * block_size) {
        zero(device, range.start / block_size..range.end / block_size)?;
    }
    for slot in layout.slots {
        zero(device, slot..slot + CHECKPOINT_SLOT_BLOCKS)?;
    }
    device.flush()
}

/// Discards all blocks, and wipes again, since the content of a discarded block is undefined.
pub(crate) fn discard(device: &dyn Device, layout: &Layout) -> Result<(), DeviceError> {
    let block_count = device.geometry().block_count;
    for start in (0..block_count).step_by(DISCARD_BLOCKS as usize) {
        device.discard(start, DISCARD_BLOCKS.min(block_count - start))?;
    }
    wipe(device, layout)
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
}
