//! The superblock of an open volume: fields that stay the same while it is open, and the layout, which a resize changes.
//!
//! The layout changes under the lock of the log and the write lock of the metadata. A thread that holds one of
//! them reads the same layout all the time; other threads may use a layout that is a moment old.

use parking_lot::RwLock;

use crate::format::{DataLayout, Layout, Superblock, Tolerance};

/// Superblock of an open volume.
#[derive(Debug)]
pub(crate) struct OpenSuperblock {
    /// The superblock as it was when the volume was opened.
    opened: Superblock,
    layout: RwLock<Layout>,
}

impl OpenSuperblock {
    /// Returns the superblock of a volume that was opened with `superblock`.
    pub(crate) fn new(superblock: Superblock) -> Self {
        Self { layout: RwLock::new(superblock.layout), opened: superblock }
    }

    /// Returns the superblock as it was when the volume was opened.
    pub(crate) fn opened(&self) -> &Superblock {
        &self.opened
    }

    /// Returns the present layout.
    pub(crate) fn layout(&self) -> Layout {
        *self.layout.read()
    }

    /// Replaces the layout. The caller holds the log and the write lock of the metadata.
    pub(crate) fn set_layout(&self, layout: Layout) {
        *self.layout.write() = layout;
    }

    /// Returns the volume number that every structure of the volume repeats.
    pub(crate) fn volume(&self) -> u64 {
        self.opened.volume()
    }

    /// Returns the layout of file data.
    pub(crate) fn data_layout(&self) -> DataLayout {
        self.opened.data_layout
    }

    /// Returns the tolerance of unknown structures in the tree and the log.
    pub(crate) fn tolerance(&self) -> Tolerance {
        self.opened.tolerance()
    }
}
