//! Neighbouring blocks of a segment, read together.

use sfs_device::Block;

use crate::read::volume::VolumeReader;

/// Maximum number of blocks per read request.
const READ_BLOCKS: u32 = 256;

/// Window of blocks of one segment in memory.
#[derive(Default)]
pub(crate) struct ReadWindow {
    first: u32,
    /// Blocks from `first` on; `None` for an unreadable block.
    blocks: Vec<Option<Block>>,
}

impl ReadWindow {
    /// Returns block `block` of `segment`, if it is readable. All calls on one window are for one segment.
    pub(crate) fn block(
        &mut self,
        volume: &VolumeReader<'_>,
        segment: u32,
        block: u32,
    ) -> Option<&Block> {
        let end = self.first + self.blocks.len() as u32;
        if !(self.first..end).contains(&block) {
            self.fill(volume, segment, block);
        }
        self.blocks.get((block - self.first) as usize)?.as_ref()
    }

    fn fill(&mut self, volume: &VolumeReader<'_>, segment: u32, block: u32) {
        let layout = volume.layout();
        let count = READ_BLOCKS.min(layout.segment_blocks - block) as usize;
        let address = layout.segment_address(segment) + u64::from(block);
        let mut blocks = Block::zeroed(count);
        self.first = block;
        self.blocks = match volume.device.read(address, &mut blocks) {
            Ok(()) => blocks.into_vec().into_iter().map(Some).collect(),
            Err(_) => (address..).take(count).map(|at| read_one(volume, at)).collect(),
        };
    }
}

fn read_one(volume: &VolumeReader<'_>, address: u64) -> Option<Block> {
    let mut block = Block::zeroed(1);
    volume.device.read(address, &mut block).ok()?;
    block.into_vec().pop()
}
