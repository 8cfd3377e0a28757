//! The production device: an image file or a block device.
//!
//! Each request becomes positioned system calls on one descriptor, without a lock. Requests beyond the
//! length found at open, or at the last [`Device::refresh_block_count`], are refused, as are writes and discards on a device opened for reading.

mod open;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use self::open::{Access, OpenError, OpenErrorKind};

use self::open::{OpenedFile, Sharing};
use parking_lot::Mutex;

use crate::block::{BLOCK_SIZE, Block};
use crate::device::{Device, ReadRun, Stream};
use crate::error::{DeviceError, Operation};
use crate::geometry::Geometry;
use crate::pieces::Pieces;
use crate::read_ring::{ReadRings, Turn};
use crate::sys::{self, Gather, Scatter};
use crate::transfer::{drain, fill, fill_parts};

/// A regular file or a block device, as a [`Device`].
///
/// The device has the whole blocks of the file; bytes after the last whole block are not accessible.
/// Streams are ignored.
#[derive(Debug)]
pub struct FileDevice {
    /// The descriptor that the device was opened with, which has its lock.
    file: File,
    /// Descriptor for all requests after [`FileDevice::allow_writing`].
    writable: OnceLock<File>,
    /// Exclusive descriptor of a block device, until [`FileDevice::yield_claim`].
    claim: Mutex<Option<File>>,
    path: PathBuf,
    access: Access,
    geometry: Geometry,
    /// Number of blocks that requests may reach: those of the geometry, or more.
    block_count: AtomicU64,
    is_block_device: bool,
    direct_io: bool,
    pieces: Pieces,
    read_rings: ReadRings,
    /// Number of bytes of one [`Device::read_many`] that are under way at a time.
    turn_bytes: AtomicUsize,
    /// Number of bytes that the device would read in the time of a request.
    request_bytes: AtomicUsize,
    /// `true` after the medium refused a discard as unsupported.
    discard_refused: AtomicBool,
}

impl FileDevice {
    /// Longest wait for a program that inspects a block device. udev looks at a device whenever a writer has closed it, which takes
    /// seconds on a busy machine that boots; systemd waits 90 s for a mount.
    pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

    /// Opens `path` exclusively: until the device is dropped, no other call of this function succeeds on
    /// `path`. Several readers of one image file are allowed.
    ///
    /// Other programs lock a device briefly to inspect it (udev does, after each writer). The open waits
    /// for such a lock: at most two seconds for a block device, a fifth of a second for an image.
    ///
    /// # Errors
    ///
    /// [`OpenErrorKind::Busy`] if a block device is mounted or claimed, or the lock of an image was not released;
    /// [`OpenErrorKind::Locked`] if that of a block device was not.
    pub fn open(path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        FileDevice::open_with(path, access, Sharing::Exclusive)
    }

    /// As [`FileDevice::open`], but waits for [`FileDevice::LOCK_WAIT_MAX`] until another program unlocks a block device. Calls
    /// `explain` once if the wait is long.
    ///
    /// # Errors
    ///
    /// As of [`FileDevice::open`].
    pub fn open_patiently(
        path: &Path,
        access: Access,
        mut explain: impl FnMut(),
    ) -> Result<FileDevice, OpenError> {
        let begun = Instant::now();
        let mut is_explained = false;
        loop {
            let opened = FileDevice::open(path, access);
            let is_locked = matches!(&opened, Err(OpenError { kind: OpenErrorKind::Locked, .. }));
            if !is_locked || begun.elapsed() >= FileDevice::LOCK_WAIT_MAX {
                return opened;
            }
            if !is_explained {
                explain();
                is_explained = true;
            }
        }
    }

    /// Opens `path` without a claim or a lock, to inspect a volume that may be mounted.
    pub fn open_shared(path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        FileDevice::open_with(path, access, Sharing::Shared)
    }

    /// Creates a sparse image file of `length` bytes and opens it exclusively.
    ///
    /// # Errors
    ///
    /// [`OpenErrorKind::Exists`] if the path exists.
    pub fn create(path: &Path, length: u64) -> Result<FileDevice, OpenError> {
        open::create(path, length, 0o666)?;
        FileDevice::open(path, Access::ReadWrite)
    }

    /// Makes a file as [`FileDevice::create`], which only its owner may read.
    ///
    /// # Errors
    ///
    /// As [`FileDevice::create`].
    pub fn create_private(path: &Path, length: u64) -> Result<FileDevice, OpenError> {
        open::create(path, length, 0o600)?;
        FileDevice::open(path, Access::ReadWrite)
    }

    fn open_with(path: &Path, access: Access, sharing: Sharing) -> Result<FileDevice, OpenError> {
        let opened = open::open(path, access, sharing)
            .map_err(|kind| OpenError { path: path.to_owned(), kind })?;
        Ok(FileDevice::of_opened(path, access, opened))
    }

    fn of_opened(path: &Path, access: Access, opened: OpenedFile) -> FileDevice {
        let OpenedFile { file, claim, geometry, is_block_device, direct_io } = opened;
        FileDevice {
            file,
            writable: OnceLock::new(),
            claim: Mutex::new(claim),
            path: path.to_owned(),
            access,
            block_count: AtomicU64::new(geometry.block_count),
            geometry,
            is_block_device,
            direct_io,
            pieces: Pieces::default(),
            read_rings: ReadRings::default(),
            turn_bytes: AtomicUsize::new(usize::MAX),
            request_bytes: AtomicUsize::new(0),
            discard_refused: AtomicBool::new(false),
        }
    }

    /// Returns a device that another program has opened at `path` with [`FileDevice::open`], by its descriptor, and by the one
    /// that [`FileDevice::allow_writing`] has opened. Both programs share the lock, which holds until both have closed them.
    ///
    /// # Errors
    ///
    /// [`OpenErrorKind::NotStorage`] and others if the descriptors are none of a device.
    pub fn adopt(path: &Path, file: File, writable: Option<File>) -> Result<FileDevice, OpenError> {
        let adopted = open::adopt(file);
        let opened = adopted.map_err(|kind| OpenError { path: path.to_owned(), kind })?;
        let device = FileDevice::of_opened(path, opened.1, opened.0);
        Ok(match writable {
            Some(writable) => FileDevice { writable: OnceLock::from(writable), ..device },
            None => device,
        })
    }

    /// Returns the descriptors for [`FileDevice::adopt`].
    pub fn descriptors(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.file.as_fd(), self.writable.get().map(AsFd::as_fd))
    }

    /// Returns the path that the device was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this is a block device and not an image file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Drops the exclusive claim on a block device, so that the kernel can claim the device for a mount.
    /// The lock that excludes other SFS programs stays.
    pub fn yield_claim(&self) {
        drop(self.claim.lock().take());
    }

    /// Lets other programs lock a block device to inspect it, once it is mounted: udev processes no event of a device while another
    /// program has it locked exclusively. Other SFS programs stay excluded.
    ///
    /// # Errors
    ///
    /// The kernel has no memory for the lock.
    pub fn admit_inspection(&self) -> io::Result<()> {
        if self.is_block_device { open::share_lock(&self.file) } else { Ok(()) }
    }

    /// Allows writing to a device that was opened for reading, or looks whether one that was opened for writing still can be written.
    ///
    /// # Errors
    ///
    /// [`OpenErrorKind::WriteProtected`] and [`OpenErrorKind::Permission`]; [`OpenErrorKind::Busy`] if another program
    /// reads the device.
    pub fn allow_writing(&self) -> Result<(), OpenError> {
        let failed = |kind| OpenError { path: self.path.clone(), kind };
        if self.access == Access::ReadWrite || self.writable.get().is_some() {
            return open::check_unprotected(self.file(), self.is_block_device).map_err(failed);
        }
        let writable = open::reopen(&self.path, &self.file, self.is_block_device, self.direct_io)
            .map_err(failed)?;
        // A second caller at the same time has opened the same file.
        let _ = self.writable.set(writable);
        Ok(())
    }

    /// Returns the descriptor for requests.
    fn file(&self) -> &File {
        self.writable.get().unwrap_or(&self.file)
    }

    /// Returns whether requests bypass the page cache.
    ///
    /// If the file's filesystem refuses direct I/O, requests go through the page cache, with one more copy.
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// Returns the number of bytes that the device writes in a second; `None` before the first long write, and for a file
    /// in the page cache.
    pub fn write_speed(&self) -> Option<u64> {
        self.direct_io.then(|| self.pieces.speed()).flatten()
    }

    /// Has up to `threads` threads read several runs at the same time each by [`Device::read_many`], through io_uring. Returns
    /// the number of threads that can: 0 if the kernel refuses, or the device is read through the page cache, where there
    /// is nothing to wait for. A program that limits its system calls calls it before that, and after fork(2).
    pub fn make_read_rings(&self, threads: usize) -> usize {
        if self.direct_io { self.read_rings.make(&self.file, threads) } else { 0 }
    }

    /// Returns the number of requests that were made together with others, through io_uring.
    pub fn ring_requests(&self) -> u64 {
        self.read_rings.requests()
    }

    /// Bounds the bytes of one [`Device::read_many`] that are under way at a time, so that requests of other threads get their
    /// turn on a slow device. A request costs as much as `request_bytes` beside its own bytes. A single request may be
    /// longer than a turn.
    pub fn set_turn(&self, turn_bytes: usize, request_bytes: usize) {
        self.turn_bytes.store(turn_bytes, Ordering::Relaxed);
        self.request_bytes.store(request_bytes, Ordering::Relaxed);
    }

    fn turn(&self) -> Turn {
        let [bytes, request_bytes] =
            [&self.turn_bytes, &self.request_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        Turn { bytes, request_bytes }
    }

    /// Returns the unit in bytes that a short transfer is rounded down to, so that the next call of direct
    /// I/O is aligned.
    fn transfer_unit(&self) -> usize {
        if self.direct_io { BLOCK_SIZE } else { 1 }
    }

    fn check(&self, operation: Operation, address: u64, count: u64) -> Result<(), DeviceError> {
        let is_writable = self.access == Access::ReadWrite || self.writable.get().is_some();
        if operation != Operation::Read && !is_writable {
            let source = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(DeviceError::of_blocks(operation, address, count, source));
        }
        let block_count = self.block_count.load(Ordering::Relaxed);
        Geometry::check_range_of(block_count, operation, address, count)
    }

    /// Reads a run with calls that wait for their bytes. The `first` call was already made, if there is one, and returned this.
    fn read_run(
        &self,
        run: &mut ReadRun<'_>,
        first: Option<io::Result<usize>>,
    ) -> Result<(), DeviceError> {
        let (address, block_count) = (run.address, run.block_count());
        let mut first = first;
        if matches!(first, Some(Ok(count)) if count as u64 == block_count * BLOCK_SIZE as u64) {
            return Ok(());
        }
        let mut scrap = Block::zeroed(run.skipped_blocks());
        fill_parts(
            Scatter::new(&mut run.parts, &mut scrap),
            address * BLOCK_SIZE as u64,
            self.transfer_unit(),
            |parts, offset| first.take().unwrap_or_else(|| parts.read_at(self.file(), offset)),
        )
        .map_err(|source| DeviceError::of_blocks(Operation::Read, address, block_count, source))
    }

    fn discard_bytes(&self, offset: u64, length: u64) -> io::Result<()> {
        loop {
            let result = match self.is_block_device {
                true => sys::block_device_discard(self.file(), offset, length),
                false => sys::punch_hole(self.file(), offset, length),
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

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        let length = match self.is_block_device {
            true => sys::block_device_length(&self.file),
            false => self.file.metadata().map(|metadata| metadata.len()),
        };
        let length =
            length.map_err(|source| DeviceError::of_blocks(Operation::Open, 0, 0, source))?;
        let block_count = (length / BLOCK_SIZE as u64).max(self.geometry.block_count);
        self.block_count.store(block_count, Ordering::Relaxed);
        Ok(block_count)
    }

    /// Fails with [`io::ErrorKind::UnexpectedEof`] if the image file became shorter than it was at open.
    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let block_count = buffer.len() as u64;
        self.check(Operation::Read, address, block_count)?;
        fill(
            Block::bytes_of_mut(buffer),
            address * BLOCK_SIZE as u64,
            self.transfer_unit(),
            |bytes, offset| self.file().read_at(bytes, offset),
        )
        .map_err(|source| DeviceError::of_blocks(Operation::Read, address, block_count, source))
    }

    /// Several runs are with the medium at the same time, if [`FileDevice::make_read_rings`] has made it possible. Otherwise one
    /// follows the other.
    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        let checked =
            runs.iter().map(|run| self.check(Operation::Read, run.address, run.block_count()));
        let checked: Vec<_> = checked.collect();
        let is_together = runs.len() > 1 && checked.iter().all(Result::is_ok);
        let mut first = is_together.then(|| self.read_rings.read(runs, self.turn())).flatten();
        let read = |(no, (run, checked)): (usize, (&mut ReadRun<'_>, _))| {
            let first = first.as_mut().map(|first| std::mem::replace(&mut first[no], Ok(0)));
            Result::and_then(checked, |()| self.read_run(run, first))
        };
        runs.iter_mut().zip(checked).enumerate().map(read).collect()
    }

    fn write(&self, address: u64, parts: &[&[Block]], _: Stream) -> Result<(), DeviceError> {
        let block_count = parts.iter().map(|part| part.len() as u64).sum();
        self.check(Operation::Write, address, block_count)?;
        drain(
            Gather::new(parts),
            address * BLOCK_SIZE as u64,
            self.transfer_unit(),
            |parts, offset| {
                let begin = Instant::now();
                let written = parts.write_at(self.file(), offset, self.pieces.len())?;
                self.pieces.note(written, begin.elapsed());
                Ok(written)
            },
        )
        .map_err(|source| DeviceError::of_blocks(Operation::Write, address, block_count, source))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file()
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
