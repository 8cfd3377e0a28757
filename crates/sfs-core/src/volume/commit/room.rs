//! Room: how much of what waits fits into a batch.
//!
//! Owns: the reckoning of the segments that a batch opens, and of those that it has to leave Clean.
//! Promises: a batch that has room can be written whole, and after it what its reserve is for.
//! Never: makes room (see `space` and `cleaner`).

use std::sync::atomic::Ordering;

use sfs_device::BLOCK_SIZE;

use super::plan::Chosen;
use super::request::{Request, Reserve};
use super::{Plan, RELEASES_MAX};
use crate::format::{Change, VALUE_LEN_MAX, run_key};
use crate::log::Log;
use crate::meta::Meta;
use crate::segments::SegmentBudget;
use crate::volume::Volume;
use crate::volume::engine::Site;

/// Segments that a short delta may open: it may cross into one more.
pub(in crate::volume) const DELTA_SEGMENTS: usize = 1;

/// Bytes that a change takes in a delta at most: a key, the longest value, and what frames them.
const CHANGE_LEN_MAX: usize = VALUE_LEN_MAX + 64;

/// Bytes that a delta takes to say that one segment is Clean.
const RELEASE_LEN: usize = Change::HEADER_LEN + 12;

/// Bytes that a file adds to a delta at most, beside its inline content and what a later program has
/// appended to its attributes: these, and the frames of both items.
const FILE_CHANGES_LEN_MAX: usize = 256;

impl Volume {
    /// The volume as the engine looks at it.
    pub(super) fn site<'a>(&'a self, log: &'a Log, meta: &'a Meta) -> Site<'a> {
        Site { layout: &self.superblock.layout, log, meta }
    }

    /// Blocks of data that there is room for now.
    pub(super) fn room(&self, log: &Log, meta: &Meta, request: &Request<'_>) -> usize {
        let kept = self.reserve(meta, request.reserve, 0) + DELTA_SEGMENTS;
        let spare = meta.usage.clean_count().saturating_sub(kept);
        self.engine.room(self.site(log, meta), spare)
    }

    /// The segments of `reserve` when `more` leaves have been changed.
    fn reserve(&self, meta: &Meta, reserve: Reserve, more: usize) -> usize {
        match reserve {
            Reserve::Cleaning => self.cleaning_reserve(meta, more),
            Reserve::Checkpoint => self.checkpoint_reserve(meta, more),
        }
    }

    /// Whether there might not be room for all dirty blocks in one batch. It halves what there is:
    /// metadata that becomes dirty until then takes of it.
    pub(in crate::volume) fn is_batch_short(&self) -> bool {
        let meta = self.meta.read();
        let kept = self.cleaning_reserve(&meta, 0) + DELTA_SEGMENTS;
        let spare = meta.usage.clean_count().saturating_sub(kept);
        // Each file's item may be in a leaf of its own.
        let dirty = self.dirty_blocks.load(Ordering::Relaxed) + self.dirty_files.lock().len();
        dirty > self.engine.ample(&self.superblock.layout, &meta, spare) / 2
    }

    /// How the batch shares the Clean segments, if they are enough for it, and those of `reserve` are
    /// Clean after it, which also releases some.
    pub(super) fn has_room(
        &self,
        log: &Log,
        meta: &Meta,
        plan: &Plan<'_>,
        reserve: Reserve,
        released: usize,
    ) -> Option<SegmentBudget> {
        let Plan { files, chosen, .. } = plan;
        let layout = &self.superblock.layout;
        let opens = self.engine.opens(self.site(log, meta), chosen);
        // The leaves of the runs become dirty, and a checkpoint must be able to write them.
        let same_run = |a: &Chosen, b: &Chosen| run_key(a.ino, a.block) == run_key(b.ino, b.block);
        let leaves = chosen.chunk_by(same_run).count() + files.len();
        let kept = self.reserve(meta, reserve, leaves);
        let inline: usize = files.iter().map(|f| f.inline.as_ref().map_or(0, Vec::len)).sum();
        let rests: usize = files.iter().map(|file| file.rest_len).sum();
        let said = self.engine.said_len(chosen.len()) + RELEASES_MAX * RELEASE_LEN;
        let others = files.len() * FILE_CHANGES_LEN_MAX + inline + rests + said;
        let share = |delta_len: usize| {
            let segments = delta_len / (layout.segment_blocks as usize * BLOCK_SIZE);
            let log = DELTA_SEGMENTS + segments;
            let clean = meta.usage.clean_count();
            let after = (clean + released).checked_sub(log + kept)?;
            let data = after.min(clean.checked_sub(log)?);
            (opens <= data).then_some(SegmentBudget { log, data })
        };
        // What changes may say at most is soon reckoned; what they do say takes longer.
        let most = meta.change_count() * CHANGE_LEN_MAX + others;
        share(most).or_else(|| share(meta.delta_len() + others))
    }
}
