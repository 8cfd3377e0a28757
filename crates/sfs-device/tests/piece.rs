//! Memory that goes back to the system. Alone in its process: what is unmapped may be another thread's next.

use sfs_device::{BLOCK_SIZE, Block, Piece};

/// No page is larger.
const BLOCKS: usize = 16;

/// Whether any of the blocks from `start` on takes memory.
fn is_resident(start: *const Block, count: usize) -> bool {
    let mut pages = vec![0_u8; count];
    // SAFETY: there is a byte for each page, which is no smaller than a block; the range is only looked up.
    let result =
        unsafe { libc::mincore(start.cast_mut().cast(), count * BLOCK_SIZE, pages.as_mut_ptr()) };
    result == 0 && pages.iter().any(|page| *page & 1 == 1)
}

#[test]
fn memory_goes_back_with_each_piece() {
    let whole = Piece::new(4 * BLOCKS).expect("memory");
    let (lower, upper) = whole.halve();
    let mut pieces: Vec<Piece> =
        [lower.halve(), upper.halve()].into_iter().flat_map(<[_; 2]>::from).collect();
    pieces.iter_mut().flat_map(|piece| piece.iter_mut()).for_each(|block| block.0.fill(1));
    let starts: Vec<*const Block> = pieces.iter().map(|piece| piece.as_ptr()).collect();
    let resident = || starts.iter().map(|start| is_resident(*start, BLOCKS)).collect::<Vec<_>>();
    assert_eq!(resident(), [true; 4]);
    let last = pieces.pop();
    drop(pieces.remove(1));
    assert_eq!(resident(), [true, false, true, true]);
    drop(pieces);
    assert_eq!(resident(), [false, false, false, true]);
    let (mut part, other) = last.expect("there were four").halve();
    drop(other);
    while part.len() > 1 {
        part = part.halve().0;
    }
    assert_eq!(part[0].0, [1; BLOCK_SIZE]);
    drop(part);
    assert_eq!(resident(), [false; 4]);
}
