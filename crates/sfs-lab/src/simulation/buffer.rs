//! The blocks in the write buffer, in the order of arrival: blocks that users wrote, and blocks
//! that the cleaner copied out of a victim.
//!
//! A block is in the buffer at most once.

use sfs_core::format::Group;

use super::log::GROUP_HEADS;

/// A user wrote the block.
const DIRTY: u8 = 1;
/// The cleaner copied the block out of a victim.
const COPIED_OUT: u8 = 2;
/// The block was removed; its entry in the queue is skipped.
const REMOVED: u8 = 4;

/// A block in the buffer, and its group.
pub(super) type GroupedBlock = (Group, u32);

/// The write buffer.
pub(super) struct WriteBuffer {
    state: Vec<u8>,
    queue: Vec<u32>,
}

/// The origins of a block in the buffer.
#[derive(Clone, Copy)]
pub(super) struct Origins {
    /// A user wrote the block since it was last in the log.
    pub(super) is_dirty: bool,
    /// The cleaner copied the block out of its segment.
    pub(super) is_copied_out: bool,
}

impl Origins {
    fn of(state: u8) -> Self {
        Self { is_dirty: state & DIRTY != 0, is_copied_out: state & COPIED_OUT != 0 }
    }
}

impl WriteBuffer {
    /// Returns an empty buffer for blocks below `blocks`.
    pub(super) fn new(blocks: u32) -> Self {
        Self { state: vec![0; blocks as usize], queue: Vec::new() }
    }

    /// Returns the number of entries, removed blocks included.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn origins(&self, block: u32) -> Origins {
        Origins::of(self.state[block as usize])
    }

    /// Adds a block that a user writes.
    pub(super) fn write(&mut self, block: u32) {
        let state = &mut self.state[block as usize];
        if *state == 0 {
            self.queue.push(block);
        }
        *state = (*state | DIRTY) & !REMOVED;
    }

    /// Adds a block that the cleaner copies out. Returns whether the cleaner had to read the block.
    pub(super) fn copy_out(&mut self, block: u32) -> bool {
        let state = &mut self.state[block as usize];
        if *state == 0 {
            self.queue.push(block);
        }
        let read = *state & DIRTY == 0;
        *state = (*state | COPIED_OUT) & !REMOVED;
        read
    }

    /// Removes a deleted block.
    pub(super) fn remove(&mut self, block: u32) {
        let state = &mut self.state[block as usize];
        if *state != 0 {
            *state = REMOVED;
        }
    }

    /// Takes the queue, without removed blocks. The state of each block stays until
    /// [`WriteBuffer::take`].
    pub(super) fn take_queue(&mut self) -> Vec<u32> {
        let queue = std::mem::take(&mut self.queue);
        let is_present = |state: &mut u8| {
            let is_present = *state != REMOVED;
            if !is_present {
                *state = 0;
            }
            is_present
        };
        queue.into_iter().filter(|block| is_present(&mut self.state[*block as usize])).collect()
    }

    /// Puts blocks back in front of blocks that were added meanwhile.
    pub(super) fn put_back(&mut self, mut blocks: Vec<u32>) {
        blocks.append(&mut self.queue);
        self.queue = blocks;
    }

    /// Takes a block out of the buffer, for the log.
    pub(super) fn take(&mut self, block: u32) -> Origins {
        Origins::of(std::mem::take(&mut self.state[block as usize]))
    }
}

/// Returns the number of blocks of each group.
pub(super) fn group_counts(blocks: &[GroupedBlock]) -> [usize; GROUP_HEADS] {
    let mut counts = [0; GROUP_HEADS];
    for (group, _) in blocks {
        counts[group.index()] += 1;
    }
    counts
}
