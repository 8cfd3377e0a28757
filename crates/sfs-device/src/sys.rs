//! Safe wrappers of the system calls that the standard library lacks.
//!
//! All unsafe code of this crate is here, in `read_ring`, `mmap_region` and `shared_window`. The wrappers return the system's error as it
//! is; callers retry and interpret.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;

use libc::{c_int, c_void, iovec, off_t};

use crate::block::{BLOCK_SIZE, Block};
use crate::device::ReadPart;

/// Maximum number of parts in one call (`IOV_MAX` of Linux).
pub(crate) const CALL_PARTS_MAX: usize = 1024;

// From <linux/fs.h>.
const BLKROGET: libc::Ioctl = libc::_IO(0x12, 94);
const BLKGETSIZE64: libc::Ioctl = libc::_IOR::<usize>(0x12, 114);
const BLKDISCARD: libc::Ioctl = libc::_IO(0x12, 119);

/// Parts of memory that a transfer has not reached yet, one after the other.
struct Vectors {
    vectors: Vec<iovec>,
    /// Index of the first vector that is left.
    first: usize,
}

// SAFETY: the addresses are those of memory that the list's owner borrows, and only the kernel uses them.
unsafe impl Send for Vectors {}

impl Vectors {
    fn with_capacity(count: usize) -> Vectors {
        Vectors { vectors: Vec::with_capacity(count), first: 0 }
    }

    /// Adds `len` bytes from `start` on; memory that follows the last part is merged with it.
    fn push(&mut self, start: *mut c_void, len: usize) {
        match self.vectors.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.iov_base.addr() + last.iov_len == start.addr() => {
                last.iov_len += len;
            }
            _ => self.vectors.push(iovec { iov_base: start, iov_len: len }),
        }
    }

    fn is_empty(&self) -> bool {
        self.first == self.vectors.len()
    }

    /// Removes the first `count` bytes, which are transferred.
    ///
    /// # Panics
    ///
    /// If fewer than `count` bytes remain.
    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let vector = &mut self.vectors[self.first];
            let step = count.min(vector.iov_len);
            vector.iov_base = vector.iov_base.wrapping_byte_add(step);
            vector.iov_len -= step;
            count -= step;
            if vector.iov_len == 0 {
                self.first += 1;
            }
        }
    }

    /// Returns the first vectors that are left, at most as many as one call takes.
    fn rest(&self) -> &[iovec] {
        let rest = &self.vectors[self.first..];
        &rest[..rest.len().min(CALL_PARTS_MAX)]
    }

    /// Returns the first parts of the rest: at most [`CALL_PARTS_MAX`], and about `len_max` bytes, in whole blocks.
    fn piece(&self, len_max: usize) -> Vec<iovec> {
        let mut left = (len_max / BLOCK_SIZE).max(1) * BLOCK_SIZE;
        let cut = self.rest().iter().map_while(|vector| {
            let iov_len = vector.iov_len.min(left);
            left -= iov_len;
            (iov_len > 0).then_some(iovec { iov_len, ..*vector })
        });
        cut.collect()
    }
}

/// List of memory parts that remain to be written, one after the other.
pub(crate) struct Gather<'a> {
    vectors: Vectors,
    parts: PhantomData<&'a [Block]>,
}

impl<'a> Gather<'a> {
    /// Lists `parts`; parts that are adjacent in memory are merged.
    pub(crate) fn new(parts: &[&'a [Block]]) -> Gather<'a> {
        let mut vectors = Vectors::with_capacity(parts.len());
        for part in parts {
            vectors.push(part.as_ptr().cast_mut().cast(), size_of_val(*part));
        }
        Gather { vectors, parts: PhantomData }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// Removes the first `count` bytes, which are written.
    ///
    /// # Panics
    ///
    /// If fewer than `count` bytes remain.
    pub(crate) fn advance(&mut self, count: usize) {
        self.vectors.advance(count);
    }

    /// Calls `pwritev` once, at byte `offset`, with at most [`CALL_PARTS_MAX`] parts of about `len_max` bytes in total, a
    /// block at least. Returns the number of bytes written.
    pub(crate) fn write_at(&self, file: &File, offset: u64, len_max: usize) -> io::Result<usize> {
        let piece = self.vectors.piece(len_max);
        let count = piece.len() as c_int;
        // SAFETY: `piece` holds `count` vectors. Each vector covers blocks that are borrowed for 'a, which `self` does not
        // outlive, and the call only reads them.
        let result =
            unsafe { libc::pwritev(file.as_raw_fd(), piece.as_ptr(), count, signed(offset)?) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Returns the length in bytes of each remaining part.
    #[cfg(test)]
    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.vectors.rest().iter().map(|vector| vector.iov_len).collect()
    }
}

/// List of memory parts that remain to be filled from adjacent blocks of a file.
pub(crate) struct Scatter<'a> {
    vectors: Vectors,
    memory: PhantomData<&'a mut [Block]>,
}

impl<'a> Scatter<'a> {
    /// Lists `parts`; blocks that are skipped go to `scrap`, whose content nobody uses.
    ///
    /// # Panics
    ///
    /// If `scrap` has fewer blocks than are skipped.
    pub(crate) fn new(parts: &'a mut [ReadPart<'_>], scrap: &'a mut [Block]) -> Scatter<'a> {
        let mut scrap = scrap;
        let mut vectors = Vectors::with_capacity(parts.len());
        for part in parts {
            match part {
                ReadPart::Into(blocks) => {
                    vectors.push(blocks.as_mut_ptr().cast(), size_of_val(*blocks));
                }
                ReadPart::Skip(count) => {
                    let (own, rest) = std::mem::take(&mut scrap).split_at_mut(*count);
                    scrap = rest;
                    vectors.push(own.as_mut_ptr().cast(), size_of_val(own));
                }
            }
        }
        Scatter { vectors, memory: PhantomData }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// Removes the first `count` bytes, which are filled.
    ///
    /// # Panics
    ///
    /// If fewer than `count` bytes remain.
    pub(crate) fn advance(&mut self, count: usize) {
        self.vectors.advance(count);
    }

    /// Calls `preadv` once, at byte `offset`. Returns the number of bytes read.
    pub(crate) fn read_at(&mut self, file: &File, offset: u64) -> io::Result<usize> {
        let rest = self.vectors.rest();
        let count = rest.len() as c_int;
        // SAFETY: `rest` holds `count` vectors. Each covers blocks that are borrowed exclusively for 'a, which `self` does
        // not outlive.
        let result =
            unsafe { libc::preadv(file.as_raw_fd(), rest.as_ptr(), count, signed(offset)?) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Returns the vectors of the next call, for a call that another thread of the kernel makes.
    pub(crate) fn next_vectors(&mut self) -> &[iovec] {
        self.vectors.rest()
    }
}

/// Returns the length of a block device in bytes.
pub(crate) fn block_device_length(file: &File) -> io::Result<u64> {
    let mut length = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64, to `length`, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut length) })?;
    Ok(length)
}

/// Returns whether a block device is write-protected.
pub(crate) fn block_device_is_read_only(file: &File) -> io::Result<bool> {
    let mut flag: c_int = 0;
    // SAFETY: BLKROGET writes one int, to `flag`, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKROGET, &raw mut flag) })?;
    Ok(flag != 0)
}

/// Discards `length` bytes of a block device from byte `offset` on.
pub(crate) fn block_device_discard(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let range = [offset, length];
    // SAFETY: BLKDISCARD reads two u64, from `range`, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) })
}

/// Deallocates `length` bytes of a file from byte `offset` on; the length of the file stays.
pub(crate) fn punch_hole(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, length) = (signed(offset)?, signed(length)?);
    // SAFETY: no memory is passed; the descriptor is open as long as `file` is borrowed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) })
}

/// Returns the flags that `file` was opened with.
pub(crate) fn open_flags(file: &File) -> io::Result<c_int> {
    // SAFETY: no memory is passed; the descriptor is open as long as `file` is borrowed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    check(flags).map(|()| flags)
}

/// Clears `O_DIRECT` on `file`: I/O goes through the page cache from now on.
pub(crate) fn disable_direct_io(file: &File) -> io::Result<()> {
    let flags = open_flags(file)?;
    // SAFETY: no memory is passed; the descriptor is open as long as `file` is borrowed.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_DIRECT) })
}

fn check(result: c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn signed(bytes: u64) -> io::Result<off_t> {
    off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

const _: () = assert!(align_of::<Block>() == BLOCK_SIZE && size_of::<Block>() == BLOCK_SIZE);
