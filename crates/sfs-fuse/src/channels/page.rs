//! Memory in whole pages. Pages are zero and occupy no memory until they are written to.

use std::io;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Size of a [`Page`] in bytes, at most that of a page of the kernel.
pub(crate) const PAGE_SIZE: usize = 4096;

/// Page of memory.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE_SIZE]);

impl Page {
    /// Allocates `count` pages.
    pub(crate) fn several(count: usize) -> io::Result<Box<[Self]>> {
        <[Self]>::new_box_zeroed_with_elems(count).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }
}
