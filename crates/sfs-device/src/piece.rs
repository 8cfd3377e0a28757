//! Memory of blocks, straight from the system.
//!
//! Owns: mappings of memory. The allocator would put a header before each block, which takes a page for
//! itself where blocks are asked for one by one.
//! Promises: a piece shares no byte with another; the memory of each page goes back to the system with
//! the last piece in it, and the addresses with the last piece of what was mapped at once, so that the
//! system has no more mappings than were made.
//! Never: clears what was used.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::{BLOCK_SIZE, Block};

/// Blocks of memory that lie side by side, with one owner. The default is none.
#[derive(Debug)]
pub struct Piece {
    /// Blocks from here on are mapped, and nobody else's.
    start: NonNull<Block>,
    count: usize,
    /// What has the same addresses and goes later: what was mapped at once, or of parts of a page that
    /// page. The mapping itself has none.
    whole: Option<Arc<Piece>>,
}

impl Piece {
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
        // A page is never smaller than a block.
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count, whole: None })
    }

    /// Both halves of a power of two of blocks, at least two.
    pub fn halve(self) -> (Self, Self) {
        self.halve_within(page_blocks())
    }

    /// As [`Self::halve`], where a page has `page` blocks.
    fn halve_within(mut self, page: usize) -> (Self, Self) {
        assert!(self.count.is_power_of_two() && self.count > 1, "half of {} blocks", self.count);
        let (start, count) = (self.start, self.count / 2);
        // SAFETY: so many blocks further on is the middle of the same mapping, or there are none.
        let middle = unsafe { start.add(count) };
        let half = |start, whole: &Arc<Self>| Self { start, count, whole: Some(whole.clone()) };
        if let Some(whole) = self.whole.as_ref().filter(|_| count.is_multiple_of(page)) {
            let upper = half(middle, whole);
            self.count = count;
            return (self, upper);
        }
        let whole = Arc::new(self);
        (half(start, &whole), half(middle, &whole))
    }
}

/// Blocks in a page of the system.
fn page_blocks() -> usize {
    // SAFETY: nothing is pointed to.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).map_or(1, |page| page / BLOCK_SIZE)
}

impl Default for Piece {
    fn default() -> Self {
        Self { start: NonNull::dangling(), count: 0, whole: None }
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
        if self.count == 0 {
            return;
        }
        let (start, length) = (self.start.as_ptr().cast(), self.count * BLOCK_SIZE);
        // That fails where mappings side by side have become one, and two would be too many.
        // SAFETY: the blocks are mapped, and nobody has them any more.
        let is_unmapped = self.whole.is_none() && unsafe { libc::munmap(start, length) } == 0;
        if !is_unmapped && self.count.is_multiple_of(page_blocks()) {
            // SAFETY: likewise, and nobody has others in their pages. If this fails, they go with the whole.
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

    /// `piece` in pieces of `count` blocks.
    fn divide(piece: Piece, count: usize, page: usize) -> Vec<Piece> {
        if piece.len() == count {
            return vec![piece];
        }
        let (lower, upper) = piece.halve_within(page);
        [lower, upper].into_iter().flat_map(|half| divide(half, count, page)).collect()
    }

    #[test]
    fn pieces_share_no_byte_and_outlive_each_other() {
        let least = page_blocks();
        for (count, page) in [(1, least), (4, least), (1, 4), (1, 16), (2, 16), (8, 16), (16, 16)] {
            let whole = Piece::new(64).expect("memory");
            assert!(whole.iter().all(|block| block.0 == [0; BLOCK_SIZE]));
            let mut pieces = divide(whole, count, page.max(least));
            assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), 64);
            for (no, piece) in (1..).zip(&mut pieces) {
                assert_eq!(piece.len(), count);
                piece.iter_mut().for_each(|block| block.0.fill(no));
            }
            let holds = |piece: &Piece, no| piece.iter().all(|block| block.0 == [no; BLOCK_SIZE]);
            assert!((1..).zip(&pieces).all(|(no, piece)| holds(piece, no)));
            let (no, last) = (pieces.len() as u8, pieces.pop());
            let last = std::thread::spawn(move || (drop(pieces), last).1).join().expect("no panic");
            assert!(last.is_some_and(|piece| holds(&piece, no)), "the others are gone");
        }
    }

    #[test]
    fn a_page_is_there_until_its_last_piece_goes() {
        let (mut pages, page) = (divide(Piece::new(64).expect("memory"), 16, 16), 16);
        let mapping = pages[0].whole.as_ref().map(Arc::downgrade).expect("a part");
        let mut parts = divide(pages.pop().expect("there are four"), 4, page);
        drop(pages);
        assert_eq!(mapping.strong_count(), 1, "of the mapping there is one page");
        let mut last = parts.remove(1);
        let eight = last.whole.as_ref().map(Arc::downgrade).expect("a part");
        parts
            .into_iter()
            .flat_map(|part| divide(part, 1, page))
            .for_each(|mut part| part[0].0.fill(1));
        last[3].0.fill(2);
        assert_eq!((last[0].0, last[3].0), ([0; BLOCK_SIZE], [2; BLOCK_SIZE]));
        assert_eq!((eight.strong_count(), mapping.strong_count()), (1, 1));
        drop(last);
        assert_eq!((eight.strong_count(), mapping.strong_count()), (0, 0));
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for count in [0, 1 << 50, isize::MAX as usize / BLOCK_SIZE + 1, usize::MAX] {
            assert!(Piece::new(count).is_err(), "{count}");
        }
        assert!(Piece::default().is_empty());
    }
}
