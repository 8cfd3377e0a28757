//! Resizing: segments are added at the end of a mounted volume, or dropped there once they are empty.
//!
//! Areas of the new layout are written beside those of the old one; the superblock then switches between the two.
//! In this order: a checkpoint and both its slots for the new layout; flush; the new backup; flush; the first
//! superblock; flush; the locator; flush. Only then is a new segment used. A crash leaves the old or the new
//! volume, with all data.

use sfs_device::{BLOCK_SIZE, Block, Stream};
use zerocopy::FromZeros;

use super::Volume;
use crate::Error;
use crate::format::{ChunkSummary, DataLayout, Layout, TableSegments};
use crate::log::LogState;
use crate::mutant::{Mutant, mutated};
use crate::recovery::policies;
use crate::writeback::{CheckpointReason, StepError};

/// Number of segments in a row without a chunk of this volume after which no more are looked for behind its end.
const STRANGE_SEGMENTS: u32 = 1024;

/// Number of segments of the least size for each segment that a refusal adds to it, where emptying has failed.
const SEGMENTS_PER_MORE: u32 = 16;

/// Change of a volume's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Layout before.
    pub from: Layout,
    /// Layout now; the same as before if the volume was not changed.
    pub to: Layout,
}

/// The reason why a volume was not resized.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// The device is smaller than the size.
    #[error("the device has only {device_blocks} blocks of 4096 bytes")]
    DeviceTooSmall {
        /// Number of blocks of the device.
        device_blocks: u64,
    },
    /// The content of the volume needs more than the size.
    #[error("the volume is too full to shrink that far: it needs {} bytes", .least_blocks * BLOCK_SIZE as u64)]
    Occupied {
        /// Number of blocks that would do.
        least_blocks: u64,
    },
    /// Data is overwritten in place, and cannot be moved.
    #[error("only a volume with --layout log can shrink: data in place is never moved")]
    InPlace,
    /// The size is smaller than that of the volume, which is mounted.
    #[error("a mounted volume cannot shrink; unmount it first")]
    ShrinksMounted,
    /// The volume has too few free segments for the checkpoint of a resize, or its checkpoints have no room for one more
    /// record beside those of newer programs.
    #[error("the volume is too full to be resized; delete something first")]
    TooFull,
    /// The resize failed, or the volume cannot be changed.
    #[error("{0}")]
    Failed(#[from] Error),
}

impl From<StepError> for ResizeError {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Shortage(_) => Self::TooFull,
            StepError::Failed(error) => Self::Failed(error),
        }
    }
}

impl Volume {
    /// Adds segments at the end, so that the volume has `block_count` blocks, or all of the device with `None`.
    /// Without room for one more segment the volume stays as it is. `nonce` is a random number.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; the volume is then as before, or writing has ended with an error of the device and the next
    /// mount finds the volume in the old or the new size.
    pub fn grow_volume(
        &self,
        block_count: Option<u64>,
        nonce: u64,
    ) -> Result<Resized, ResizeError> {
        self.superblocks.after(self.grow_to(block_count, nonce))
    }

    /// Moves everything to the front, and drops segments at the end, so that the volume has `block_count` blocks. Nobody else
    /// may use the volume meanwhile. `nonce` is a random number.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; the volume then has its old size and all its data, or writing has ended with an error of the
    /// device and the next mount finds the volume in the old or the new size.
    pub fn shrink_volume(&self, block_count: u64, nonce: u64) -> Result<Resized, ResizeError> {
        self.superblocks.after(self.shrink_to(block_count, nonce))
    }

    fn shrink_to(&self, block_count: u64, nonce: u64) -> Result<Resized, ResizeError> {
        self.health.check_writable()?;
        if self.superblock.data_layout() != DataLayout::Log {
            return Err(ResizeError::InPlace);
        }
        self.sync_all()?;
        let from = self.layout();
        let least = self.space.least_segments();
        // A reserve of its own lets the segments be emptied.
        let occupied = |more: u32| {
            let segments = (least + more).min(from.segment_count - 1);
            ResizeError::Occupied { least_blocks: from.blocks_for(segments) }
        };
        if block_count < from.blocks_for(least) && block_count < from.block_count {
            return Err(occupied(0));
        }
        let Some(to) = from.resized(block_count).filter(|to| to.block_count < from.block_count)
        else {
            return Ok(Resized { from, to: from });
        };
        let mut log = self.log.lock();
        self.refuse_without_room(&log)?;
        if mutated(Mutant::ShrinkUnsettled) {
            self.superblocks.resize(to)?;
        }
        let emptied = self.space.empty_from(&mut log, to.segment_count);
        match emptied.and_then(|()| self.space.make_next_even(&mut log)) {
            Ok(()) => {}
            Err(StepError::Shortage(_)) => {
                self.space.give_back(&mut log)?;
                return Err(occupied(1 + least / SEGMENTS_PER_MORE));
            }
            Err(error) => return Err(error.into()),
        }
        self.drop_segments(&mut log, (&from, to), nonce)?;
        self.space.checkpoint_with_reclaim(&mut log, CheckpointReason::Resized)?;
        Ok(Resized { from, to })
    }

    /// Makes `to`, which lacks empty segments of `from`, the layout of the volume. An error ends writing: the layout in memory is not
    /// that of the device, and the last checkpoint has to stay the newest.
    pub(super) fn drop_segments(
        &self,
        log: &mut LogState,
        (from, to): (&Layout, Layout),
        nonce: u64,
    ) -> Result<(), ResizeError> {
        let dropped = self.use_layout(to).and_then(|()| {
            self.space.drop_usage_items(from)?;
            self.space.checkpoint_for_resize(log, &to, nonce)?;
            match mutated(Mutant::ShrinkUnsettled) {
                true => Ok(()),
                false => Ok(self.superblocks.resize(to)?),
            }
        });
        if dropped.is_err() && !self.health.has_stopped() {
            self.health.shut_down();
        }
        dropped
    }

    /// Returns the least number of blocks of a volume with this segment size that would hold the present content, as the
    /// free space counts it. Cleaning such a volume would be slow, and nothing could be added.
    pub fn least_block_count(&self) -> u64 {
        let (layout, least) = (self.layout(), self.space.least_segments());
        match least == layout.segment_count {
            true => layout.block_count,
            false => layout.blocks_for(least),
        }
    }

    fn grow_to(&self, block_count: Option<u64>, nonce: u64) -> Result<Resized, ResizeError> {
        self.health.check_writable()?;
        let device_blocks = self.superblocks.device().refresh_block_count().map_err(Error::from)?;
        let block_count = block_count.unwrap_or(device_blocks);
        if block_count > device_blocks {
            return Err(ResizeError::DeviceTooSmall { device_blocks });
        }
        let mut log = self.log.lock();
        let from = self.layout();
        let unchanged = Resized { from, to: from };
        let Some(to) = from.resized(block_count).filter(|to| to.block_count > from.block_count)
        else {
            let shrinks = block_count < from.block_count;
            return if shrinks { Err(ResizeError::ShrinksMounted) } else { Ok(unchanged) };
        };
        self.refuse_without_room(&log)?;
        self.erase_stale_chunks(&from, &to)?;
        self.space.checkpoint_for_resize(&mut log, &to, nonce)?;
        self.switch_layout(&mut log, to)?;
        let added: Vec<u32> = (from.segment_count..to.segment_count).collect();
        self.space.note_new_segments(&added);
        Ok(Resized { from, to })
    }

    /// Makes `to` the layout of the volume, and writes a checkpoint with a whole usage table.
    fn switch_layout(&self, log: &mut LogState, to: Layout) -> Result<(), ResizeError> {
        if mutated(Mutant::ResizeEarly) {
            self.use_layout(to)?;
            self.space.checkpoint(log, CheckpointReason::Resized)?;
        }
        self.superblocks.resize(to)?;
        if !mutated(Mutant::ResizeEarly) {
            self.use_layout(to)?;
            self.space.checkpoint_with_reclaim(log, CheckpointReason::Resized)?;
        }
        Ok(())
    }

    /// Refuses a resize if records of newer programs leave no room for the number of segments of the usage table.
    fn refuse_without_room(&self, log: &LogState) -> Result<(), ResizeError> {
        let mut extensions = log.extensions.clone();
        self.metadata.read().reserved().put_into(&mut extensions);
        TableSegments(1).put_into(&mut extensions);
        if TableSegments::is_in(&extensions) { Ok(()) } else { Err(ResizeError::TooFull) }
    }

    fn use_layout(&self, layout: Layout) -> Result<(), ResizeError> {
        let policies = policies(&self.options, self.superblock.data_layout(), &layout)?;
        let mut metadata = self.metadata.write();
        self.superblock.set_layout(layout);
        metadata.resize(layout, policies);
        Ok(())
    }

    /// Erases what a search of chunks would find in segments that `to` adds to `from`: an earlier volume with the same
    /// UUID may have been there, if an image was copied to a used device. Such a volume has used its segments in the
    /// order of their numbers.
    fn erase_stale_chunks(&self, from: &Layout, to: &Layout) -> Result<(), ResizeError> {
        let (device, volume) = (self.superblocks.device(), self.superblock.volume());
        let mut block = Block::new_vec_zeroed(1).expect("memory for a block");
        let (mut strange, mut has_erased) = (0, false);
        for segment in from.segment_count..to.segment_count {
            let at = to.segment_address(segment);
            device.read(at, &mut block).map_err(Error::from)?;
            if !ChunkSummary::begins(&block[0].0, volume) {
                strange += 1;
                if strange == STRANGE_SEGMENTS {
                    break;
                }
                continue;
            }
            strange = 0;
            has_erased = true;
            device.write(at, &[&[Block::ZERO]], Stream::default()).map_err(Error::from)?;
        }
        if has_erased {
            device.flush().map_err(|error| self.health.fail(error))?;
        }
        Ok(())
    }
}
