//! Test that dropped regions return their memory to the kernel.
//!
//! The test is alone in its process, because another thread could reuse the unmapped addresses.

use sfs_device::{BLOCK_SIZE, Block, MmapRegion};

/// Number of blocks in the largest page that any supported kernel uses.
const BLOCKS: usize = 16;

/// Returns whether any of the `count` blocks from `start` on is resident in memory.
fn is_resident(start: *const Block, count: usize) -> bool {
    let mut pages = vec![0_u8; count];
    // SAFETY: `pages` has a byte for each page, because a page is no smaller than a block; the call does not
    // access the range itself.
    let result =
        unsafe { libc::mincore(start.cast_mut().cast(), count * BLOCK_SIZE, pages.as_mut_ptr()) };
    result == 0 && pages.iter().any(|page| *page & 1 == 1)
}

#[test]
fn memory_returns_to_the_kernel_with_each_dropped_part() {
    let whole = MmapRegion::new(4 * BLOCKS).expect("memory");
    let (lower, upper) = whole.halve();
    let mut parts: Vec<MmapRegion> =
        [lower.halve(), upper.halve()].into_iter().flat_map(<[_; 2]>::from).collect();
    parts.iter_mut().flat_map(|part| part.iter_mut()).for_each(|block| block.0.fill(1));
    let starts: Vec<*const Block> = parts.iter().map(|part| part.as_ptr()).collect();
    let resident = || starts.iter().map(|start| is_resident(*start, BLOCKS)).collect::<Vec<_>>();
    assert_eq!(resident(), [true; 4]);
    let last = parts.pop();
    drop(parts.remove(1));
    assert_eq!(resident(), [true, false, true, true]);
    drop(parts);
    assert_eq!(resident(), [false, false, false, true]);
    let (mut part, other) = last.expect("four parts").halve();
    drop(other);
    while part.len() > 1 {
        part = part.halve().0;
    }
    assert_eq!(part[0].0, [1; BLOCK_SIZE]);
    drop(part);
    assert_eq!(resident(), [false; 4]);
}
