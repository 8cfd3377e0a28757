//! Space: what there is, what is left, and making room.
//!
//! Owns: the reserve that cleaning needs, and admission of writes.
//! Promises: what was admitted can be written; ENOSPC is answered before anything has changed.
//! Never: refuses to delete.

use std::sync::atomic::Ordering;

use sfs_device::BLOCK_SIZE;

use super::Volume;
use super::handles::Handle;
use crate::format::{INLINE_LEN_MAX, InodeFlags};
use crate::log::Batch;
use crate::meta::Meta;
use crate::request::Space;
use crate::{Error, Result};

/// Segments that users never get, at least: open heads, a checkpoint, and room to clean into.
const RESERVE_SEGMENTS_MIN: u32 = 16;

/// Blocks of a segment that summaries take: one in so many, and at least [`SUMMARY_BLOCKS_MIN`].
/// What is written in small pieces takes more at first, until it is cleaned.
const SUMMARY_SHARE: u32 = 64;

/// See [`SUMMARY_SHARE`].
const SUMMARY_BLOCKS_MIN: u32 = 2;

/// The share of all segments that users never get: one in so many.
const RESERVE_SHARE: u32 = 16;

/// One in so many of the blocks of a full volume is kept for metadata of what users delete or
/// rename when it is full.
const METADATA_SHARE: u64 = 128;

/// Segments that emptying one may open: the head's next, and one for the delta. Another, for two
/// checkpoints may each fill a segment in part.
const CLEANING_SEGMENTS: usize = 3;

/// Segments that a small commit may open, and one to see it coming.
const COMMIT_SEGMENTS: usize = 4;

impl Volume {
    /// How full the volume is.
    pub fn space(&self) -> Space {
        let meta = self.meta.read();
        let total_blocks = self.capacity();
        let used = meta.usage.live_blocks() + self.dirty_blocks.load(Ordering::Relaxed) as u64;
        Space {
            total_blocks,
            free_blocks: total_blocks.saturating_sub(used),
            files: meta.next_ino - crate::format::FIRST_INO,
        }
    }

    /// Blocks that may live at once.
    fn capacity(&self) -> u64 {
        let layout = &self.superblock.layout;
        let reserve = RESERVE_SEGMENTS_MIN.max(layout.segment_count / RESERVE_SHARE);
        let summaries = (layout.segment_blocks / SUMMARY_SHARE).max(SUMMARY_BLOCKS_MIN);
        let segments = u64::from(layout.segment_count - reserve);
        segments * u64::from(layout.segment_blocks - summaries)
    }

    /// Blocks that new data may still have.
    fn headroom(&self, meta: &Meta) -> u64 {
        let dirty = self.dirty_blocks.load(Ordering::Relaxed) as u64;
        // A dirty node takes the place of the one that it was read from.
        let new_nodes = meta.tree.dirty_count().saturating_sub(meta.tree.old_count()) as u64;
        let used = meta.usage.live_blocks() + dirty + dirty / 64 + new_nodes;
        self.capacity().saturating_sub(used)
    }

    /// Whether an operation may add metadata, and `blocks` of data.
    pub(super) fn admit(&self, blocks: u64) -> Result<()> {
        self.writable()?;
        let enough = || {
            let kept = if blocks > 0 { self.capacity() / METADATA_SHARE } else { 8 };
            self.headroom(&self.meta.read()) >= blocks + kept
        };
        if enough() {
            return Ok(());
        }
        self.reclaim_all()?;
        if enough() { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Whether `offset..end` of a file may be written: overwriting always may.
    pub(super) fn admit_write(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let first = offset / BLOCK_SIZE as u64;
        let last = (end - 1) / BLOCK_SIZE as u64;
        if self.admit(last - first + 1).is_ok() {
            return Ok(());
        }
        self.writable()?;
        let inode = self.attributes(handle.ino)?;
        let inline = inode.size.min(INLINE_LEN_MAX as u64);
        if inode.flags.contains(InodeFlags::INLINE) && end <= inline {
            return Ok(());
        }
        let mut new_blocks = 0;
        for block in first..=last {
            let block = block as u32;
            if !handle.data().dirty.contains_key(&block) {
                let mapped =
                    self.consult(|txn| crate::meta::mapping(txn.tree(), handle.ino, block))?;
                new_blocks += u64::from(mapped.is_none());
            }
        }
        if new_blocks == 0 { Ok(()) } else { self.admit(new_blocks) }
    }

    /// Segments that a commit leaves Clean which changes `more` leaves, so that there is always room
    /// to clean a segment and to write the checkpoint that lets it go.
    pub(super) fn cleaning_reserve(&self, meta: &Meta, more: usize) -> usize {
        let moved = Batch::segment_room(&self.superblock.layout);
        self.checkpoint_reserve(meta, more + moved) + CLEANING_SEGMENTS
    }

    /// Clean segments that a commit may open before it has made anything dirty.
    pub(super) fn spare_segments(&self) -> usize {
        let meta = self.meta.read();
        meta.usage.clean_count().saturating_sub(self.cleaning_reserve(&meta, 0))
    }

    /// Segments that should be Clean so that every group can have its own head. With fewer, all blocks
    /// may have to go to one, for which the reserve is enough.
    pub(super) fn comfort(&self, meta: &Meta) -> usize {
        self.cleaning_reserve(meta, 0) + COMMIT_SEGMENTS + usize::from(meta.placement.group_count())
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
