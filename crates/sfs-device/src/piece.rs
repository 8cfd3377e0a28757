//! Memory of blocks, straight from the system.
//!
//! Owns: mappings of memory. The allocator would put a header before each block, which takes a page for
//! itself where blocks are asked for one by one.
//! Promises: a piece shares no byte with another; its memory goes back to the system with it, whatever it
//! was divided from.
//! Never: clears what was used.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::{BLOCK_SIZE, Block};

/// Blocks of memory that lie side by side, with one owner. The default is none.
#[derive(Debug)]
pub struct Piece {
    /// Blocks from here on are mapped, and nobody else's.
    start: NonNull<Block>,
    count: usize,
}

impl Piece {
    /// Blocks in a page, a power of two: the system takes no less back.
    pub fn least() -> usize {
        // SAFETY: nothing is pointed to.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // A page is never smaller than a block.
        usize::try_from(page).map_or(1, |page| page / BLOCK_SIZE)
    }

    /// `count` blocks, all zero. Fails without memory, and if `count` is zero.
    pub fn new(count: usize) -> io::Result<Self> {
        let length =
            count.checked_mul(BLOCK_SIZE).filter(|length| isize::try_from(*length).is_ok());
        let length = length.ok_or(io::ErrorKind::OutOfMemory)?;
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping of no file at an address that the system chooses takes the place of nothing.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count })
    }

    /// The same blocks, in pieces of `count`, which must be a divisor of their number, and a multiple of
    /// [`Piece::least`].
    pub fn divide(mut self, count: usize) -> impl Iterator<Item = Self> {
        assert!(self.count.checked_rem(count) == Some(0), "{} in pieces of {count}", self.count);
        assert!(count.is_multiple_of(Self::least()), "pieces of {count} share pages");
        std::iter::from_fn(move || self.split_off(count))
    }

    /// The first `count` blocks, if there are any.
    fn split_off(&mut self, count: usize) -> Option<Self> {
        if self.count == 0 {
            return None;
        }
        assert!(count <= self.count);
        let start = self.start;
        // SAFETY: `count` blocks further on there are others of the same mapping, or it ends.
        self.start = unsafe { start.add(count) };
        self.count -= count;
        Some(Self { start, count })
    }
}

impl Default for Piece {
    fn default() -> Self {
        Self { start: NonNull::dangling(), count: 0 }
    }
}

impl Deref for Piece {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        // SAFETY: the blocks are mapped as long as the piece is there; they were zero at first, and any
        // bytes are a block; no other piece has them. None may be anywhere.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [Block] {
        // SAFETY: as above, and who has the piece alone has its blocks alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let (start, length) = (self.start.as_ptr().cast(), self.count * BLOCK_SIZE);
        if length == 0 {
            return;
        }
        // SAFETY: the blocks are mapped, and nobody has them any more.
        let is_back = unsafe { libc::munmap(start, length) } == 0;
        if !is_back {
            // A hole would be one mapping too many: the addresses are lost, but not the memory.
            // SAFETY: likewise.
            unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
        }
    }
}

// SAFETY: a piece owns its blocks as a box would.
unsafe impl Send for Piece {}
// SAFETY: likewise.
unsafe impl Sync for Piece {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of the `count` blocks from `start` on that take memory.
    fn resident(start: *const Block, count: usize) -> usize {
        let mut pages = vec![0_u8; count / Piece::least()];
        // SAFETY: there is a byte for each page; the range is only looked up.
        let result = unsafe {
            libc::mincore(start.cast_mut().cast(), count * BLOCK_SIZE, pages.as_mut_ptr())
        };
        if result == 0 { pages.iter().filter(|page| **page & 1 == 1).count() } else { 0 }
    }

    #[test]
    fn pieces_share_no_byte_and_outlive_each_other() {
        let least = Piece::least();
        let whole = Piece::new(15 * least).expect("memory");
        assert!(whole.iter().all(|block| block.0 == [0; BLOCK_SIZE]));
        let mut pieces: Vec<Piece> = whole.divide(3 * least).collect();
        assert_eq!(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [3 * least; 5]);
        for (no, piece) in (1..).zip(&mut pieces) {
            piece.iter_mut().for_each(|block| block.0.fill(no));
        }
        let holds = |piece: &Piece, no| piece.iter().all(|block| block.0 == [no; BLOCK_SIZE]);
        assert!((1..).zip(&pieces).all(|(no, piece)| holds(piece, no)));
        let last = std::thread::spawn(move || pieces.pop()).join().expect("no panic");
        assert!(last.is_some_and(|piece| holds(&piece, 5)), "the others are gone");
    }

    #[test]
    fn memory_goes_back_with_each_piece() {
        let least = Piece::least();
        let mut pieces = Piece::new(64 * least).expect("memory").divide(least);
        let mut first = pieces.next().expect("there is one");
        first[0].0.fill(1);
        let rest: Vec<Piece> = pieces
            .map(|mut piece| {
                piece[0].0.fill(2);
                piece
            })
            .collect();
        let (start, next) = (first.as_ptr(), rest[0].as_ptr());
        assert_eq!((resident(start, least), resident(next, 63 * least)), (1, 63));
        drop(rest);
        assert_eq!((resident(start, least), resident(next, 63 * least)), (1, 0));
        // What is left of a division goes, too.
        let mut divided = Piece::new(2 * least).expect("memory").divide(least);
        let kept = divided.next().expect("there is one");
        drop(divided);
        assert_eq!(kept[0].0, [0; BLOCK_SIZE]);
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for count in [0, 1 << 50, isize::MAX as usize / BLOCK_SIZE + 1, usize::MAX] {
            assert!(Piece::new(count).is_err(), "{count}");
        }
        assert!(Piece::default().is_empty());
    }
}
