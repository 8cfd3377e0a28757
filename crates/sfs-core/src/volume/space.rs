//! Space: what there is, what is left, and making room.
//!
//! Owns: the reserve that cleaning needs, and admission of writes.
//! Promises: what was admitted can be written; ENOSPC is answered before anything has changed.
//! Never: refuses to delete.

use std::sync::atomic::Ordering;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use sfs_device::BLOCK_SIZE;

use super::Volume;
use super::handles::Handle;
use crate::format::{INLINE_LEN_MAX, InodeFlags};
use crate::log::Batch;
use crate::meta::Meta;
use crate::request::Space;
use crate::{Error, Result};

/// Segments that emptying one may open: the head's next, and one for the delta. Another, for two
/// checkpoints may each fill a segment in part.
const CLEANING_SEGMENTS: usize = 3;

/// Segments that a small commit may open, and one to see it coming.
const COMMIT_SEGMENTS: usize = 4;

/// Room that a writer has been admitted to, until what he writes is dirty.
pub(super) struct Admitted<'a> {
    volume: &'a Volume,
    blocks: u64,
    /// Who cannot be admitted beside others waits for them.
    _beside: RwLockReadGuard<'a, ()>,
}

impl<'a> Admitted<'a> {
    /// With others. After what they have been admitted to, which comes with it.
    fn beside(volume: &'a Volume, blocks: u64, others: RwLockReadGuard<'a, ()>) -> (Self, u64) {
        // Who no longer finds a block here finds it dirty.
        let before = volume.admitted.fetch_add(blocks, Ordering::AcqRel);
        (Self { volume, blocks, _beside: others }, before)
    }

    /// While nobody else is. Those who come next find the blocks.
    fn alone(volume: &'a Volume, blocks: u64, nobody: RwLockWriteGuard<'a, ()>) -> Self {
        volume.admitted.fetch_add(blocks, Ordering::AcqRel);
        Self { volume, blocks, _beside: RwLockWriteGuard::downgrade(nobody) }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.volume.admitted.fetch_sub(self.blocks, Ordering::Release);
    }
}

impl Volume {
    /// How full the volume is.
    pub fn space(&self) -> Space {
        let meta = self.meta.read();
        let layout = &self.superblock.layout;
        let dirty = self.dirty_blocks.load(Ordering::Relaxed) as u64;
        Space {
            total_blocks: self.engine.capacity(layout),
            free_blocks: self.engine.free_blocks(layout, &meta).saturating_sub(dirty),
            files: meta.next_ino - crate::format::FIRST_INO,
        }
    }

    /// Whether an operation may add metadata, and `blocks` of data. Nobody else is admitted to the same
    /// room as long as what is returned lives: between here and the buffer a writer may have to wait.
    /// Not to be called by who has it, or a lock that a writer may wait for.
    pub(super) fn admit(&self, blocks: u64) -> Result<Admitted<'_>> {
        self.writable()?;
        let mut may_gain = true;
        loop {
            if let Some(admitted) = self.admit_now(blocks) {
                return Ok(admitted);
            }
            if !may_gain {
                return Err(Error::NoSpace);
            }
            // Step by step: who needs a block does not wait until all is deleted that is to be.
            may_gain = match self.reclaim_step() {
                Err(error) if self.has_failed() => return Err(error),
                // Somebody else's file.
                Err(_) => true,
                Ok(more) => more,
            };
        }
    }

    /// Room for `blocks`, if there is any beside others or when they have gone: what they were admitted to is
    /// dirty then, or was more than they needed.
    fn admit_now(&self, blocks: u64) -> Option<Admitted<'_>> {
        let others = match self.admit_beside(blocks) {
            Ok(admitted) => return Some(admitted),
            Err(others) => others,
        };
        if others == 0 || !self.has_room_for(blocks, 0) {
            return None;
        }
        let alone = self.admission.write();
        self.has_room_for(blocks, 0).then(|| Admitted::alone(self, blocks, alone))
    }

    /// Room for `blocks`, if there is any without waiting; or else what others have been admitted to.
    fn admit_beside(&self, blocks: u64) -> std::result::Result<Admitted<'_>, u64> {
        let (admitted, others) = Admitted::beside(self, blocks, self.admission.read());
        if self.has_room_for(blocks, others) { Ok(admitted) } else { Err(others) }
    }

    /// Whether there are `blocks` beside what is dirty, and what `others` have been admitted to.
    fn has_room_for(&self, blocks: u64, others: u64) -> bool {
        let meta = self.meta.read();
        let waiting = self.dirty_blocks.load(Ordering::Relaxed) as u64 + others;
        self.engine.admits(&self.superblock.layout, &meta, waiting, blocks)
    }

    /// Whether `offset..end` of a file may be written: overwriting always may.
    pub(super) fn admit_write(
        &self,
        handle: &Handle,
        offset: u64,
        end: u64,
    ) -> Result<Admitted<'_>> {
        let first = offset / BLOCK_SIZE as u64;
        let last = (end - 1) / BLOCK_SIZE as u64;
        // One more for what leaves the tree item. Who overwrites does not wait for so much.
        if let Ok(admitted) = self.admit_beside(last - first + 2) {
            return Ok(admitted);
        }
        self.writable()?;
        let inode = self.attributes(handle.ino)?;
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        if is_inline && end <= inode.size.min(INLINE_LEN_MAX as u64) {
            return Ok(Admitted::beside(self, 0, self.admission.read()).0);
        }
        let mut new_blocks = u64::from(is_inline && first > 0);
        for block in first..=last {
            let block = block as u32;
            if !handle.data().dirty.contains(block) {
                let mapped = self.consult(|txn| txn.mapping(handle.ino, block))?;
                new_blocks += u64::from(mapped.is_none());
            }
        }
        match new_blocks {
            0 => Ok(Admitted::beside(self, 0, self.admission.read()).0),
            _ => self.admit(new_blocks),
        }
    }

    /// Whether a file may get the length `size`: what its tree item held takes a block beyond that. As for
    /// [`Volume::admit`], until it has the length.
    pub(super) fn admit_size(&self, ino: u64, size: u64) -> Result<Option<Admitted<'_>>> {
        let inode = self.attributes(ino)?;
        let outgrows = inode.flags.contains(InodeFlags::INLINE) && size > INLINE_LEN_MAX as u64;
        outgrows.then(|| self.admit(1)).transpose()
    }

    /// Segments that a commit leaves Clean which changes `more` leaves, so that there is always room
    /// to clean a segment and to write the checkpoint that lets it go.
    pub(super) fn cleaning_reserve(&self, meta: &Meta, more: usize) -> usize {
        let moved = Batch::segment_room(&self.superblock.layout);
        self.checkpoint_reserve(meta, more + moved) + CLEANING_SEGMENTS
    }

    /// Blocks that a commit surely has room for before it has made anything dirty.
    pub(super) fn spare_blocks(&self) -> usize {
        let meta = self.meta.read();
        let clean = meta.usage.clean_count();
        let spare = clean.saturating_sub(self.cleaning_reserve(&meta, 0));
        self.engine.ample(&self.superblock.layout, &meta, spare)
    }

    /// Segments that should be Clean so that every group can have its own head. With fewer, all blocks
    /// may have to go to one, for which the reserve is enough.
    pub(super) fn comfort(&self, meta: &Meta) -> usize {
        self.cleaning_reserve(meta, 0) + COMMIT_SEGMENTS + usize::from(meta.grouping.group_count())
    }

    /// Makes room before more metadata becomes dirty than a checkpoint could write. Who has the log
    /// is not waited for, unless it is about to be too late.
    pub(super) fn keep_room(&self) -> Result<()> {
        let (short, late) = {
            let meta = self.meta.read();
            let clean = meta.usage.clean_count();
            let kept = self.cleaning_reserve(&meta, 0);
            let dirty = meta.tree.dirty_count() > 0;
            (dirty && clean < kept + COMMIT_SEGMENTS / 2, dirty && clean < kept)
        };
        if !short {
            return Ok(());
        }
        let log = if late { Some(self.log.lock()) } else { self.log.try_lock() };
        let Some(mut log) = log else { return Ok(()) };
        unless_full(self.make_room(&mut log).map(drop))
    }
}

/// Room that could not be made is no reason to fail what does not need it yet.
pub(super) fn unless_full(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::NoSpace) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use sfs_device::RamDevice;

    use super::super::rig::{BLOCKS, create, new_volume, put, write};
    use super::*;

    /// Room for a block is one file's until the block is dirty: two files that grew at the same time were admitted to
    /// the same.
    #[test]
    fn files_that_grow_at_the_same_time_are_admitted_one_after_the_other() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let small = ["a", "b"].map(|name| create(&volume, name));
        small.iter().for_each(|ino| write(&volume, *ino, &[1; 100]));
        let large = create(&volume, "large");
        volume.sync_all().expect("there is room");
        // As much is dirty as leaves room for one block.
        let dirty = (0..BLOCKS).find(|block| {
            put(&volume, large, *block, 1, 1).expect("there is room");
            volume.admit_beside(2).is_err()
        });
        assert!(dirty.is_some() && volume.admit_beside(1).is_ok());
        std::thread::scope(|scope| {
            let first = volume.admit_size(small[0], 5000).expect("there is room");
            let (say, said) = channel();
            let (volume, small) = (&volume, &small);
            let second = scope.spawn(move || {
                let admitted = volume.admit_size(small[1], 5000);
                let _ = say.send(());
                admitted.map(drop)
            });
            // Either it waits for the first to grow, or it has been admitted to the first's room.
            let is_early = said.recv_timeout(Duration::from_millis(200)).is_ok();
            let handle = volume.handles.get(small[0]);
            let io = handle.io.write();
            volume.set_size(&handle, 5000).expect("it was admitted");
            drop((io, first));
            let second = second.join().expect("no panic");
            assert!(!is_early, "while the first had not grown: {second:?}");
            assert!(matches!(second, Err(Error::NoSpace)), "{second:?}");
        });
    }
}
