//! Memory for blocks, mapped directly from the kernel.
//!
//! The allocator would put a header before each block-aligned allocation, which costs a whole page where
//! blocks are allocated one by one. A region is made by one `mmap` and can be halved repeatedly; the parts
//! never overlap. When the last part of a page is dropped, the memory of this page returns to the kernel.
//! When the last part of a mapping is dropped, its addresses are unmapped. Parts are never unmapped one by
//! one, because this would split the mapping, and the kernel limits the number of mappings.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::block::{BLOCK_SIZE, Block};

/// Number of blocks of a huge page, on most processors with pages of 4 KiB. Elsewhere huge pages are longer, and the kernel
/// takes the advice where one fits.
const HUGE_PAGE_BLOCKS: usize = (2 << 20) / BLOCK_SIZE;

/// Adjacent blocks of mapped memory with one owner. The default region is empty.
#[derive(Debug)]
pub struct MmapRegion {
    /// Address of the first block. All blocks of the region are mapped, and no other region contains them.
    start: NonNull<Block>,
    count: usize,
    /// Region that contains this one and has to outlive it: the whole mapping, or the page that this
    /// region is a part of. `None` for the whole mapping itself.
    parent: Option<Arc<MmapRegion>>,
}

impl MmapRegion {
    /// Maps `count` blocks of zeros.
    ///
    /// # Errors
    ///
    /// The error of `mmap` if memory is short or `count` is zero.
    pub fn new(count: usize) -> io::Result<Self> {
        let length =
            count.checked_mul(BLOCK_SIZE).filter(|length| isize::try_from(*length).is_ok());
        let length = length.ok_or(io::ErrorKind::OutOfMemory)?;
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address that the kernel chooses replaces no other mapping.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // The mapping is aligned to a page, and a page is never smaller than a block.
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count, parent: None })
    }

    /// Maps `count` blocks of zeros, in huge pages if the kernel has some and `count` is a multiple of their size. A request to a
    /// device takes a limited number of pages, often 128, so that one into small pages is cut at half a mebibyte. Kernels
    /// before 6.7 do not align mappings to huge pages, which leaves small pages at both ends. Parts of a
    /// huge page do not return to the kernel before the whole page.
    ///
    /// # Errors
    ///
    /// As [`MmapRegion::new`].
    pub fn in_huge_pages(count: usize) -> io::Result<Self> {
        let region = Self::new(count)?;
        if count.is_multiple_of(HUGE_PAGE_BLOCKS) {
            let (start, length) = (region.start.as_ptr().cast(), count * BLOCK_SIZE);
            // A kernel without huge pages refuses, and small ones do as well.
            // SAFETY: the advice changes no content, and concerns only the mapping of this region.
            unsafe { libc::madvise(start, length, libc::MADV_HUGEPAGE) };
        }
        Ok(region)
    }

    /// Splits the region into its two halves.
    ///
    /// # Panics
    ///
    /// If the number of blocks is not a power of two, or is less than two.
    pub fn halve(self) -> (Self, Self) {
        self.halve_with_page(page_blocks())
    }

    /// Splits as [`Self::halve`], for pages of `page_blocks` blocks.
    fn halve_with_page(mut self, page_blocks: usize) -> (Self, Self) {
        assert!(self.count.is_power_of_two() && self.count > 1, "half of {} blocks", self.count);
        let (start, count) = (self.start, self.count / 2);
        // SAFETY: `count` is half the blocks of this region, so the result lies in the same mapping.
        let middle = unsafe { start.add(count) };
        let half = |start, parent: &Arc<Self>| Self { start, count, parent: Some(parent.clone()) };
        // Halves of whole pages depend on the mapping only: each can release its own pages.
        if let Some(parent) = self.parent.as_ref().filter(|_| count.is_multiple_of(page_blocks)) {
            let upper = half(middle, parent);
            self.count = count;
            return (self, upper);
        }
        let parent = Arc::new(self);
        (half(start, &parent), half(middle, &parent))
    }
}

/// Returns the number of blocks in a page of the kernel.
fn page_blocks() -> usize {
    // SAFETY: the call takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).map_or(1, |page| page / BLOCK_SIZE)
}

impl Default for MmapRegion {
    fn default() -> Self {
        Self { start: NonNull::dangling(), count: 0, parent: None }
    }
}

impl Deref for MmapRegion {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        // SAFETY: the blocks are mapped while the region exists, and initialised, because a mapping starts
        // as zeros and any bytes are a valid block. No other region contains them. An empty slice may have
        // any aligned address.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl DerefMut for MmapRegion {
    fn deref_mut(&mut self) -> &mut [Block] {
        // SAFETY: as in `deref`, and the exclusive borrow of the region is an exclusive borrow of its blocks.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl Drop for MmapRegion {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let (start, length) = (self.start.as_ptr().cast(), self.count * BLOCK_SIZE);
        // The call fails if the kernel merged adjacent mappings, and splitting them exceeds its limit.
        // SAFETY: the blocks are mapped, and no reference to them remains, because all parts are dropped.
        let is_unmapped = self.parent.is_none() && unsafe { libc::munmap(start, length) } == 0;
        if !is_unmapped && self.count.is_multiple_of(page_blocks()) {
            // A failure is harmless: the memory returns to the kernel together with the mapping.
            // SAFETY: as for `munmap`; the region covers whole pages, so no other region loses its content.
            unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
        }
    }
}

// SAFETY: a region owns its blocks exclusively, as a `Box<[Block]>` does.
unsafe impl Send for MmapRegion {}
// SAFETY: shared access to a region only reads its blocks.
unsafe impl Sync for MmapRegion {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divides `region` into regions of `count` blocks.
    fn divide(region: MmapRegion, count: usize, page: usize) -> Vec<MmapRegion> {
        if region.len() == count {
            return vec![region];
        }
        let (lower, upper) = region.halve_with_page(page);
        [lower, upper].into_iter().flat_map(|half| divide(half, count, page)).collect()
    }

    #[test]
    fn parts_share_no_byte_and_outlive_each_other() {
        let least = page_blocks();
        for (count, page) in [(1, least), (4, least), (1, 4), (1, 16), (2, 16), (8, 16), (16, 16)] {
            let whole = MmapRegion::new(64).expect("memory");
            assert!(whole.iter().all(|block| block.0 == [0; BLOCK_SIZE]));
            let mut parts = divide(whole, count, page.max(least));
            assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 64);
            for (no, part) in (1..).zip(&mut parts) {
                assert_eq!(part.len(), count);
                part.iter_mut().for_each(|block| block.0.fill(no));
            }
            let holds =
                |part: &MmapRegion, no| part.iter().all(|block| block.0 == [no; BLOCK_SIZE]);
            assert!((1..).zip(&parts).all(|(no, part)| holds(part, no)));
            let (no, last) = (parts.len() as u8, parts.pop());
            let last = std::thread::spawn(move || (drop(parts), last).1).join().expect("no panic");
            assert!(last.is_some_and(|part| holds(&part, no)), "the other parts are dropped");
        }
    }

    #[test]
    fn a_page_stays_mapped_until_its_last_part_is_dropped() {
        let (mut pages, page) = (divide(MmapRegion::new(64).expect("memory"), 16, 16), 16);
        let mapping = pages[0].parent.as_ref().map(Arc::downgrade).expect("a part");
        let mut parts = divide(pages.pop().expect("four pages"), 4, page);
        drop(pages);
        assert_eq!(mapping.strong_count(), 1, "one page of the mapping remains");
        let mut last = parts.remove(1);
        let eight = last.parent.as_ref().map(Arc::downgrade).expect("a part");
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
    fn a_region_in_huge_pages_is_like_any_other() {
        for count in [1, HUGE_PAGE_BLOCKS, HUGE_PAGE_BLOCKS + 1] {
            let mut region = MmapRegion::in_huge_pages(count).expect("memory");
            assert_eq!(region.len(), count);
            assert!(region.iter().all(|block| block.0 == [0; BLOCK_SIZE]));
            region[count - 1].0.fill(1);
            assert_eq!(region[count - 1].0, [1; BLOCK_SIZE]);
        }
        assert!(MmapRegion::in_huge_pages(0).is_err());
    }

    #[test]
    fn a_size_that_cannot_be_mapped_is_refused() {
        for count in [0, 1 << 50, isize::MAX as usize / BLOCK_SIZE + 1, usize::MAX] {
            assert!(MmapRegion::new(count).is_err(), "{count}");
        }
        assert!(MmapRegion::default().is_empty());
    }
}
