//! A part of a file in memory, mapped: writes without a system call that outlive the process.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped part of a file, to write to. What is written is in the file at once, and stays there when the process dies at any
/// instruction: bytes in an order that nobody knows, but a [word](SharedWindow::publish) after all bytes that were written before it.
#[derive(Debug)]
pub struct SharedWindow {
    /// Address of the mapping, which begins at a page.
    mapping: NonNull<u8>,
    mapped: usize,
    /// Offset of the window in the mapping.
    offset: usize,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and is written through `&mut` only.
unsafe impl Send for SharedWindow {}
// SAFETY: nothing can be done with a `&SharedWindow` but shown.
unsafe impl Sync for SharedWindow {}

impl SharedWindow {
    /// Maps `len` bytes of `file` from byte `start` on, once the filesystem has space for them. Nobody may make the file shorter,
    /// which would kill the process at its next write.
    ///
    /// # Errors
    ///
    /// Those of the system: no memory, no space, a file that cannot be mapped for writing.
    pub fn new(file: &File, start: u64, len: usize) -> io::Result<Self> {
        let to_offset = |at: u64| libc::off_t::try_from(at).map_err(io::Error::other);
        let length = to_offset(len as u64)?;
        // SAFETY: system calls without pointers, on an open descriptor.
        let (page, allocated) = unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            (
                page,
                libc::fallocate(
                    file.as_raw_fd(),
                    libc::FALLOC_FL_KEEP_SIZE,
                    to_offset(start)?,
                    length,
                ),
            )
        };
        if allocated != 0 {
            return Err(io::Error::last_os_error());
        }
        let page = u64::try_from(page).map_err(io::Error::other)?;
        let offset = (start % page) as usize;
        let mapped = offset.checked_add(len).ok_or(io::ErrorKind::OutOfMemory)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let begin = to_offset(start - offset as u64)?;
        // SAFETY: a mapping at an address that the kernel chooses replaces no other one.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), mapped, access, kind, file.as_raw_fd(), begin) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A kernel that cannot do it in advance (before 5.14) does it page by page later.
        // SAFETY: the advice changes no content, and concerns only this mapping.
        unsafe { libc::madvise(address, mapped, libc::MADV_POPULATE_WRITE) };
        let mapping = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { mapping, mapped, offset, len })
    }

    /// Writes `bytes` at offset `at` of the window.
    ///
    /// # Panics
    ///
    /// If they do not end in the window.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: `place` has checked that the bytes end in the mapping, which overlaps no memory that Rust knows of, and to which
        // no reference exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Writes `word` at offset `at` of the window, in one piece, little-endian. Whoever reads it, even after the end of this
    /// process, finds all bytes that were written before.
    ///
    /// # Panics
    ///
    /// If it does not end in the window, or its address is no multiple of 8.
    pub fn publish(&mut self, at: usize, word: u64) {
        let to = self.place(at, size_of::<u64>()).cast::<u64>();
        assert!(to.is_aligned(), "a word is written in one piece");
        // SAFETY: `place` has checked that the word ends in the mapping, and it is aligned. Other processes may write to it as well,
        // which an atomic word allows.
        unsafe { AtomicU64::from_ptr(to) }.store(word.to_le(), Ordering::Release);
    }

    /// Returns the address of `len` bytes at offset `at`.
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{len} bytes at {at} of {}", self.len);
        // SAFETY: the offset ends in the mapping.
        unsafe { self.mapping.as_ptr().add(self.offset + at) }
    }
}

impl Drop for SharedWindow {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nobody has an address in it any more.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_written_is_in_the_file() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(100_000).expect("space");
        // In the middle of a page, whatever its size.
        let mut window = SharedWindow::new(&file, 65_536 + 8, 20_000).expect("memory");
        window.write(3, b"content");
        window.publish(16, 0x0102_0304);
        window.write(19_999, b"!");
        let mut found = vec![0; 100_000];
        file.read_exact_at(&mut found, 0).expect("reading");
        let mut expected = vec![0; 100_000];
        let start = 65_536 + 8;
        expected[start + 3..start + 10].copy_from_slice(b"content");
        expected[start + 16..start + 24].copy_from_slice(&0x0102_0304_u64.to_le_bytes());
        expected[start + 19_999] = b'!';
        assert!(found == expected);
        drop(window);
        file.read_exact_at(&mut found, 0).expect("reading");
        assert!(found == expected, "the content outlives the mapping");
    }

    #[test]
    #[should_panic(expected = "2 bytes at 4095 of 4096")]
    fn nothing_is_written_behind_the_window() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 20).expect("space");
        SharedWindow::new(&file, 0, 4096).expect("memory").write(4095, b"ab");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused() {
        let file = File::open("/dev/null").expect("the null device");
        SharedWindow::new(&file, 0, 4096).expect_err("no memory behind it");
    }
}
