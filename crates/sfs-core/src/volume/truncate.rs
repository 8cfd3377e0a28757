//! Shortening files: unmaps the blocks beyond the new end, in bounded steps.
//!
//! A crash leaves the old size or the new one, and no block beyond it for good. The tail of the last block is
//! zeroed when the file grows (see `write`).

use std::sync::Arc;

use sfs_device::BLOCK_SIZE;

use super::Volume;
use crate::Result;
use crate::files::InodeState;
use crate::files::orphans;
use crate::format::{FILE_BLOCKS_MAX, Inode, InodeFlags, ItemKind, Key};
use crate::metadata::Txn;
use crate::mutant::{Mutant, mutated};

impl Volume {
    /// Truncates a file, whose content is locked for writing, to `size` bytes, fewer than it has.
    pub(super) fn shrink(&self, handle: &Arc<InodeState>, inode: &Inode, size: u64) -> Result<()> {
        let ino = handle.ino;
        let keep = size.div_ceil(BLOCK_SIZE as u64);
        if self.truncate(handle, inode, size, keep)? {
            while self.unmap_further(ino, keep as u32)? {}
        }
        Ok(())
    }

    /// Sets the new size, and does the first step of unmapping. Returns whether there is more to unmap.
    fn truncate(
        &self,
        handle: &Arc<InodeState>,
        shown: &Inode,
        size: u64,
        keep: u64,
    ) -> Result<bool> {
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
                done = txn.cut_from(ino, &mut inode, keep as u32)?;
            }
            // The orphan item of a file without a name covers the whole file.
            if !done && inode.links > 0 {
                orphans::remember_cut(txn, ino, keep as u32);
            }
            if mutated(Mutant::DataSyncSkipsSize) {
                txn.change_only_times();
            }
            txn.put_inode(ino, &inode);
            Ok(!done)
        };
        // A commit between the transaction and this step would map blocks beyond the new end.
        self.change_then(logic, |_| self.drop_dirty_beyond(handle, shown, size, keep))
    }

    /// Does another step of unmapping; returns whether there is more to unmap.
    fn unmap_further(&self, ino: u64, keep: u32) -> Result<bool> {
        self.change(|txn| {
            let mut inode = txn.inode(ino)?;
            let done = txn.cut_from(ino, &mut inode, keep)?;
            if done && inode.links > 0 {
                orphans::forget_cut(txn, ino);
            }
            txn.put_inode(ino, &inode);
            Ok(!done)
        })
    }

    /// Removes the reservations behind the end of `ino`, whose content is locked for writing.
    pub(super) fn cut_reservations(&self, ino: u64, size: u64) -> Result<()> {
        let Ok(mut first) = u32::try_from(size.div_ceil(BLOCK_SIZE as u64)) else { return Ok(()) };
        loop {
            let step = self.change(|txn| {
                let mut inode = txn.inode(ino)?;
                let step = txn.unreserve(ino, first..=u32::MAX)?;
                inode.blocks = inode.blocks.saturating_sub(step.blocks);
                if step.blocks > 0 {
                    txn.put_inode(ino, &inode);
                }
                Ok(step)
            })?;
            match step.next {
                Some(next) => first = next,
                None => return Ok(()),
            }
        }
    }

    /// Finishes a truncation of `ino` that a crash or an error left unfinished. The call has to come before the file
    /// grows or gets its first name, which would show the truncated content. The content is locked for writing, and
    /// callers see `size` bytes; the size in the tree may be smaller until a commit.
    pub(super) fn finish_truncation(&self, ino: u64, size: u64) -> Result<()> {
        let end = size.div_ceil(BLOCK_SIZE as u64);
        while let Some(keep) =
            self.metadata.read_txn(|txn| orphans::unfinished_cut(txn, ino, end))?
        {
            self.unmap_further(ino, keep)?;
        }
        Ok(())
    }

    /// Drops dirty blocks beyond the new end.
    fn drop_dirty_beyond(&self, handle: &Arc<InodeState>, inode: &Inode, size: u64, keep: u64) {
        let mut data = handle.data();
        if keep < FILE_BLOCKS_MAX {
            self.dirty.remove(&mut data, |data| data.dirty.truncate(keep as u32));
        }
        if let Some(pending) = &mut data.pending {
            pending.size = size;
        }
        // Data written from now on replaces the old content, so it must become durable together with the truncation.
        if inode.size > 0 && !mutated(Mutant::TruncationUnordered) {
            data.flush_with_next_delta = Some(self.metadata.next_sequence());
        }
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::RamDevice;

    use super::*;
    use crate::fixture::{BLOCKS, CALLER, NOW, new_volume};
    use crate::format::{ROOT_INO, RUN_BLOCKS};
    use crate::request::VolumeOptions;

    /// A file without a name is truncated in steps, one of which fails, and gets a name before a power failure: the
    /// rest of the truncation was forgotten.
    #[test]
    fn a_truncation_of_an_unnamed_file_is_finished_before_it_gets_a_name() {
        let device = Arc::new(RamDevice::new(BLOCKS));
        let volume = new_volume(device.clone());
        let file = volume.make_unnamed(ROOT_INO, 0o600, &CALLER).expect("the file is made").ino;
        let step = u64::from(RUN_BLOCKS) * BLOCK_SIZE as u64;
        for no in 0..200 {
            let mode = Default::default();
            volume.write(file, no * step, &[7; BLOCK_SIZE], mode, &CALLER).expect("a write");
        }
        volume.sync_all().expect("RAM");
        let handle = volume.inodes.get(file);
        let inode = volume.attributes(file).expect("RAM");
        {
            // `shrink`, interrupted after its first step.
            let _io = handle.io_write();
            assert!(
                volume.truncate(&handle, &inode, 0, 0).expect("RAM"),
                "the truncation takes another step"
            );
        }
        volume.link(file, ROOT_INO, b"name", &CALLER).expect("the first name of the file");
        volume.sync_all().expect("RAM");
        drop(volume);
        let volume = Volume::open(device, VolumeOptions::default(), NOW).expect("the volume opens");
        while volume.work(NOW).expect("RAM") == crate::request::Work::More {}
        let inode = volume.attributes(file).expect("the file has a name");
        assert_eq!(inode.size, 0);
        let handle = volume.inodes.get(file);
        {
            let _io = handle.io_write();
            volume.set_size(&handle, 200 * step).expect("the file grows");
        }
        let read = volume.read(file, 0, 1).expect("the file reads");
        assert_eq!((inode.blocks, read.as_bytes()), (0, &[0][..]), "blocks, and content of a hole");
    }
}
