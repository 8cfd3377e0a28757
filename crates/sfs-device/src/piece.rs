//! Memory of blocks, straight from the system.
//!
//! Owns: mappings of memory. The allocator would put a header before each block, which takes a page for
//! itself where blocks are asked for one by one.
//! Promises: a piece shares no byte with another; each page goes back to the system with the last piece
//! in it, whatever that was divided from.
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
    /// What the pieces in one page were divided from; without, the pages are of this piece alone.
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

    /// The same blocks, in pieces of `count`, a power of two that must be a divisor of their number.
    pub fn divide(self, count: usize) -> impl Iterator<Item = Self> {
        self.divide_within(count, page_blocks())
    }

    /// As [`Self::divide`], where a page has `page` blocks.
    fn divide_within(mut self, count: usize, page: usize) -> impl Iterator<Item = Self> {
        let divides = count.is_power_of_two() && self.count.is_multiple_of(count);
        assert!(divides, "{} in pieces of {count}", self.count);
        let pages = std::iter::from_fn(move || self.split_off(page.max(count)));
        pages.flat_map(move |piece| piece.share(count))
    }

    /// The first `most` blocks or what there is, if there are any.
    fn split_off(&mut self, most: usize) -> Option<Self> {
        let (start, count) = (self.start, self.count.min(most));
        // SAFETY: `count` blocks further on there are others of the same mapping, or it ends.
        self.start = unsafe { start.add(count) };
        self.count -= count;
        (count > 0).then(|| Self { start, count, whole: self.whole.clone() })
    }

    /// Pieces of `count` blocks that take the pages of this one with them when all are gone.
    fn share(self, count: usize) -> impl Iterator<Item = Self> {
        let (start, parts) = (self.start, self.count / count);
        let (alone, whole) =
            if parts == 1 { (Some(self), None) } else { (None, Some(Arc::new(self))) };
        let part = move |(no, whole): (usize, Arc<Self>)| {
            // SAFETY: the whole has `parts` times `count` blocks, and is there as long as its parts are.
            let start = unsafe { start.add(no * count) };
            Self { start, count, whole: Some(whole) }
        };
        let wholes = whole.into_iter().flat_map(move |whole| std::iter::repeat_n(whole, parts));
        alone.into_iter().chain((0..).zip(wholes).map(part))
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
        let (start, length) = (self.start.as_ptr().cast(), self.count * BLOCK_SIZE);
        if length == 0 || self.whole.is_some() {
            return;
        }
        // SAFETY: the blocks are mapped, and nobody has them any more, nor others in their pages.
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

    #[test]
    fn pieces_share_no_byte_and_outlive_each_other() {
        for (count, page) in [(1, page_blocks()), (4, page_blocks()), (1, 4), (2, 16), (2, 64)] {
            let page = page.max(page_blocks());
            let whole = Piece::new(48).expect("memory");
            assert!(whole.iter().all(|block| block.0 == [0; BLOCK_SIZE]));
            let mut pieces: Vec<Piece> = whole.divide_within(count, page).collect();
            assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), 48);
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
        let mut pages = Piece::new(64).expect("memory").divide_within(16, 16);
        assert!(pages.next().expect("there is one").whole.is_none(), "it goes by itself");
        let mut parts = pages.next().expect("there is one").divide_within(4, 16);
        let mut last = parts.next().expect("there is one");
        let whole = last.whole.as_ref().map(Arc::downgrade).expect("a part");
        parts.flat_map(|part| part.divide_within(2, 16)).for_each(|mut part| part[1].0.fill(1));
        drop(pages);
        last[3].0.fill(2);
        assert_eq!((last[0].0, last[3].0), ([0; BLOCK_SIZE], [2; BLOCK_SIZE]));
        assert_eq!(whole.strong_count(), 1);
        drop(last);
        assert_eq!(whole.strong_count(), 0);
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for count in [0, 1 << 50, isize::MAX as usize / BLOCK_SIZE + 1, usize::MAX] {
            assert!(Piece::new(count).is_err(), "{count}");
        }
        assert!(Piece::default().is_empty());
    }
}
