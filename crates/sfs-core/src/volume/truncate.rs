//! Shortening files.
//!
//! Owns: unmapping what is beyond the new end.
//! Promises: a crash leaves the old length or the new one, and no block beyond it for good.
//! Never: zeroes a tail; growing does (see `write`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sfs_device::BLOCK_SIZE;

use super::handles::Handle;
use super::txn::Txn;
use super::{Volume, orphans};
use crate::Result;
use crate::format::{FILE_BLOCKS_MAX, Inode, InodeFlags, ItemKind, Key};
use crate::mutant::{Mutant, mutated};

impl Volume {
    /// Cuts a file, whose handle is locked for writing, to `size` bytes, fewer than it has.
    pub(super) fn shrink(&self, handle: &Arc<Handle>, inode: &Inode, size: u64) -> Result<()> {
        let ino = handle.ino;
        let keep = size.div_ceil(BLOCK_SIZE as u64);
        if self.cut(handle, inode, size, keep)? {
            while self.cut_further(ino, keep as u32)? {}
        }
        Ok(())
    }

    /// The new length, and the first step of unmapping. Says whether there is more to unmap.
    fn cut(&self, handle: &Arc<Handle>, shown: &Inode, size: u64, keep: u64) -> Result<bool> {
        let ino = handle.ino;
        let logic = |txn: &mut Txn<'_>| {
            let mut inode = txn.inode(ino)?;
            inode.size = inode.size.min(size);
            if inode.flags.contains(InodeFlags::INLINE) {
                let key = Key::new(ino, ItemKind::Inline, 0);
                let content = txn.get(&key)?.unwrap_or_default();
                let left = content[..content.len().min(size as usize)].to_vec();
                if left.is_empty() {
                    inode.flags.set(InodeFlags::INLINE, false);
                    txn.delete(key);
                } else {
                    txn.put(key, left);
                }
            }
            let mut done = true;
            if keep < FILE_BLOCKS_MAX {
                let (count, all) = txn.unmap_from(ino, keep as u32)?;
                inode.blocks = inode.blocks.saturating_sub(count);
                done = all;
            }
            // A file without a name has an item already, which says more.
            if !done && inode.links > 0 {
                orphans::remember_cut(txn, ino, keep as u32);
            }
            txn.put_inode(ino, &inode);
            Ok(!done)
        };
        // No commit may come between the two: it would map blocks beyond the new end.
        self.transact_then(logic, |_| self.forget_blocks(handle, shown, size, keep))
    }

    /// One more step of unmapping; says whether there is still more.
    fn cut_further(&self, ino: u64, keep: u32) -> Result<bool> {
        self.transact(|txn| {
            let mut inode = txn.inode(ino)?;
            let (count, done) = txn.unmap_from(ino, keep)?;
            inode.blocks = inode.blocks.saturating_sub(count);
            if done && inode.links > 0 {
                orphans::forget_cut(txn, ino);
            }
            txn.put_inode(ino, &inode);
            Ok(!done)
        })
    }

    /// Finishes a truncation of `ino` that a crash or an error left unfinished: to be called before the
    /// file grows or gets its first name, which would show what was to be cut off. Its handle is locked
    /// for writing, and callers see `size` bytes: what the tree says may be less, and a commit makes it
    /// more at any time.
    pub(super) fn finish_cut(&self, ino: u64, size: u64) -> Result<()> {
        let end = size.div_ceil(BLOCK_SIZE as u64);
        while let Some(keep) = self.consult(|txn| orphans::unfinished_cut(txn, ino, end))? {
            self.cut_further(ino, keep)?;
        }
        Ok(())
    }

    /// Dirty blocks beyond the new end are nobody's any more.
    fn forget_blocks(&self, handle: &Arc<Handle>, inode: &Inode, size: u64, keep: u64) {
        let mut data = handle.data();
        let before = data.dirty.len();
        if keep < FILE_BLOCKS_MAX {
            data.dirty.truncate(keep as u32);
        }
        self.dirty_blocks.fetch_sub(before - data.dirty.len(), Ordering::Relaxed);
        if let Some(pending) = &mut data.pending {
            pending.size = size;
        }
        // What is written now replaces what was there: it must not be lost behind the truncation.
        if inode.size > 0 && !mutated(Mutant::TruncationUnordered) {
            data.ordered = Some(self.next_sequence.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::RamDevice;

    use super::super::rig::{BLOCKS, CALLER, NOW, new_volume};
    use super::*;
    use crate::format::{ROOT_INO, RUN_BLOCKS};
    use crate::request::VolumeOptions;

    /// A file without a name is cut, in steps, of which one fails, and gets a name; then the power fails:
    /// nothing said any more that it was to be cut further.
    #[test]
    fn what_is_cut_off_a_file_without_a_name_does_not_come_back_with_its_name() {
        let device = Arc::new(RamDevice::new(BLOCKS));
        let volume = new_volume(device.clone());
        let file = volume.make_unnamed(ROOT_INO, 0o600, &CALLER).expect("it is made").ino;
        let step = u64::from(RUN_BLOCKS) * BLOCK_SIZE as u64;
        for no in 0..200 {
            let mode = Default::default();
            volume.write(file, no * step, &[7; BLOCK_SIZE], mode, &CALLER).expect("a write");
        }
        volume.sync_all().expect("RAM");
        let handle = volume.handles.get(file);
        let inode = volume.attributes(file).expect("RAM");
        {
            // `shrink`, interrupted.
            let _io = handle.io.write();
            assert!(volume.cut(&handle, &inode, 0, 0).expect("RAM"), "it takes another step");
        }
        volume.link(file, ROOT_INO, b"name", &CALLER).expect("its first name");
        volume.sync_all().expect("RAM");
        drop(volume);
        let volume = Volume::open(device, VolumeOptions::default(), NOW).expect("it opens");
        while volume.work(NOW).expect("RAM") == crate::request::Work::More {}
        let inode = volume.attributes(file).expect("it has a name");
        assert_eq!(inode.size, 0);
        let handle = volume.handles.get(file);
        {
            let _io = handle.io.write();
            volume.set_size(&handle, 200 * step).expect("it grows");
        }
        let read = volume.read(file, 0, 1).expect("it reads");
        assert_eq!((inode.blocks, read.as_bytes()), (0, &[0][..]), "blocks, and what a hole reads");
    }
}
