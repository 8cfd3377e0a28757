//! Outlook: the space that dirty data will take once it is committed.
//!
//! Admission counts every dirty block as a new block, which is certain and costs no look at the
//! tree. Most dirty blocks of small files take far less, because their content goes into a tree
//! item, and a block that replaces another block takes no space in the end. The outlook looks at
//! every dirty file, for `statfs` and before a writer is refused.

use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::Arc;

use sfs_device::BLOCK_SIZE;

use crate::files::{DirtyData, InodeState};
use crate::format::{INLINE_LEN_MAX, Inode, Key, RUN_BLOCKS};
use crate::metadata::{Metadata, MetadataStore};

/// Bytes of leaves for [`ITEM_BYTES`] of items: items between others split leaves, which are then half full.
const LEAF_BYTES: u64 = 7;

/// See [`LEAF_BYTES`].
const ITEM_BYTES: u64 = 4;

/// Bytes of a mapping run beside its mappings, with its key.
const RUN_BYTES: u64 = 32;

/// Bytes of a mapping in a run.
const MAPPING_BYTES: u64 = 16;

/// Number of files that are examined under one hold of the metadata lock.
const FILES_PER_HOLD: usize = 256;

/// Space that dirty data will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Number of dirty blocks, as admission counts them.
    pub(super) dirty_blocks: u64,
    /// Number of blocks that will have an address of their own.
    data_blocks: u64,
    /// Number of bytes that tree items will have in addition: inline content and mappings.
    item_bytes: u64,
}

impl AddAssign for Outlook {
    fn add_assign(&mut self, other: Self) {
        self.dirty_blocks += other.dirty_blocks;
        self.data_blocks += other.data_blocks;
        self.item_bytes += other.item_bytes;
    }
}

impl Outlook {
    /// Returns the outlook for all dirty data.
    pub(super) fn of_all(dirty: &DirtyData, metadata: &MetadataStore) -> Self {
        let mut all = Self::default();
        for files in dirty.files().chunks(FILES_PER_HOLD) {
            let metadata = metadata.read();
            files.iter().for_each(|file| all += Self::of_file(file, &metadata));
        }
        all
    }

    /// Returns files whose commit frees blocks for admission, until their commit frees
    /// `blocks_enough` blocks, and their outlook.
    pub(super) fn worthwhile_files(
        dirty: &DirtyData,
        metadata: &MetadataStore,
        blocks_enough: u64,
    ) -> (BTreeSet<u64>, Self) {
        let mut chosen = (BTreeSet::new(), Self::default());
        for files in dirty.files().chunks(FILES_PER_HOLD) {
            let metadata = metadata.read();
            for file in files {
                let outlook = Self::of_file(file, &metadata);
                if outlook.is_worthwhile() {
                    chosen.0.insert(file.ino);
                    chosen.1 += outlook;
                }
            }
            if chosen.1.gain_blocks() >= blocks_enough {
                break;
            }
        }
        chosen
    }

    /// Returns the outlook for one file. A file whose inode is not in memory counts with all its dirty blocks.
    fn of_file(file: &Arc<InodeState>, metadata: &Metadata) -> Self {
        let value = metadata.tree.get(&Key::inode(file.ino)).ok().flatten();
        let inode = value.and_then(|value| Inode::decode(value, file.ino, metadata.tolerance).ok());
        let data = file.data();
        // A reserved block is counted by its reservation.
        let dirty_blocks = data.dirty.uncovered() as u64;
        let Some(inode) = inode else { return Self::of_data(dirty_blocks, dirty_blocks) };
        let mut seen = inode;
        data.overlay(&mut seen);
        if seen.size <= INLINE_LEN_MAX as u64 && dirty_blocks <= 1 && inode.blocks == 0 {
            let more = if dirty_blocks == 0 { 0 } else { seen.size.saturating_sub(inode.size) };
            return Self { dirty_blocks, data_blocks: 0, item_bytes: more };
        }
        Self::of_data(dirty_blocks, seen.blocks.saturating_sub(inode.blocks).min(dirty_blocks))
    }

    /// Returns the outlook for a file with `dirty_blocks`, of which `data_blocks` replace no other block.
    fn of_data(dirty_blocks: u64, data_blocks: u64) -> Self {
        let runs = data_blocks.div_ceil(RUN_BLOCKS.into());
        let item_bytes = runs * RUN_BYTES + data_blocks * MAPPING_BYTES;
        Self { dirty_blocks, data_blocks, item_bytes }
    }

    /// Returns the number of blocks that the data will take, with the leaves for its items.
    pub(super) fn blocks(self) -> u64 {
        self.data_blocks + self.leaf_bytes().div_ceil(BLOCK_SIZE as u64)
    }

    fn leaf_bytes(self) -> u64 {
        self.item_bytes * LEAF_BYTES / ITEM_BYTES
    }

    /// Returns whether the data takes less than its dirty blocks.
    fn is_worthwhile(self) -> bool {
        let size = BLOCK_SIZE as u64;
        self.data_blocks * size + self.leaf_bytes() < self.dirty_blocks * size
    }

    /// Returns the number of blocks that a commit frees for admission.
    pub(super) fn gain_blocks(self) -> u64 {
        self.dirty_blocks.saturating_sub(self.blocks())
    }
}
