//! Making a volume: the first tree and the first checkpoint.
//!
//! The superblock is written last, so that an interrupted `sfs-mkfs` leaves no volume. Earlier content of the
//! device is not looked at.

use std::sync::Arc;

use sfs_device::{Block, Device, Stream};

use super::components::{Components, policies};
use super::open::read_checkpoints;
use crate::Result;
use crate::format::{
    CheckpointRecord, Extensions, FIRST_INO, FileCount, Inode, Key, LOCATOR_ADDRESS, LogEra,
    ROOT_INO, SUPERBLOCK_ADDRESS, Superblock, Timestamp, usage_key,
};
use crate::health::SuperblockCopies;
use crate::log::{Heads, LogState};
use crate::metadata::Metadata;
use crate::request::VolumeOptions;
use crate::segments::UsageTable;
use crate::tree::Tree;
use crate::writeback::{CheckpointReason, StepError};

/// Makes an empty volume with root directory `root` on `device`. The checkpoint slots and superblocks on the device
/// must hold nothing that could be taken for a volume.
///
/// # Errors
///
/// [`Error::NoSpace`](crate::Error::NoSpace) if the volume is too small, and errors of the device.
pub fn make(device: Arc<dyn Device>, superblock: &Superblock, root: &Inode) -> Result<()> {
    let layout = superblock.layout;
    let log = LogState {
        heads: Heads::default(),
        next_sequence: 1,
        previous: 0,
        unflushed: false,
        flushed: 0,
        blocks_since_checkpoint: 0,
        checkpoint: 1,
        mount_count: 0,
        era: LogEra::UNKNOWN,
        user_bytes_before: 0,
        extensions: Extensions::default(),
    };
    let options = VolumeOptions { discard: false, ..VolumeOptions::default() };
    let usage = UsageTable::new(layout, superblock.tick_shift);
    let policies = policies(&options, superblock.data_layout, &layout)?;
    let metadata = Metadata::new(Tree::new(), usage, FIRST_INO, policies);
    let copies = SuperblockCopies::new(superblock.clone());
    let components = Components::new(device.clone(), copies, options, (log, 0), metadata);
    fill_first_tree(&components, root);
    let checkpointer = &components.checkpointer;
    let checkpoint = checkpointer.checkpoint(&mut components.log.lock(), CheckpointReason::Format);
    checkpoint.map_err(StepError::into_user_error)?;
    let record = read_checkpoints(&*device, superblock)?.record;
    checkpointer.write_record(&CheckpointRecord { number: record.number - 1, ..record })?;

    let block = Block(superblock.encode());
    let stream = Stream::default();
    device.write(layout.backup, &[std::slice::from_ref(&block)], stream)?;
    device.write(LOCATOR_ADDRESS, &[std::slice::from_ref(&block)], stream)?;
    device.write(SUPERBLOCK_ADDRESS, &[std::slice::from_ref(&block)], stream)?;
    device.flush()?;
    Ok(())
}

/// Puts the usage of every segment and the root directory into the tree.
fn fill_first_tree(components: &Components, root: &Inode) {
    let mut metadata = components.metadata.write();
    let in_memory = "a new tree is in memory";
    // The order of the keys fills the leaves.
    for item in 0..metadata.usage.item_count() {
        let (first, value) = metadata.usage.encode_item(item);
        metadata.tree.put(&usage_key(first), &value).expect(in_memory);
    }
    metadata.tree.put(&Key::inode(ROOT_INO), &root.encode()).expect(in_memory);
    metadata.set_file_count(Some(FileCount(1)));
}

/// Returns the inode of a new root directory.
pub fn root_directory(uid: u32, gid: u32, now: Timestamp) -> Inode {
    Inode {
        mode: 0o040_755,
        links: 2,
        uid,
        gid,
        rdev: 0,
        flags: crate::format::InodeFlags::NONE,
        size: 0,
        blocks: 0,
        parent: ROOT_INO,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        write_count: 0,
        modified: 0,
    }
}
