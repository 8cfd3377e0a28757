//! Reading file content and symbolic links. Only the lock of the file is held during a device request.
//!
//! The blocks come from `read_blocks`.

use sfs_device::{BLOCK_SIZE, Block};

use super::Volume;
use crate::files::InodeState;
use crate::format::{Corruption, CorruptionKind, FileKind, ItemKind, Key, Timestamp};
use crate::metadata::MetadataError;
use crate::metadata::Txn;
use crate::request::ReadBuffer;
use crate::{Error, Result};

impl Volume {
    /// Returns up to `len` bytes of `ino` from `offset` on; fewer at the end of the file.
    pub fn read(&self, ino: u64, offset: u64, len: usize) -> Result<ReadBuffer> {
        self.content(ino, (offset, len), None, |handle, len| {
            let mut buffer =
                ReadBuffer::new(offset, len, self.dirty.pool()).ok_or(Error::NoMemory)?;
            self.fill(handle, first_block(offset), buffer.blocks_mut())?;
            Ok(buffer)
        })
    }

    /// Reads up to `len` bytes of `ino` from `offset` on into `blocks`, and returns their number. The rest of the
    /// last block is undefined. See [`Volume::read`]. With `accessed`, the access is noted as [`Volume::note_access`] does.
    ///
    /// # Panics
    ///
    /// If `offset` does not begin a block, or if `blocks` hold fewer than `len` bytes.
    pub fn read_into(
        &self,
        ino: u64,
        offset: u64,
        len: usize,
        blocks: &mut [Block],
        accessed: Option<Timestamp>,
    ) -> Result<usize> {
        assert!(offset.is_multiple_of(BLOCK_SIZE as u64), "{offset} begins no block");
        self.content(ino, (offset, len), accessed, |handle, len| {
            self.fill(handle, first_block(offset), &mut blocks[..len.div_ceil(BLOCK_SIZE)])?;
            Ok(len)
        })
    }

    /// Calls `take` with the number of bytes between `offset` and the end of the file, up to `len`. Returns the
    /// default if there are none. The size of the file does not change meanwhile.
    fn content<T: Default>(
        &self,
        ino: u64,
        (offset, len): (u64, usize),
        accessed: Option<Timestamp>,
        take: impl FnOnce(&InodeState, usize) -> Result<T>,
    ) -> Result<T> {
        self.space.note_request();
        let handle = self.inodes.get(ino);
        let _io = handle.io_read();
        let inode = self.attributes_of(&handle)?;
        match inode.kind() {
            FileKind::Directory => return Err(Error::IsDirectory),
            FileKind::Regular => {}
            _ => return Err(Error::Invalid),
        }
        if let Some(now) = accessed {
            self.note_access_to((ino, &inode), now);
        }
        let len = len.min(inode.size.saturating_sub(offset).min(usize::MAX as u64) as usize);
        self.space.note_read(ino, offset, len as u64);
        if len == 0 { Ok(T::default()) } else { take(&handle, len) }
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, ino: u64) -> Result<Vec<u8>> {
        self.metadata.read_txn(|txn| {
            let inode = txn.inode(ino)?;
            if inode.kind() != FileKind::Symlink {
                return Err(Error::Invalid.into());
            }
            let target = inline(txn, ino)?;
            if target.len() as u64 == inode.size {
                return Ok(target);
            }
            Err(Corruption::in_item(ino, CorruptionKind::Length).into())
        })
    }
}

/// Returns the number of the block at `offset`.
pub(super) fn first_block(offset: u64) -> u32 {
    (offset / BLOCK_SIZE as u64) as u32
}

/// Returns the inline content of `ino`; empty if it has none.
pub(super) fn inline(txn: &Txn<'_>, ino: u64) -> std::result::Result<Vec<u8>, MetadataError> {
    let mut content = Vec::new();
    for part in 0..4 {
        match txn.get(&Key::new(ino, ItemKind::Inline, part))? {
            Some(bytes) => content.extend_from_slice(bytes),
            None => break,
        }
    }
    Ok(content)
}
