//! Memory of blocks, straight from the system.
//!
//! Owns: mappings of memory, each divided into pieces. The allocator would put a header before each
//! block, which takes a page for itself where blocks are asked for one by one.
//! Promises: a piece shares no byte with another; memory goes back to the system with the last piece of its
//! mapping.
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
    start: NonNull<Block>,
    count: usize,
    /// Keeps the memory there; `None` without a block.
    _mapping: Option<Arc<Mapping>>,
}

/// Memory that the system gave.
#[derive(Debug)]
struct Mapping {
    start: NonNull<Block>,
    /// In bytes.
    length: usize,
}

impl Piece {
    /// `number` pieces of `count` blocks each, all zero, which the system gives at once, and takes back
    /// when the last of them is dropped. Fails without memory, and where `number` or `count` is zero.
    pub fn several(number: usize, count: usize) -> io::Result<impl Iterator<Item = Piece>> {
        let mapping = Arc::new(Mapping::new(number, count)?);
        Ok((0..number).map(move |no| {
            // SAFETY: the mapping has room for `number` times `count` blocks.
            let start = unsafe { mapping.start.add(no * count) };
            Piece { start, count, _mapping: Some(mapping.clone()) }
        }))
    }
}

impl Default for Piece {
    fn default() -> Self {
        Self { start: NonNull::dangling(), count: 0, _mapping: None }
    }
}

impl Deref for Piece {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        // SAFETY: the blocks are part of the mapping, which is there as long as the piece; they were zero at
        // first, and any bytes are a block; no other piece has them. Without a mapping there are none.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [Block] {
        // SAFETY: as above, and who has the piece alone has its blocks alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

// SAFETY: a piece owns its blocks as a box would, and the mapping is not changed before it goes.
unsafe impl Send for Piece {}
// SAFETY: likewise.
unsafe impl Sync for Piece {}

impl Mapping {
    fn new(number: usize, count: usize) -> io::Result<Self> {
        let blocks = number.checked_mul(count);
        let length = blocks.and_then(|blocks| blocks.checked_mul(BLOCK_SIZE));
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
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no piece of it is left.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert_eq!(result, 0);
    }
}

// SAFETY: it is only an address, and the system lets any thread give memory back.
unsafe impl Send for Mapping {}
// SAFETY: likewise; nothing reaches the memory through it.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_share_no_byte_and_outlive_each_other() {
        let mut pieces: Vec<Piece> = Piece::several(5, 3).expect("memory").collect();
        assert!(pieces.iter().all(|piece| piece.len() == 3));
        assert!(
            pieces.iter().flat_map(|piece| piece.iter()).all(|block| block.0 == [0; BLOCK_SIZE])
        );
        for (no, piece) in (1..).zip(&mut pieces) {
            piece.iter_mut().for_each(|block| block.0.fill(no));
        }
        let holds = |piece: &Piece, no| piece.iter().all(|block| block.0 == [no; BLOCK_SIZE]);
        assert!((1..).zip(&pieces).all(|(no, piece)| holds(piece, no)));
        let last = std::thread::spawn(move || pieces.pop()).join().expect("no panic");
        assert!(last.is_some_and(|piece| holds(&piece, 5)), "the others are gone");
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for (number, count) in [(0, 1), (1, 0), (1 << 40, 1 << 20), (usize::MAX, 2)] {
            assert!(Piece::several(number, count).is_err(), "{number} of {count}");
        }
        assert!(Piece::default().is_empty());
    }
}
