//! Reading file content: from the write buffer, the tree item, blocks in flight, and the device.
//!
//! Content on the device is verified by its checksum, unless it is overwritten in place. Only the lock of the file
//! is held during a device request.

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use super::Volume;
use crate::files::InodeState;
use crate::format::{
    Corruption, CorruptionKind, ErrorKind, FileKind, ItemKind, Key, Mapping, MappingRun, Structure,
    run_key,
};
use crate::metadata::MetadataError;
use crate::metadata::Txn;
use crate::request::ReadBuffer;
use crate::{Error, Result};

/// Number of attempts to read a block whose mapping changes meanwhile; after the last attempt, the
/// checksum counts as wrong.
const ATTEMPTS: usize = 8;

impl Volume {
    /// Returns up to `len` bytes of `ino` from `offset` on; fewer at the end of the file.
    pub fn read(&self, ino: u64, offset: u64, len: usize) -> Result<ReadBuffer> {
        self.content(ino, offset, len, |handle, len| {
            let mut buffer =
                ReadBuffer::new(offset, len, self.dirty.pool()).ok_or(Error::NoMemory)?;
            self.fill(handle, first_block(offset), buffer.blocks_mut())?;
            Ok(buffer)
        })
    }

    /// Reads up to `len` bytes of `ino` from `offset` on into `blocks`, and returns their number. The rest of the
    /// last block is undefined. See [`Volume::read`].
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
    ) -> Result<usize> {
        assert!(offset.is_multiple_of(BLOCK_SIZE as u64), "{offset} begins no block");
        self.content(ino, offset, len, |handle, len| {
            self.fill(handle, first_block(offset), &mut blocks[..len.div_ceil(BLOCK_SIZE)])?;
            Ok(len)
        })
    }

    /// Calls `take` with the number of bytes between `offset` and the end of the file, up to `len`. Returns the
    /// default if there are none. The size of the file does not change meanwhile.
    fn content<T: Default>(
        &self,
        ino: u64,
        offset: u64,
        len: usize,
        take: impl FnOnce(&InodeState, usize) -> Result<T>,
    ) -> Result<T> {
        self.space.note_request();
        let handle = self.inodes.get(ino);
        let _io = handle.io_read();
        let inode = self.attributes(ino)?;
        match inode.kind() {
            FileKind::Directory => return Err(Error::IsDirectory),
            FileKind::Regular => {}
            _ => return Err(Error::Invalid),
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

    /// Fills `blocks` with the content of a file from block `first` on. Holes are zeros; bytes of the last block
    /// beyond the end of the file are undefined.
    pub(super) fn fill(&self, handle: &InodeState, first: u32, blocks: &mut [Block]) -> Result<()> {
        let mut wanted = Vec::new();
        {
            let data = handle.data();
            let range = first..=first + (blocks.len() - 1) as u32;
            if data.dirty.is_empty() {
                wanted.extend(range);
            } else {
                for block in range {
                    match data.dirty.get(block) {
                        Some(dirty) => {
                            blocks[(block - first) as usize].clone_from(dirty.memory.block());
                        }
                        None => wanted.push(block),
                    }
                }
            }
        }
        // The mappings are read after the dirty blocks: a block written back meanwhile is found at its new address.
        let mut wrong = Vec::new();
        for _ in 0..ATTEMPTS {
            if wanted.is_empty() {
                return Ok(());
            }
            let mapped =
                self.metadata.read_txn(|txn| locate(txn, handle.ino, &wanted, first, blocks))?;
            let before = std::mem::replace(&mut wrong, self.fetch(&mapped, first, blocks)?);
            self.note_retries(&before, &mapped, &wrong);
            wanted = wrong.iter().map(|(block, _)| *block).collect();
        }
        let at = self.metadata.read_txn(|txn| txn.mapping(handle.ino, wanted[0]))?;
        let at = at.map_or(0, |mapping| mapping.address);
        let block = &blocks[(wanted[0] - first) as usize];
        self.health.note_misplaced(block, self.superblock.volume(), at);
        let damage = Corruption::in_block(Structure::Data, at, CorruptionKind::Checksum);
        Err(self.health.counted(damage.into()))
    }

    /// Counts blocks that were wrong `before` and are now right, read from the same address.
    fn note_retries(
        &self,
        before: &[(u32, Mapping)],
        mapped: &[(u32, Mapping)],
        wrong: &[(u32, Mapping)],
    ) {
        for at in before.iter().filter(|at| mapped.contains(at) && !wrong.contains(at)) {
            self.health.note_error(ErrorKind::Retry, at.1.address);
        }
    }

    /// Reads mapped blocks, neighbours in one request. Returns the blocks whose checksum does not match, because
    /// they have moved meanwhile or because they are damaged.
    fn fetch(
        &self,
        mapped: &[(u32, Mapping)],
        first: u32,
        blocks: &mut [Block],
    ) -> Result<Vec<(u32, Mapping)>> {
        let mut wrong = Vec::new();
        let mut rest = mapped;
        while let Some(((block, mapping), tail)) = rest.split_first() {
            let neighbours = tail
                .iter()
                .zip(1..)
                .take_while(|((b, m), n)| {
                    *b == block + n && m.address == mapping.address + u64::from(*n)
                })
                .count();
            let (run, left) = rest.split_at(neighbours + 1);
            rest = left;
            let memory = &mut blocks[(block - first) as usize..][..run.len()];
            self.io.read(mapping.address, memory)?;
            for ((block, mapping), memory) in run.iter().zip(memory) {
                let differs = |checksum| crc32c::crc32c(memory.as_bytes()) != checksum;
                if mapping.checksum.is_some_and(differs) {
                    wrong.push((*block, *mapping));
                }
            }
        }
        Ok(wrong)
    }
}

/// Returns the number of the block at `offset`.
fn first_block(offset: u64) -> u32 {
    (offset / BLOCK_SIZE as u64) as u32
}

/// Returns the mappings of `wanted` blocks. Blocks without a mapping are filled in here, from the inline item or
/// with zeros.
fn locate(
    txn: &Txn<'_>,
    ino: u64,
    wanted: &[u32],
    first: u32,
    blocks: &mut [Block],
) -> std::result::Result<Vec<(u32, Mapping)>, MetadataError> {
    let mut mapped = Vec::with_capacity(wanted.len());
    let mut run: Option<(Key, MappingRun)> = None;
    for &block in wanted {
        let key = run_key(ino, block);
        if run.as_ref().is_none_or(|(at, _)| *at != key) {
            run = Some((key, txn.run(&key)?.unwrap_or_default()));
        }
        let mapping = run.as_ref().and_then(|(_, run)| run.get(block));
        match mapping {
            Some(mapping) => mapped.push((block, mapping)),
            None => {
                let memory = blocks[(block - first) as usize].as_mut_bytes();
                memory.fill(0);
                if block == 0 {
                    let content = inline(txn, ino)?;
                    let len = content.len().min(BLOCK_SIZE);
                    memory[..len].copy_from_slice(&content[..len]);
                }
            }
        }
    }
    Ok(mapped)
}

/// Returns the inline content of `ino`; empty if it has none.
fn inline(txn: &Txn<'_>, ino: u64) -> std::result::Result<Vec<u8>, MetadataError> {
    let mut content = Vec::new();
    for part in 0..4 {
        match txn.get(&Key::new(ino, ItemKind::Inline, part))? {
            Some(bytes) => content.extend_from_slice(bytes),
            None => break,
        }
    }
    Ok(content)
}
