//! Commits: what waits in memory becomes a batch of chunks.
//!
//! Owns: which dirty blocks go, where each is put, and what the tree says of it then.
//! Promises: a batch says everything that changed in the tree so far, and no more than the data
//! that it and earlier chunks carry; what it changes in memory it changes whole.
//! Never: flushes the device (see `sync`).

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plan::{Chosen, FilePlan, plan_files};
use sfs_device::BLOCK_SIZE;

use super::Volume;
use super::handles::Handle;
use crate::buffer::BlockRef;
use crate::format::{ItemKind, Key, Layout, Mapping, VALUE_LEN_MAX, run_key};
use crate::log::{Batch, Chunk, FIRST_GROUP_HEAD, Log, METADATA_HEAD};
use crate::meta::{Fault, Meta};
use crate::request::Release;
use crate::{Error, Result};

/// What a commit takes along, beside the delta and what has to go with it.
#[derive(Clone, Debug)]
pub(super) enum Selection {
    /// All dirty blocks.
    All,
    /// Those of these files.
    Files(BTreeSet<u64>),
    /// So many, of the largest groups, to make room in the write buffer.
    Largest(usize),
}

/// A block that the cleaner moves.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) ino: u64,
    pub(super) block: u32,
    pub(super) from: Mapping,
    pub(super) memory: BlockRef,
}

/// What is to be committed.
pub(super) struct Request<'a> {
    pub(super) selection: &'a Selection,
    pub(super) moves: &'a [Move],
    pub(super) reserve: Reserve,
    /// The batch is worth writing if all that it says is which segments are Clean.
    pub(super) release: bool,
}

impl<'a> Request<'a> {
    /// What `selection` says.
    pub(super) fn of(selection: &'a Selection) -> Self {
        Self { selection, moves: &[], reserve: Reserve::Cleaning, release: false }
    }

    /// What the cleaner moves.
    pub(super) fn moving(moves: &'a [Move]) -> Self {
        Self { selection: &NOTHING, moves, reserve: Reserve::Checkpoint, release: false }
    }

    /// Which segments are Clean.
    pub(super) fn release() -> Self {
        Self { selection: &NOTHING, moves: &[], reserve: Reserve::Checkpoint, release: true }
    }

    /// What has to go before a checkpoint.
    pub(super) fn ahead() -> Self {
        Self { selection: &NOTHING, moves: &[], reserve: Reserve::Nothing, release: false }
    }
}

/// No file.
static NOTHING: Selection = Selection::Files(BTreeSet::new());

/// Which segments a batch leaves Clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserve {
    /// Those that it takes to clean another, for whoever comes next.
    Cleaning,
    /// Those of the checkpoint that lets go what is cleaned.
    Checkpoint,
    /// None: the batch is part of a checkpoint.
    Nothing,
}

/// Out of how many times as many dirty blocks the largest groups are chosen.
const CHOICE: usize = 2;

/// Segments that a short delta may open: it may cross into one more.
pub(super) const DELTA_SEGMENTS: usize = 1;

/// Bytes that a change takes in a delta at most: a key, the longest value, and what frames them.
const CHANGE_LEN_MAX: usize = VALUE_LEN_MAX + 64;

/// Whether a batch took all that was selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// It did.
    #[default]
    Done,
    /// There was no room for the rest.
    More,
}

/// What is going to be a batch, while it can still be given up.
struct Plan<'a> {
    files: Vec<FilePlan<'a>>,
    chosen: Vec<Chosen>,
    progress: Progress,
}

/// A batch that has taken effect in memory and is to be written.
#[derive(Default)]
pub(super) struct Built {
    pub(super) chunks: Vec<Chunk>,
    pub(super) progress: Progress,
    /// Segments that it says are Clean.
    pub(super) released: Vec<u32>,
}

/// Bytes that a delta takes to say so of one.
const RELEASE_LEN: usize = 16;

/// Segments that one delta says are Clean at most, so that it stays small.
const RELEASES_MAX: usize = 128;

/// Bytes that a file adds to a delta at most, beside its inline content: its attributes, and the
/// frames of both items.
const FILE_CHANGES_LEN_MAX: usize = 256;

impl Volume {
    /// Builds a batch under the metadata lock, and everything it says takes effect in memory.
    /// Gives no chunk when there is nothing to say. `Missing` leaves everything as it was.
    pub(super) fn build(
        &self,
        log: &mut Log,
        meta: &mut Meta,
        request: &Request<'_>,
    ) -> std::result::Result<Built, Fault> {
        meta.begin_writing(self.superblock.layout.segment_blocks);
        let (ordered, others) = self.select(request.selection);
        let mut room = self.room(log, meta, request);
        let Plan { files, mut chosen, progress } = loop {
            let plan = self.plan(log, meta, request, (&ordered, &others), room)?;
            if self.has_room(log, meta, &plan, request.reserve) {
                break plan;
            }
            // It is more than it seemed: half of it is a start.
            room /= 2;
            if room == 0 || !request.moves.is_empty() {
                return Err(Error::NoSpace.into());
            }
        };
        let released = meta.usage.releasable(log.flushed, RELEASES_MAX);
        let says = meta.has_changes() || request.release && !released.is_empty();
        if chosen.is_empty() && files.is_empty() && !says {
            return Ok(Built { chunks: Vec::new(), progress, released: Vec::new() });
        }

        for file in files {
            self.settle_file(meta, file);
        }
        let delta = meta.delta(&released);
        meta.clear_changes();
        let batch = self.lay_out(log, meta, &mut chosen, &delta);
        self.map(log, meta, &chosen)?;
        meta.usage.clock.advance(chosen.iter().filter(|c| !c.cleaning).count() as u64);
        meta.tree.prune();
        meta.usage.settle(log.next_sequence);
        // From the next batch on: roll-forward reads a batch before it knows what it says.
        meta.usage.release(&released);
        if self.options.release == Release::AtOnce {
            let drained = meta.usage.all_drained();
            meta.usage.release(&drained);
        }

        let chunks = batch.finish(log, self.superblock.volume(), meta.usage.clock.now());
        self.next_sequence.store(log.next_sequence, Ordering::Relaxed);
        self.expect_reads(&chunks);
        Ok(Built { chunks, progress, released })
    }

    /// What goes, `room` dirty blocks at most.
    fn plan<'a>(
        &self,
        log: &Log,
        meta: &Meta,
        request: &Request<'_>,
        (ordered, others): (&'a [Arc<Handle>], &'a [Arc<Handle>]),
        room: usize,
    ) -> std::result::Result<Plan<'a>, Fault> {
        let limit = match request.selection {
            Selection::Largest(count) => room.min(count * CHOICE),
            _ => room,
        };
        let (mut files, progress) = plan_files(meta, (ordered, room), (others, limit))?;
        if let Selection::Largest(count) = request.selection {
            plan::keep_largest(&mut files, *count);
        }
        let mut chosen = self.choose(meta, &mut files, request)?;
        if meta.usage.clean_count() < self.comfort(meta) {
            let group = roomiest(log, meta, &self.superblock.layout);
            plan::gather(&mut chosen, group);
        }
        Ok(Plan { files, chosen, progress })
    }

    /// The files whose data must go with the next delta, and the others that are selected.
    fn select(&self, selection: &Selection) -> (Vec<Arc<Handle>>, Vec<Arc<Handle>>) {
        let dirty = self.dirty_files.lock();
        let ordered = self.ordered_files.lock();
        let find = |ino: &u64| dirty.get(ino).cloned();
        let first = ordered.iter().filter_map(find).collect();
        let others: Vec<Arc<Handle>> = match selection {
            Selection::All => dirty.values().cloned().collect(),
            Selection::Files(files) => files.iter().filter_map(find).collect(),
            Selection::Largest(count) => dirty.values().take(count * CHOICE).cloned().collect(),
        };
        let others = others.into_iter().filter(|handle| !ordered.contains(&handle.ino));
        (first, others.collect())
    }

    /// Blocks of data that there is room for now.
    fn room(&self, log: &Log, meta: &Meta, request: &Request<'_>) -> usize {
        let layout = &self.superblock.layout;
        let kept = self.reserve(meta, request.reserve, 0) + DELTA_SEGMENTS;
        let spare = meta.usage.clean_count().saturating_sub(kept);
        if spare > 0 {
            // Every block may make a leaf dirty, which a checkpoint has to write.
            return (spare * Batch::segment_room(layout) / 2).max(2);
        }
        // A few more fit where the roomiest head is.
        Batch::head_room(log, layout, data_head(roomiest(log, meta, layout)))
    }

    /// The segments of `reserve` when `more` leaves have been changed.
    fn reserve(&self, meta: &Meta, reserve: Reserve, more: usize) -> usize {
        match reserve {
            Reserve::Cleaning => self.cleaning_reserve(meta, more),
            Reserve::Checkpoint => self.checkpoint_reserve(meta, more),
            Reserve::Nothing => 0,
        }
    }

    /// Whether there might not be room for all dirty blocks in one batch. It halves what there is:
    /// metadata that becomes dirty until then takes of it.
    pub(super) fn is_batch_short(&self) -> bool {
        let meta = self.meta.read();
        let kept = self.cleaning_reserve(&meta, 0) + DELTA_SEGMENTS;
        let spare = meta.usage.clean_count().saturating_sub(kept);
        // Each file's item may be in a leaf of its own.
        let dirty = self.dirty_blocks.load(Ordering::Relaxed) + self.dirty_files.lock().len();
        dirty > spare * Batch::segment_room(&self.superblock.layout) / 4
    }

    /// Whether the Clean segments are enough for the batch, and those of `reserve` stay Clean.
    fn has_room(&self, log: &Log, meta: &Meta, plan: &Plan<'_>, reserve: Reserve) -> bool {
        let Plan { files, chosen, .. } = plan;
        let layout = &self.superblock.layout;
        let groups = 0..meta.placement.group_count();
        let opens: usize = groups
            .map(|group| {
                let count = chosen.iter().filter(|c| c.group == group).count();
                Batch::opens(log, layout, data_head(group), count, 0)
            })
            .sum();
        // The leaves of the runs become dirty, and a checkpoint must be able to write them.
        let same_run = |a: &Chosen, b: &Chosen| run_key(a.ino, a.block) == run_key(b.ino, b.block);
        let leaves = chosen.chunk_by(same_run).count() + files.len();
        let kept = opens + DELTA_SEGMENTS + self.reserve(meta, reserve, leaves);
        let inline: usize = files.iter().map(|f| f.inline.as_ref().map_or(0, Vec::len)).sum();
        let others = files.len() * FILE_CHANGES_LEN_MAX + inline + RELEASES_MAX * RELEASE_LEN;
        let suffices = |delta_len: usize| {
            let segments = delta_len / (layout.segment_blocks as usize * BLOCK_SIZE);
            kept + segments <= meta.usage.clean_count()
        };
        // What changes may say at most is soon reckoned; what they do say takes longer.
        let most = meta.change_count() * CHANGE_LEN_MAX + others;
        suffices(most) || suffices(meta.delta(&[]).len() + others)
    }

    /// The tree item of a file, and what of it no longer waits.
    fn settle_file(&self, meta: &mut Meta, file: FilePlan<'_>) {
        let ino = file.ino;
        let inline_key = Key::new(ino, ItemKind::Inline, 0);
        if let Some(content) = &file.inline {
            meta.put_item(&inline_key, content);
        } else if file.outgrown {
            meta.remove_item(&inline_key);
        }
        meta.put_item(&Key::inode(ino), &file.inode.encode());

        let mut data = file.data;
        let before = data.dirty.len();
        if file.inline.is_some() {
            data.dirty.clear();
        }
        for planned in &file.blocks {
            data.dirty.remove(&planned.block);
        }
        self.dirty_blocks.fetch_sub(before - data.dirty.len(), Ordering::Relaxed);
        if data.dirty.is_empty() {
            data.pending = None;
            data.ordered = None;
            // Before the data is let go: who writes next registers the file again.
            self.dirty_files.lock().remove(&ino);
            self.ordered_files.lock().remove(&ino);
        }
    }

    /// Gives every block its address.
    fn lay_out(
        &self,
        log: &mut Log,
        meta: &mut Meta,
        chosen: &mut [Chosen],
        delta: &[u8],
    ) -> Batch {
        let layout = &self.superblock.layout;
        let mut batch = Batch::default();
        let last_group = chosen.last().map(|c| c.group);
        for blocks in chosen.chunk_by_mut(|a, b| a.group == b.group) {
            let group = blocks[0].group;
            let delta = if Some(group) == last_group { delta } else { &[] };
            let head = data_head(group);
            let addresses = batch.reserve(log, layout, &mut meta.usage, head, blocks.len(), delta);
            for (block, address) in blocks.iter_mut().zip(addresses) {
                block.mapping.address = address;
            }
            batch.fill(blocks.iter().map(Chosen::append).collect());
        }
        if last_group.is_none() {
            batch.reserve(log, layout, &mut meta.usage, METADATA_HEAD, 0, delta);
            batch.fill(Vec::new());
        }
        batch
    }

    /// The tree says where the blocks are.
    fn map(&self, log: &Log, meta: &mut Meta, chosen: &[Chosen]) -> Result<()> {
        let same_run = |a: &Chosen, b: &Chosen| run_key(a.ino, a.block) == run_key(b.ino, b.block);
        for run in chosen.chunk_by(same_run) {
            let blocks: Vec<(u32, Mapping)> = run.iter().map(|c| (c.block, c.mapping)).collect();
            meta.map_run(run[0].ino, &blocks, log.next_sequence)?;
        }
        let cleaning = chosen.iter().filter(|c| c.cleaning).count() * BLOCK_SIZE;
        let data = chosen.len() * BLOCK_SIZE - cleaning;
        self.counters.data_bytes.fetch_add(data as u64, Ordering::Relaxed);
        self.counters.cleaning_bytes.fetch_add(cleaning as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// The group whose head has the most room left.
fn roomiest(log: &Log, meta: &Meta, layout: &Layout) -> u8 {
    let groups = 0..meta.placement.group_count();
    groups.max_by_key(|group| Batch::head_room(log, layout, data_head(*group))).unwrap_or(0)
}

/// The head of a group of data blocks.
fn data_head(group: u8) -> u8 {
    FIRST_GROUP_HEAD + group
}
