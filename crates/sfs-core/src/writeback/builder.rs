//! Batch builder: turns dirty data and changed metadata into a batch of chunks.
//!
//! A batch encodes every change of the tree so far, and refers only to data in it or in earlier chunks. Building
//! happens under the metadata lock and takes effect in memory whole; a [`BuildError`] leaves everything as it was.
//! The caller writes the batch, even if another step fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sfs_device::BLOCK_SIZE;

use super::budget::{
    BatchSegments, RELEASES_MAX, fits_one_batch, is_reserve_left, plannable_blocks, share_segments,
};
use super::commit_request::{
    CommitRequest, Merging, MoveReason, Progress, Releases, Reserve, Selection,
};
use super::data_layout::{InPlaceBatch, LayoutBehaviour, SpaceView};
use super::plan::{FilePlan, keep_largest, note_neighbours, plan_files};
use super::staged::{StagedBlock, stage};
use super::step_error::{BuildError, Shortage};
use crate::Result;
use crate::counters::AtomicCounters;
use crate::files::{DirtyData, InodeState};
use crate::format::{Head, ItemKind, Key, Mapping, run_key};
use crate::health::OpenSuperblock;
use crate::io::{Chunk, InPlaceWrites, VolumeDevice};
use crate::log::{Batch, LogState};
use crate::metadata::{Metadata, MetadataStore};
use crate::mutant::{Mutant, mutated};
use crate::request::{Release, Remainder, VolumeOptions};
use crate::reserves::clean_target_max_segments;
use crate::segments::SegmentBudget;

/// Number of files that are examined for each wanted block of the largest groups.
const FILES_PER_BLOCK: usize = 2;

/// Number of dirty blocks that are compared for each wanted block of the largest groups, but at least
/// [`COMPARED_BLOCKS_MIN`]. Comparing holds the metadata, and small batches follow one another quickly.
const COMPARED_BLOCKS: usize = 8;

const COMPARED_BLOCKS_MIN: usize = 4096;

/// Builder of batches from dirty data and changed metadata.
pub(crate) struct BatchBuilder {
    superblock: Arc<OpenSuperblock>,
    behaviour: Arc<dyn LayoutBehaviour>,
    metadata: Arc<MetadataStore>,
    dirty: Arc<DirtyData>,
    io: Arc<VolumeDevice>,
    counters: Arc<AtomicCounters>,
    remainder: Remainder,
    release: Release,
}

/// Plan of a batch, which can still be given up.
struct Plan<'a> {
    files: Vec<FilePlan<'a>>,
    staged: Vec<StagedBlock>,
    /// Blocks that are overwritten at their present address.
    overwritten: Vec<StagedBlock>,
    progress: Progress,
}

/// A batch that has taken effect in memory and has to be written.
#[derive(Default)]
pub(crate) struct CommitBatch {
    pub(crate) chunks: Vec<Arc<Chunk>>,
    pub(crate) in_place: InPlaceWrites,
    pub(crate) progress: Progress,
    /// Segments that the delta releases.
    pub(crate) released: Vec<u32>,
}

impl BatchBuilder {
    /// Returns a builder for batches of the dirty data in `dirty` and the metadata in `metadata`.
    pub(crate) fn new(
        (superblock, options): (Arc<OpenSuperblock>, &VolumeOptions),
        behaviour: Arc<dyn LayoutBehaviour>,
        metadata: Arc<MetadataStore>,
        dirty: Arc<DirtyData>,
        io: Arc<VolumeDevice>,
        counters: Arc<AtomicCounters>,
    ) -> Self {
        let VolumeOptions { remainder, release, .. } = *options;
        Self { superblock, behaviour, metadata, dirty, io, counters, remainder, release }
    }

    /// Returns whether all dirty data certainly fits into one batch.
    pub(crate) fn fits_one_batch(&self) -> bool {
        let metadata = self.metadata.read();
        // The inode of each file may be in a leaf of its own.
        let dirty_blocks = self.dirty.block_count() + self.dirty.file_count();
        fits_one_batch(&*self.behaviour, &self.superblock.layout(), &metadata, dirty_blocks)
    }

    /// Builds a batch, which may have no chunks if there is nothing to write.
    pub(crate) fn build(
        &self,
        log: &mut LogState,
        metadata: &mut Metadata,
        request: &CommitRequest<'_>,
    ) -> std::result::Result<CommitBatch, BuildError> {
        metadata.begin_writing(self.superblock.layout().segment_blocks);
        metadata.usage.apply_durable_frees(log.flushed);
        let released = match request.releases {
            Releases::None => Vec::new(),
            Releases::Piggyback | Releases::Dedicated => {
                metadata.usage.releasable(log.flushed, RELEASES_MAX)
            }
        };
        let limit = plannable_blocks(&*self.behaviour, self.view(log, metadata), request.reserve);
        let (ordered, others) = self.select(request.selection, limit);
        let (plan, share, wanted) = self.plan_that_fits(
            log,
            metadata,
            request,
            (&ordered, &others),
            limit,
            released.len(),
        )?;
        let Plan { files, mut staged, overwritten, progress } = plan;
        let is_release = request.releases == Releases::Dedicated && !released.is_empty();
        let has_delta = metadata.has_changes() || is_release;
        if staged.is_empty() && files.is_empty() && !has_delta {
            return Ok(CommitBatch { progress, ..CommitBatch::default() });
        }
        if request.reserve == Reserve::Cleaning {
            let most = clean_target_max_segments(&self.superblock.layout(), metadata);
            metadata.note_wanted_segments(wanted.min(most));
        }

        let lengthens = files.iter().any(|file| file.lengthens);
        for file in files {
            self.apply_file_plan(metadata, file);
        }
        let layout = &self.superblock.layout();
        let InPlaceBatch { blocks: placed, maps } =
            self.behaviour.allocate(layout, log, metadata, &mut staged, share);
        let delta = metadata.delta(&maps, &released);
        metadata.clear_changes();
        let batch = self.allocate_log_blocks(log, metadata, &mut staged, &delta);
        map_blocks(log, metadata, &staged)?;
        map_blocks(log, metadata, &placed)?;
        self.count_data(metadata, staged.iter().chain(&placed).chain(&overwritten));
        overwritten.iter().for_each(|block| metadata.usage.note_overwrite(block.mapping.address));
        let flush_before_delta = lengthens || !placed.is_empty();
        let in_place = placed.into_iter().chain(overwritten).map(StagedBlock::into_in_place);
        let in_place = InPlaceWrites::new(in_place.collect(), flush_before_delta);
        metadata.tree.prune();
        metadata.usage.settle_sealed(log.next_sequence);
        // Released segments may be opened from the next batch on: roll-forward reads a batch before it knows its delta.
        metadata.usage.make_clean(&released);
        debug_assert!(is_reserve_left(layout, metadata, request), "{:?}", request.reserve);
        let is_reused = mutated(Mutant::DrainedReused)
            || request.move_reason == MoveReason::Defragmentation
                && mutated(Mutant::DefragmentedReused);
        if self.release == Release::AtOnce || is_reused {
            let drained = metadata.usage.all_drained();
            metadata.usage.make_clean(&drained);
        }

        let chunks = batch.finish(log, self.superblock.volume(), metadata.usage.clock.now());
        self.metadata.publish_sequence(log.next_sequence);
        self.io.announce(&chunks, &in_place);
        Ok(CommitBatch { chunks, in_place, progress, released })
    }

    fn view<'a>(&'a self, log: &'a LogState, metadata: &'a Metadata) -> SpaceView<'a> {
        SpaceView { layout: self.superblock.layout(), log, metadata }
    }

    /// Plans up to `limit` blocks, and fewer until the plan fits into the Clean segments. Also returns the number of Clean
    /// segments that the first plan wanted.
    fn plan_that_fits<'a>(
        &self,
        log: &LogState,
        metadata: &Metadata,
        request: &CommitRequest<'_>,
        selected: (&'a [Arc<InodeState>], &'a [Arc<InodeState>]),
        mut limit: usize,
        released: usize,
    ) -> std::result::Result<(Plan<'a>, SegmentBudget, usize), BuildError> {
        let view = self.view(log, metadata);
        let mut wanted = None;
        loop {
            let mut plan = self.plan(metadata, request, selected, limit)?;
            if request.merging == Merging::Always {
                self.behaviour.merge_groups(view, &mut plan.staged);
            }
            let segments = |plan: &Plan<'_>| {
                let contents = (&*plan.files, &*plan.staged);
                share_segments(&*self.behaviour, view, contents, request, released)
            };
            let BatchSegments { wanted: wanted_now, share } = segments(&plan);
            let wanted = *wanted.get_or_insert(wanted_now);
            if let Some(share) = share {
                return Ok((plan, share, wanted));
            }
            if request.merging == Merging::Never {
                return Err(Shortage.into());
            }
            self.behaviour.merge_groups(view, &mut plan.staged);
            if let Some(share) = segments(&plan).share {
                return Ok((plan, share, wanted));
            }
            if limit == 0 {
                return Err(Shortage.into());
            }
            // The estimate was too high; half of it is the next attempt.
            limit = if request.moves.is_empty() { limit / 2 } else { 0 };
        }
    }

    /// Plans up to `limit` dirty blocks.
    fn plan<'a>(
        &self,
        metadata: &Metadata,
        request: &CommitRequest<'_>,
        (ordered, others): (&'a [Arc<InodeState>], &'a [Arc<InodeState>]),
        limit: usize,
    ) -> std::result::Result<Plan<'a>, BuildError> {
        // The largest groups are determined over many more dirty blocks than are written, of as many files as `limit`.
        let (others, limit_of_all) = match request.selection {
            Selection::Largest(count) if limit > 0 => {
                let compared = count.saturating_mul(COMPARED_BLOCKS).max(COMPARED_BLOCKS_MIN);
                (&others[..others.len().min(limit)], compared)
            }
            _ => (others, limit),
        };
        let (mut files, progress) = plan_files(metadata, (ordered, limit), (others, limit_of_all))?;
        if files.is_empty() && progress == Progress::More && !request.delta_first {
            return Err(Shortage.into());
        }
        if let Selection::Largest(count) = request.selection {
            keep_largest(&mut files, limit.min(*count));
        }
        let segment_blocks = Batch::segment_data_blocks(&self.superblock.layout());
        let mut staged = stage(metadata, &mut files, request, self.remainder, segment_blocks)?;
        let overwritten = self.behaviour.split_in_place(&mut staged);
        Ok(Plan { files, staged, overwritten, progress })
    }

    /// Returns the files whose data must go with the next delta, and the other selected files. For
    /// the largest groups, returns at most as many files as may fit into `limit` blocks.
    fn select(
        &self,
        selection: &Selection,
        limit: usize,
    ) -> (Vec<Arc<InodeState>>, Vec<Arc<InodeState>>) {
        self.dirty.select(|files| match selection {
            Selection::All => files.values().cloned().collect(),
            Selection::Files(inos) => {
                inos.iter().filter_map(|ino| files.get(ino).cloned()).collect()
            }
            Selection::Largest(count) => {
                files.values().take(limit.min(count * FILES_PER_BLOCK).max(1)).cloned().collect()
            }
        })
    }

    /// Updates the tree items of a file, and removes the written blocks from its dirty data.
    fn apply_file_plan(&self, metadata: &mut Metadata, file: FilePlan<'_>) {
        let ino = file.ino;
        let inline_key = Key::new(ino, ItemKind::Inline, 0);
        if let Some(content) = &file.inline {
            metadata.put_item(&inline_key, content);
        } else if file.outgrown {
            metadata.remove_item(&inline_key);
        }
        metadata.put_item(&Key::inode(ino), &file.inode.encode());
        take_reserved(metadata, &file);
        note_neighbours(metadata, &file.blocks);

        let FilePlan { mut data, inline, blocks, .. } = file;
        self.dirty.remove(&mut data, |data| {
            if inline.is_some() {
                data.dirty.clear();
            }
            data.dirty.remove(blocks.iter().map(|planned| planned.block));
        });
        self.dirty.unlist_if_clean(ino, &mut data);
    }

    /// Gives every staged block an address in the log, and the delta its place.
    fn allocate_log_blocks(
        &self,
        log: &mut LogState,
        metadata: &mut Metadata,
        staged: &mut [StagedBlock],
        delta: &[u8],
    ) -> Batch {
        let layout = &self.superblock.layout();
        let mut batch = Batch::default();
        let last_group = staged.last().map(|b| b.group);
        for blocks in staged.chunk_by_mut(|a, b| a.group == b.group) {
            let group = blocks[0].group;
            let delta = if Some(group) == last_group { delta } else { &[] };
            let (head, count) = (Head::of(group), blocks.len());
            let addresses = batch.reserve(log, layout, &mut metadata.usage, head, count, delta);
            for (block, address) in blocks.iter_mut().zip(addresses) {
                block.mapping.address = address;
            }
            batch.fill(blocks.iter().map(StagedBlock::append).collect());
        }
        if last_group.is_none() {
            batch.reserve(log, layout, &mut metadata.usage, Head::METADATA, 0, delta);
            batch.fill(Vec::new());
        }
        batch
    }

    /// Counts blocks by their origin. The write clock advances by the blocks written for users.
    fn count_data<'a>(
        &self,
        metadata: &mut Metadata,
        blocks: impl Iterator<Item = &'a StagedBlock>,
    ) {
        let (mut data, mut cleaning, mut defragmentation) = (0, 0, 0);
        blocks.for_each(|block| match block.moved {
            None => data += 1,
            Some(MoveReason::Cleaning) => cleaning += 1,
            Some(MoveReason::Defragmentation) => defragmentation += 1,
        });
        metadata.usage.clock.advance(data);
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        self.counters.data_bytes.fetch_add(bytes(data), Ordering::Relaxed);
        self.counters.cleaning_bytes.fetch_add(bytes(cleaning), Ordering::Relaxed);
        self.counters.defragmentation_bytes.fetch_add(bytes(defragmentation), Ordering::Relaxed);
    }
}

/// Takes the blocks of a plan out of the reserved ranges of the file.
fn take_reserved(metadata: &mut Metadata, file: &FilePlan<'_>) {
    if mutated(Mutant::ReservationKept) {
        return;
    }
    for (old, left) in file.changed_ranges() {
        if left.first().is_none_or(|left| left.first != old.first) {
            metadata.remove_item(&old.key(file.ino));
        }
        for range in left {
            metadata.put_item(&range.key(file.ino), &range.encode());
        }
    }
}

/// Maps staged blocks to their addresses.
fn map_blocks(log: &LogState, metadata: &mut Metadata, staged: &[StagedBlock]) -> Result<()> {
    let same_run =
        |a: &StagedBlock, b: &StagedBlock| run_key(a.ino, a.block) == run_key(b.ino, b.block);
    for run in staged.chunk_by(same_run) {
        let blocks: Vec<(u32, Mapping)> = run.iter().map(|b| (b.block, b.mapping)).collect();
        metadata.map_run(run[0].ino, &blocks, log.next_sequence)?;
    }
    Ok(())
}
