//! Old content of blocks that are changed in part: which blocks they are, and whether their content is still what was read.

use sfs_device::{BLOCK_SIZE, Block};

use super::Volume;
use crate::Result;
use crate::files::InodeState;
use crate::format::{Inode, InodeFlags, Mapping};

/// Old content of a block that is changed in part.
pub(super) struct Base {
    pub(super) block: u32,
    pub(super) content: Box<Block>,
    state: State,
}

impl Base {
    /// Returns whether there is content: a hole that is not written stays a hole.
    pub(super) fn holds_data(&self) -> bool {
        !matches!(self.state, State::Hole(_))
    }
}

/// State of a block, by which a change of its content is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Dirty, with this checksum.
    Dirty(u32),
    /// On the device.
    Mapped(Mapping),
    /// On the device, where it is overwritten in place; with the number of block writes to the file.
    Placed(u64),
    /// In the tree item of the file; with the number of block writes to the file.
    Inline(u64),
    /// A hole; with the number of block writes to the file.
    Hole(u64),
}

impl Volume {
    /// Returns whether `block` of a file has content: a hole has none.
    pub(super) fn holds_data(&self, handle: &InodeState, block: u32) -> Result<bool> {
        Ok(!matches!(self.state_of(handle, block)?, State::Hole(_)))
    }

    /// Returns the content of `blocks`, with the state by which a later change is detected.
    pub(super) fn read_bases(&self, handle: &InodeState, blocks: &[u32]) -> Result<Vec<Base>> {
        let read = |block: &u32| {
            let mut content = Box::new(Block([0; BLOCK_SIZE]));
            let state = self.state_of(handle, *block)?;
            self.fill(handle, *block, std::slice::from_mut(&mut *content))?;
            Ok(Base { block: *block, content, state })
        };
        blocks.iter().map(read).collect()
    }

    fn state_of(&self, handle: &InodeState, block: u32) -> Result<State> {
        if let Some(dirty) = handle.data().dirty.get(block) {
            return Ok(State::Dirty(dirty.checksum));
        }
        self.metadata.read_txn(|txn| match txn.mapping(handle.ino, block)? {
            Some(Mapping { checksum: None, .. }) => {
                Ok(State::Placed(txn.inode(handle.ino)?.write_count))
            }
            Some(mapping) => Ok(State::Mapped(mapping)),
            None => {
                let inode = txn.inode(handle.ino)?;
                let is_inline = block == 0 && inode.flags.contains(InodeFlags::INLINE);
                let state = if is_inline { State::Inline } else { State::Hole };
                Ok(state(inode.write_count))
            }
        })
    }

    /// Returns whether `bases` are the current content of exactly the blocks `partial`.
    pub(super) fn bases_hold(
        &self,
        handle: &InodeState,
        bases: &[Base],
        partial: &[u32],
    ) -> Result<bool> {
        if !bases.iter().map(|base| base.block).eq(partial.iter().copied()) {
            return Ok(false);
        }
        for base in bases {
            // A dirty block that was written back meanwhile has changed its state but not its content.
            if self.state_of(handle, base.block)? != base.state {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the blocks whose old content is needed for a change of `offset..end`, in ascending order: blocks that are
/// overwritten in part; the block with the old end, if the file grows past it; and block 0 of an inline file.
pub(super) fn partial_blocks(inode: &Inode, offset: u64, end: u64) -> Vec<u32> {
    let size = BLOCK_SIZE as u64;
    let holds = |byte: u64| (byte / size) as u32;
    let mut blocks = Vec::with_capacity(2);
    if end > offset && !offset.is_multiple_of(size) {
        blocks.push(holds(offset));
    }
    if end > offset && !end.is_multiple_of(size) && end < inode.size {
        blocks.push(holds(end));
    }
    let covered = |block: u32| {
        let start = u64::from(block) * size;
        offset <= start && start + size <= end
    };
    if end > inode.size && !inode.size.is_multiple_of(size) {
        blocks.push(holds(inode.size));
    }
    if inode.flags.contains(InodeFlags::INLINE) {
        blocks.push(0);
    }
    // A block that is overwritten from its start to beyond the old end needs no old content.
    blocks.retain(|block| {
        let start = u64::from(*block) * size;
        let overwritten = offset <= start && end >= inode.size.min(start + size);
        start < inode.size && !covered(*block) && !(end > offset && overwritten && end > start)
    });
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::RamDevice;

    use crate::fixture::{BLOCKS, create, new_volume, write};

    /// A writer reads inline content and waits, and meanwhile the file is truncated to nothing and grows again: the
    /// writer restored the truncated content.
    #[test]
    fn inline_content_is_not_mistaken_for_a_later_hole() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let file = create(&volume, "f");
        write(&volume, file, b"secret");
        volume.sync_all().expect("RAM");
        let handle = volume.inodes.get(file);
        let bases = volume.read_bases(&handle, &[0]).expect("RAM");
        assert!(volume.bases_hold(&handle, &bases, &[0]).expect("RAM"));
        for size in [0, 6] {
            let _io = handle.io_write();
            volume.set_size(&handle, size).expect("there is room");
        }
        assert!(!volume.bases_hold(&handle, &bases, &[0]).expect("RAM"));
    }
}
