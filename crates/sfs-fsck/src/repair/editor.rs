//! Edits of a tree under repair, with the losses that they cause.
//!
//! An edit is small. Inconsistencies that it causes elsewhere, such as a wrong count, are findings of the
//! next check of the tree. The editor does not write to the device.

use std::collections::BTreeSet;

use sfs_core::format::{FileKind, Inode, ItemKind, Key, RUN_BLOCKS, Timestamp};
use sfs_device::BLOCK_SIZE;

use crate::read::dirent::{COLLISIONS_MAX, Dirent, cookie, find_entry};
use crate::read::key_range::KeyRange;
use crate::read::overlay_tree::OverlayTree;
use crate::repair::loss::Loss;
use crate::repair::plan::RepairPlan;

/// Editor of a tree under repair.
pub(crate) struct TreeEditor<'r, 'v> {
    pub(crate) tree: &'r mut OverlayTree<'v>,
    pub(crate) plan: &'r mut RepairPlan,
    /// Current time, for new inodes.
    pub(crate) now: Timestamp,
}

impl TreeEditor<'_, '_> {
    /// Records a loss.
    pub(crate) fn lose(&mut self, loss: Loss) {
        self.plan.losses.insert(loss);
    }

    /// Returns the attributes of `ino`, if they decode.
    pub(crate) fn inode(&self, ino: u64) -> Option<Inode> {
        let tolerance = self.tree.volume.superblock.tolerance();
        Inode::decode(&self.tree.get(&Key::inode(ino))?, ino, tolerance).ok()
    }

    /// Sets the attributes of `ino`. Appended bytes of a newer program are dropped.
    pub(crate) fn put_inode(&mut self, ino: u64, inode: &Inode) {
        self.tree.edits.put(Key::inode(ino), inode.encode());
    }

    /// Changes the attributes of `ino`. Appended bytes of a newer program stay.
    pub(crate) fn change_inode(&mut self, ino: u64, change: impl FnOnce(&mut Inode)) {
        if let Some(mut inode) = self.inode(ino) {
            change(&mut inode);
            let old = self.tree.get(&Key::inode(ino));
            let value = Inode::keep_rest(&inode.encode(), old.as_deref()).into_owned();
            self.tree.edits.put(Key::inode(ino), value);
        }
    }

    /// Returns whether `ino` has an item of this `kind`.
    pub(crate) fn has(&self, ino: u64, kind: ItemKind) -> bool {
        let mut any = false;
        self.tree.each(KeyRange::of_kind(ino, kind), |_, _| any = true);
        any
    }

    /// Deletes the item `key`, and records the loss of its content, unless the item is the
    /// attributes of an inode.
    pub(crate) fn drop_item(&mut self, key: Key) {
        let Key { ino, kind, offset } = key;
        self.tree.edits.delete(key);
        match ItemKind::decode(kind) {
            // The next check finds an inode without attributes, and decides about its other items.
            Some(ItemKind::Inode) if offset == 0 => {}
            Some(ItemKind::Dirent) => self.lose(Loss::Names { ino, count: 1 }),
            Some(ItemKind::Mapping) if offset <= u64::from(u32::MAX / RUN_BLOCKS) => {
                let run_len = u64::from(RUN_BLOCKS) * BLOCK_SIZE as u64;
                let first = offset * run_len;
                self.lose(Loss::Bytes { ino, first, last: first + run_len - 1 });
            }
            _ => self.lose(Loss::Item { ino, kind }),
        }
    }

    /// Deletes the items in `range` without recording a loss.
    pub(crate) fn drop_range(&mut self, range: KeyRange) {
        let mut keys = Vec::new();
        self.tree.each(range, |key, _| keys.push(*key));
        keys.into_iter().for_each(|key| self.tree.edits.delete(key));
    }

    /// Deletes the items of `ino` of this `kind` without recording a loss.
    pub(crate) fn drop_kind(&mut self, ino: u64, kind: ItemKind) {
        self.drop_range(KeyRange::of_kind(ino, kind));
    }

    /// Deletes all items of `ino`, and records a loss for each kind.
    pub(crate) fn drop_inode(&mut self, ino: u64) {
        let mut kinds = BTreeSet::new();
        self.tree.each(KeyRange::of_inode(ino), |key, _| {
            kinds.insert(key.kind);
        });
        kinds.into_iter().for_each(|kind| self.lose(Loss::Item { ino, kind }));
        self.drop_range(KeyRange::of_inode(ino));
    }

    /// Adds an entry at the first free cookie for its name. An entry of that name stays; if every cookie for
    /// the name is taken, nothing is added.
    pub(crate) fn add_entry(&mut self, parent: u64, name: &[u8], target: u64, kind: FileKind) {
        if find_entry(self.tree, parent, name).is_some() {
            return;
        }
        let first = cookie(self.tree.volume.superblock.hash_key, name);
        let keys = (first..first + COLLISIONS_MAX).map(|at| Key::new(parent, ItemKind::Dirent, at));
        let free = { keys }.find(|key| self.tree.get(key).is_none());
        if let Some(key) = free {
            self.tree.edits.put(key, Dirent { target, kind, name }.encode());
        }
    }

    /// Deletes the entry at `cookie` of directory `ino`.
    pub(crate) fn drop_entry(&mut self, ino: u64, cookie: u64) {
        self.tree.edits.delete(Key::new(ino, ItemKind::Dirent, cookie));
    }
}
