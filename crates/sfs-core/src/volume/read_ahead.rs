//! Reading content before anyone asks for it.
//!
//! [`Volume::read_ahead`] reads a window of a file without its lock, so no writer waits, and keeps the version that the
//! content had. Every change of the content changes the version first: [`ContentAhead::is_current`] tells whether a read
//! that begins now would return the same bytes.

use std::ops::Range;
use std::sync::Arc;

use sfs_device::{BLOCK_SIZE, Block, MmapRegion};

use super::Volume;
use super::read::first_block;
use crate::Result;
use crate::files::InodeState;
use crate::format::FileKind;

/// Content of a part of a file, which may have become old.
#[derive(Debug)]
pub struct ContentAhead {
    file: Arc<InodeState>,
    version: u64,
    memory: MmapRegion,
    /// Offset in the file of the first byte, where a block begins.
    start: u64,
    len: usize,
    /// `true` if the file ends after these bytes.
    is_end: bool,
    /// Blocks of `memory` without content, ascending: they are damaged, or the device failed to read them.
    missing: Vec<usize>,
    requests: usize,
}

/// Outcome of [`Volume::read_ahead`].
#[derive(Debug)]
pub enum AheadRead {
    /// The content, as far as it can be read.
    Content(ContentAhead),
    /// The file ends before it, or is no regular one.
    Nothing,
    /// The content is being changed, has changed meanwhile, or is not wanted any more.
    GivenUp,
}

impl Volume {
    /// Reads the content of `ino` from byte `offset` on, which begins a block, into `memory`, as long as it `is_wanted`. Blocks that
    /// cannot be read are left out, and their errors are not counted: the read that needs the block meets the error again.
    /// Never waits for a writer.
    ///
    /// # Errors
    ///
    /// Errors of the tree, which are counted.
    pub fn read_ahead(
        &self,
        ino: u64,
        offset: u64,
        memory: MmapRegion,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<AheadRead> {
        let mut memory = memory;
        let file = self.inodes.get(ino);
        let version = {
            // No writer is at work.
            let Some(_io) = file.try_io_read() else { return Ok(AheadRead::GivenUp) };
            file.version()
        };
        let inode = self.attributes(ino)?;
        let behind = inode.size.saturating_sub(offset);
        let len = behind.min((memory.len() * BLOCK_SIZE) as u64) as usize;
        if inode.kind() != FileKind::Regular || len == 0 {
            return Ok(AheadRead::Nothing);
        }
        let blocks = &mut memory[..len.div_ceil(BLOCK_SIZE)];
        let first = first_block(offset);
        let are_wanted = || file.version() == version && is_wanted();
        let read = self.read_blocks(&file, first, blocks, &are_wanted)?;
        // Without the lock of the file, a place in place may belong to another file by now, unnoticed without a checksum.
        if read.is_given_up
            || !self.have_stayed(ino, &read.unverified)?
            || file.version() != version
        {
            return Ok(AheadRead::GivenUp);
        }
        let missing = read.unread.iter().chain(&read.damaged).map(|block| (block - first) as usize);
        let mut missing: Vec<usize> = missing.collect();
        missing.sort_unstable();
        let (start, is_end, requests) = (offset, len as u64 == behind, read.requests);
        let content = ContentAhead { file, version, memory, start, len, is_end, missing, requests };
        Ok(AheadRead::Content(content))
    }

    /// Notes a read of file `ino` by a user that is answered from content that was read ahead.
    pub fn note_read_of_ahead(&self, ino: u64, offset: u64, len: u64) {
        self.space.note_request();
        self.space.note_read(ino, offset, len);
    }

    /// Takes `bytes` of the budget `cache=` for content that was read ahead; the cache of nodes has the rest.
    pub fn lend_cache(&self, bytes: usize) {
        self.metadata.lend_cache(bytes);
    }

    /// Gives back `bytes` that [`Volume::lend_cache`] took.
    pub fn give_back_cache(&self, bytes: usize) {
        self.metadata.give_back_cache(bytes);
    }

    /// Sets the longest gap between two blocks of a file that is read along, instead of reading both by a request of
    /// their own.
    pub fn set_read_gap(&self, blocks: usize) {
        self.io.set_gap_blocks_max(blocks);
    }

    /// Sets the number of blocks that the device reads while requests of other threads wait: no request among others is longer.
    pub fn set_read_turn(&self, blocks: usize) {
        self.io.set_turn_blocks(blocks);
    }
}

impl ContentAhead {
    /// Returns whether the file still has this content.
    pub fn is_current(&self) -> bool {
        self.file.version() == self.version
    }

    /// Returns where the bytes lie that a read of `len` bytes from `offset` on would return; `None` if some of them are
    /// not here.
    pub fn find(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(len)?;
        let to = if self.is_end { to.min(self.len) } else { to };
        if from > to || to > self.len {
            return None;
        }
        let blocks = from / BLOCK_SIZE..to.div_ceil(BLOCK_SIZE);
        let no = self.missing.partition_point(|block| *block < blocks.start);
        let is_whole = self.missing.get(no).is_none_or(|block| *block >= blocks.end);
        is_whole.then_some(from..to)
    }

    /// Returns all bytes, of which [`ContentAhead::find`] returns ranges.
    pub fn bytes(&self) -> &[u8] {
        &Block::bytes_of(&self.memory)[..self.len]
    }

    /// Returns the offset in the file of the first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns whether the file ends after these bytes.
    pub fn is_end(&self) -> bool {
        self.is_end
    }

    /// Returns the number of requests to the device that the content took.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Returns the memory, for the next content.
    pub fn into_memory(self) -> MmapRegion {
        self.memory
    }
}
