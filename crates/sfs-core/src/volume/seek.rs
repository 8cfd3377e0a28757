//! Finding the data and the holes of files (`SEEK_DATA`, `SEEK_HOLE`).
//!
//! A block that is neither mapped nor dirty nor inline is a hole. The search goes through the mappings run by run,
//! and merges them with the dirty blocks. No content is read, so written zeros are data.

use sfs_device::BLOCK_SIZE;

use super::Volume;
use crate::files::InodeState;
use crate::format::{FileKind, InodeFlags, ItemKind, Key, MappingRun, RUN_BLOCKS, run_key};
use crate::metadata::run_base;
use crate::request::Seek;
use crate::{Error, Result};

impl Volume {
    /// Returns the offset of the next data or hole of `ino` at or after `offset`. Fails with
    /// `OutOfRange` if `offset` is not before the end of the file, or no data follows it.
    pub fn seek(&self, ino: u64, offset: u64, what: Seek) -> Result<u64> {
        let handle = self.inodes.get(ino);
        let _io = handle.io_read();
        let inode = self.attributes(ino)?;
        if offset >= inode.size {
            return Err(Error::OutOfRange);
        }
        let whole = inode.kind() != FileKind::Regular;
        let first = offset / BLOCK_SIZE as u64;
        let end = inode.size.div_ceil(BLOCK_SIZE as u64);
        let found = match what {
            Seek::Data if whole => Some(first),
            Seek::Hole if whole => Some(end),
            Seek::Data => self.next_data(&handle, first as u32)?.map(u64::from),
            Seek::Hole => Some(self.next_hole(&handle, first, end)?),
        };
        let at = found.ok_or(Error::OutOfRange)? * BLOCK_SIZE as u64;
        match what {
            Seek::Data if at >= inode.size => Err(Error::OutOfRange),
            _ => Ok(at.clamp(offset, inode.size)),
        }
    }

    /// Returns the first hole of a file from `block` on, or `end` if no block before `end` is a hole.
    fn next_hole(&self, handle: &InodeState, mut block: u64, end: u64) -> Result<u64> {
        while block < end {
            let last = (block | u64::from(RUN_BLOCKS - 1)).min(end - 1);
            // Dirty blocks are read before the mappings: a block that is written back in between is in both.
            let blocks = block as u32..=last as u32;
            let dirty: Vec<u32> = {
                let data = handle.data();
                let dirty = data.dirty.range_from(block as u32).map(|(block, _)| block);
                dirty.take_while(|block| blocks.contains(block)).collect()
            };
            let key = run_key(handle.ino, block as u32);
            let (is_inline, run) = self.metadata.read_txn(|txn| {
                let run = txn.run(&key)?;
                Ok((txn.inode(handle.ino)?.flags.contains(InodeFlags::INLINE), run))
            })?;
            // Inline content is shorter than a block, so only block 0 can be inline.
            let is_data = |block: u32| {
                is_inline && block == 0
                    || run.as_ref().is_some_and(|run| run.get(block).is_some())
                    || dirty.binary_search(&block).is_ok()
            };
            if let Some(hole) = blocks.into_iter().find(|block| !is_data(*block)) {
                return Ok(hole.into());
            }
            block = last + 1;
        }
        Ok(end)
    }

    /// Returns the first block of a file from `block` on that is not a hole.
    fn next_data(&self, handle: &InodeState, block: u32) -> Result<Option<u32>> {
        let dirty = handle.data().dirty.range_from(block).next().map(|(block, _)| block);
        let mapped = self.metadata.read_txn(|txn| {
            if block == 0 && txn.inode(handle.ino)?.flags.contains(InodeFlags::INLINE) {
                return Ok(Some(0));
            }
            let last = Key::new(handle.ino, ItemKind::Mapping, u64::MAX);
            for item in txn.tree().range(run_key(handle.ino, block)..=last) {
                let (key, value) = item?;
                let run = MappingRun::decode(value, &key, txn.tolerance())?;
                let base = run_base(&key)?;
                if let Some((found, _)) = run.iter(base).find(|(found, _)| *found >= block) {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })?;
        Ok([dirty, mapped].into_iter().flatten().min())
    }
}
