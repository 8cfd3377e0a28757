//! Making a volume: the first tree and the first checkpoint.
//!
//! Owns: the first bytes of a volume.
//! Promises: the superblock is written last, so that an interrupted making leaves no volume.
//! Never: looks at what was on the device before.

use std::sync::Arc;

use sfs_device::{Block, Device, Stream};

use super::Volume;
use super::policies;
use super::recovery::read_checkpoints;
use super::superblocks::Superblocks;
use crate::Result;
use crate::format::{
    CheckpointRecord, Extensions, FIRST_INO, Inode, Key, LOCATOR_ADDRESS, ROOT_INO,
    SUPERBLOCK_ADDRESS, Superblock, Timestamp, usage_key,
};
use crate::log::{Heads, Log};
use crate::meta::Meta;
use crate::request::VolumeOptions;
use crate::segments::UsageTable;
use crate::tree::Tree;

/// Makes an empty volume with root directory `root` on `device`, whose slots and superblocks hold
/// nothing that could be taken for a volume.
pub fn make(device: Arc<dyn Device>, superblock: &Superblock, root: &Inode) -> Result<()> {
    let layout = superblock.layout;
    let log = Log {
        heads: Heads::default(),
        next_sequence: 1,
        previous: 0,
        unflushed: false,
        flushed: 0,
        blocks_since_checkpoint: 0,
        checkpoint: 1,
        synced: 0,
        mount_count: 0,
        user_bytes_before: 0,
        device_bytes_before: 0,
        extensions: Extensions::default(),
    };
    let options = VolumeOptions { discard: false, ..VolumeOptions::default() };
    let usage = UsageTable::new(layout, superblock.tick_shift);
    let meta = Meta::new(Tree::new(), usage, FIRST_INO, policies(&options, superblock)?);
    let volume =
        Volume::assemble(device.clone(), Superblocks::new(superblock.clone()), options, log, meta);
    volume.fill_first_tree(root);
    volume.checkpoint(&mut volume.log.lock(), true)?;
    let (record, _) = read_checkpoints(&*device, superblock)?;
    volume.write_record(&CheckpointRecord { number: record.number - 1, ..record })?;

    let block = Block(superblock.encode());
    let stream = Stream::default();
    device.write(layout.backup, &[std::slice::from_ref(&block)], stream)?;
    device.write(LOCATOR_ADDRESS, &[std::slice::from_ref(&block)], stream)?;
    device.write(SUPERBLOCK_ADDRESS, &[std::slice::from_ref(&block)], stream)?;
    device.flush()?;
    Ok(())
}

impl Volume {
    /// The root directory, and the usage of every segment.
    fn fill_first_tree(&self, root: &Inode) {
        let mut meta = self.meta.write();
        let whole = "a new tree is in memory";
        // In the order of the keys, which fills the leaves.
        for item in 0..meta.usage.item_count() {
            let (first, value) = meta.usage.encode_item(item);
            meta.tree.put(&usage_key(first), &value).expect(whole);
        }
        meta.tree.put(&Key::inode(ROOT_INO), &root.encode()).expect(whole);
    }
}

/// The attributes of a new root directory.
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
