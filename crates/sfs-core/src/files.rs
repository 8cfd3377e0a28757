//! Files in memory: references, dirty blocks, pending attributes, losses, and files to delete.
//!
//! [`InodeTable`] holds the state of each file; [`DirtyData`] lists the files that are dirty, and counts their
//! blocks and memory; [`Orphans`] deletes files without a name in bounded steps. The module does not write to
//! the device.

mod dirty_blocks;
mod dirty_data;
mod inode_table;
pub(crate) mod orphans;
mod writeback_errors;

pub(crate) use dirty_blocks::{DirtyBlock, DirtyBlocks};
pub(crate) use dirty_data::DirtyData;
pub(crate) use inode_table::{DataGuard, FileData, InodeState, InodeTable, Pending};
pub(crate) use orphans::Orphans;
