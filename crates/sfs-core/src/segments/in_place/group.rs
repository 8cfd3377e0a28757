//! Block groups, as in ext2: near the inode, then onward. What the paper's schemes are compared with.

use super::{Scheme, SpaceView};

/// Blocks for which there is one inode, as ext2 reckons.
const BLOCKS_PER_INODE: u64 = 2;

pub(super) struct BlockGroups;

impl Scheme for BlockGroups {
    fn choose(&mut self, space: &SpaceView<'_>, ino: u64) -> Option<u32> {
        let inodes = u64::from(space.bitmap.segment_blocks()) / BLOCKS_PER_INODE;
        let home = ino / inodes % u64::from(space.count());
        space.around(home as u32).next().map(|(segment, _)| segment)
    }

    fn fills_up(&self) -> bool {
        false
    }
}
