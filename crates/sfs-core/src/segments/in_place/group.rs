//! Block groups as in ext2, the paper's baseline: the segment of the inode's group, or the next one with a free
//! block.

use super::scheme::{FreeSpaceView, Scheme};

/// Number of blocks per inode, as in ext2.
const BLOCKS_PER_INODE: u64 = 2;

pub(super) struct BlockGroups;

impl Scheme for BlockGroups {
    fn choose(&mut self, space: &FreeSpaceView<'_>, ino: u64) -> Option<u32> {
        let inodes = u64::from(space.bitmap.segment_blocks()) / BLOCKS_PER_INODE;
        let first = ino / inodes % u64::from(space.count());
        space.around(first as u32).next().map(|(segment, _)| segment)
    }

    fn fills_up(&self) -> bool {
        false
    }
}
