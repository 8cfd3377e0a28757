//! Memory in whole pages.
//!
//! Owns: their size and how they are had.
//! Promises: what nobody has written to is zero, and takes no memory.
//! Never: knows what is in them.

use std::io;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page of ours, which is no larger than one of the kernel's.
pub(crate) const PAGE_SIZE: usize = 4096;

/// A page of memory.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE_SIZE]);

impl Page {
    /// So many of them.
    pub(crate) fn several(count: usize) -> io::Result<Box<[Self]>> {
        <[Self]>::new_box_zeroed_with_elems(count).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }
}
