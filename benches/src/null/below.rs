//! A device below the null filesystem, for the cost of FUSE and a device together.
//!
//! Each request of the kernel becomes one request to the device. Written data is copied once, into
//! aligned memory. The file's offset is the address on the device, so files overwrite each other.

use std::{io, ops::Range, path::Path, sync::Arc};

use parking_lot::Mutex;
use sfs_device::{Access, BLOCK_SIZE, Block, Device, FileDevice, Stream};

/// Number of blocks of the longest request, and one more for an unaligned start.
const REQUEST_MAX: usize = (1 << 20) / BLOCK_SIZE + 1;

pub(super) struct Below {
    device: FileDevice,
    spare: Mutex<Vec<Box<[Block]>>>,
}

/// Memory of a request, returned to the pool when dropped.
pub(super) struct Lent {
    below: Arc<Below>,
    memory: Box<[Block]>,
    range: Range<usize>,
}

impl Below {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let device = FileDevice::open(path, Access::ReadWrite).map_err(io::Error::other)?;
        if device.geometry().block_count <= REQUEST_MAX as u64 {
            return Err(io::Error::other(format!("{}: the device is too small", path.display())));
        }
        Ok(Self { device, spare: Mutex::default() })
    }

    /// Reads `len` bytes at `offset` of any file.
    pub(super) fn read(self: &Arc<Self>, offset: u64, len: usize) -> io::Result<Lent> {
        let mut lent = self.lend(offset, len);
        let blocks = lent.blocks();
        self.device
            .read(self.address(offset), &mut lent.memory[blocks])
            .map_err(io::Error::other)?;
        Ok(lent)
    }

    /// Reads as [`Below::read`] does, into `room`; returns `false` if the offset, or the length or
    /// alignment of `room`, does not allow it.
    pub(super) fn read_into(&self, offset: u64, len: usize, room: &mut [u8]) -> io::Result<bool> {
        let Some(blocks) = Block::room_for(offset, len, room) else { return Ok(false) };
        if !blocks.is_empty() {
            self.device.read(self.address(offset), blocks).map_err(io::Error::other)?;
        }
        Ok(true)
    }

    pub(super) fn write(self: &Arc<Self>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut lent = self.lend(offset, bytes.len());
        let range = lent.range.clone();
        Block::bytes_of_mut(&mut lent.memory)[range].copy_from_slice(bytes);
        let blocks = &lent.memory[lent.blocks()];
        let written = self.device.write(self.address(offset), &[blocks], Stream(0));
        written.map_err(io::Error::other)
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.device.flush().map_err(io::Error::other)
    }

    fn address(&self, offset: u64) -> u64 {
        let blocks = self.device.geometry().block_count;
        offset / BLOCK_SIZE as u64 % (blocks - REQUEST_MAX as u64)
    }

    fn lend(self: &Arc<Self>, offset: u64, len: usize) -> Lent {
        let memory = self.spare.lock().pop().unwrap_or_else(|| Block::zeroed(REQUEST_MAX));
        let first = offset as usize % BLOCK_SIZE;
        Lent { below: self.clone(), memory, range: first..first + len }
    }
}

impl Lent {
    /// Returns the range of blocks that the bytes lie in.
    fn blocks(&self) -> Range<usize> {
        0..self.range.end.div_ceil(BLOCK_SIZE)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &Block::bytes_of(&self.memory)[self.range.clone()]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        self.below.spare.lock().push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_is_read_back() {
        let path = std::env::temp_dir().join(format!("nullfs-below-{}", std::process::id()));
        drop(FileDevice::create(&path, 4 << 20).expect("an image"));
        let below = Arc::new(Below::open(&path).expect("the device is large enough"));
        let bytes: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
        for offset in [0, 4096, 12_345, 2 << 20] {
            below.write(offset, &bytes).expect("writing");
            assert_eq!(below.read(offset, bytes.len()).expect("reading").as_ref(), bytes);
            let mut room = Block::zeroed(bytes.len() / BLOCK_SIZE);
            let room = Block::bytes_of_mut(&mut room);
            let is_read = below.read_into(offset, bytes.len(), room).expect("reading");
            assert_eq!(is_read, offset != 12_345);
            assert!(!is_read || room == bytes);
            assert_eq!(below.read(offset + 7, 5).expect("reading").as_ref(), &bytes[7..12]);
        }
        below.flush().expect("flushing");
        assert!(below.spare.lock().len() <= 2, "the memory of requests is reused");
        std::fs::remove_file(&path).expect("the test created the image");
    }
}
