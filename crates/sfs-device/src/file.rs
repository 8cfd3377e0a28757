//! An image file or a block device.
//!
//! Owns: the open file, and the requests to it.
//! Promises: no lock around I/O; no request reaches beyond the length found at open.
//! Never: writes when it was opened for reading.

mod open;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use self::open::{Access, OpenError, OpenErrorKind};

use self::open::{Opened, Sharing};
use parking_lot::Mutex;

use crate::sys::{self, Gather};
use crate::transfer::{drain, fill};
use crate::{BLOCK_SIZE, Block, Device, DeviceError, Geometry, Operation, Stream};

/// A regular file or a block device, as a [`Device`].
///
/// Whole blocks only: what is left of the file after the last one is out of reach. Streams are
/// not passed on.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    claim: Mutex<Option<File>>,
    path: PathBuf,
    access: Access,
    geometry: Geometry,
    is_block_device: bool,
    direct_io: bool,
    /// Set when the medium says that it cannot discard.
    discard_refused: AtomicBool,
}

impl FileDevice {
    /// Opens `path` for itself: no other open with this function succeeds as long as the device
    /// lives, except that several may read one image file.
    ///
    /// A block device that is mounted, or that anyone claimed, is [`OpenErrorKind::Busy`]. Other
    /// programs may hold a device locked for a moment to look at it (udev does, after each
    /// writer); that is waited for, two seconds at most, and a fifth of a second for an image.
    pub fn open(path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        FileDevice::open_with(path, access, Sharing::Exclusive)
    }

    /// Opens `path` whoever else uses it: to look at a volume that may be mounted.
    pub fn open_shared(path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        FileDevice::open_with(path, access, Sharing::Shared)
    }

    /// Makes a sparse image file of `length` bytes, and opens it for itself. A file that is
    /// already there is [`OpenErrorKind::Exists`].
    pub fn create(path: &Path, length: u64) -> Result<FileDevice, OpenError> {
        open::create(path, length)?;
        FileDevice::open(path, Access::ReadWrite)
    }

    fn open_with(path: &Path, access: Access, sharing: Sharing) -> Result<FileDevice, OpenError> {
        let opened = open::open(path, access, sharing)
            .map_err(|kind| OpenError { path: path.to_owned(), kind })?;
        let Opened { file, claim, geometry, is_block_device, direct_io } = opened;
        Ok(FileDevice {
            file,
            claim: Mutex::new(claim),
            path: path.to_owned(),
            access,
            geometry,
            is_block_device,
            direct_io,
            discard_refused: AtomicBool::new(false),
        })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device and not an image file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Gives up the claim on a block device, so that the kernel can make its own: mounting does.
    /// The lock that keeps other programs of ours away stays.
    pub fn yield_claim(&self) {
        drop(self.claim.lock().take());
    }

    /// Whether requests go past the page cache. If not, the file's filesystem refused it:
    /// everything works, with another copy in memory.
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// What a short transfer is rounded down to, in bytes: direct I/O must go on aligned.
    fn transfer_unit(&self) -> usize {
        if self.direct_io { BLOCK_SIZE } else { 1 }
    }

    fn check(&self, operation: Operation, address: u64, count: u64) -> Result<(), DeviceError> {
        if operation != Operation::Read && self.access == Access::ReadOnly {
            let source = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(DeviceError::of_blocks(operation, address, count, source));
        }
        self.geometry.check_range(operation, address, count)
    }

    fn discard_bytes(&self, offset: u64, length: u64) -> io::Result<()> {
        loop {
            let result = match self.is_block_device {
                true => sys::block_device_discard(&self.file, offset, length),
                false => sys::punch_hole(&self.file, offset, length),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// An image file that became shorter than it was at open is
    /// [`io::ErrorKind::UnexpectedEof`].
    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let block_count = buffer.len() as u64;
        self.check(Operation::Read, address, block_count)?;
        fill(
            Block::bytes_of_mut(buffer),
            address * BLOCK_SIZE as u64,
            self.transfer_unit(),
            |bytes, offset| self.file.read_at(bytes, offset),
        )
        .map_err(|source| DeviceError::of_blocks(Operation::Read, address, block_count, source))
    }

    fn write(&self, address: u64, parts: &[&[Block]], _: Stream) -> Result<(), DeviceError> {
        let block_count = parts.iter().map(|part| part.len() as u64).sum();
        self.check(Operation::Write, address, block_count)?;
        drain(
            Gather::new(parts),
            address * BLOCK_SIZE as u64,
            self.transfer_unit(),
            |parts, offset| parts.write_at(&self.file, offset),
        )
        .map_err(|source| DeviceError::of_blocks(Operation::Write, address, block_count, source))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file
            .sync_data()
            .map_err(|source| DeviceError::of_blocks(Operation::Flush, 0, 0, source))
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.check(Operation::Discard, address, count)?;
        if count == 0 || self.discard_refused.load(Ordering::Relaxed) {
            return Ok(());
        }
        let block_size = BLOCK_SIZE as u64;
        match self.discard_bytes(address * block_size, count * block_size) {
            Ok(()) => Ok(()),
            Err(error) if cannot_discard(&error) => {
                self.discard_refused.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(source) => Err(DeviceError::of_blocks(Operation::Discard, address, count, source)),
        }
    }
}

fn cannot_discard(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS))
}
