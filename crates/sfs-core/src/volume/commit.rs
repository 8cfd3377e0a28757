//! Commits: what waits in memory becomes a batch of chunks.
//!
//! Owns: which dirty blocks go, where each is put, and what the tree says of it then.
//! Promises: a batch says everything that changed in the tree so far, and no more than the data
//! that it and earlier chunks carry; what it changes in memory it changes whole.
//! Never: flushes the device (see `sync`).

pub(super) mod data;
mod plan;
mod request;
mod room;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::Data;
pub(super) use plan::{Chosen, Obstacle, sort};
use plan::{FilePlan, plan_files};
pub(super) use request::{Move, Progress, Releases, Request, Selection};
pub(super) use room::DELTA_SEGMENTS;
use sfs_device::BLOCK_SIZE;

use super::Volume;
use super::engine::Beside;
use super::handles::Handle;
use crate::format::{ItemKind, Key, Mapping, run_key};
use crate::log::{Batch, Chunk, FIRST_GROUP_HEAD, Log, METADATA_HEAD};
use crate::meta::Meta;
use crate::mutant::{Mutant, mutated};
use crate::request::Release;
use crate::{Error, Result};

/// Files that are looked at for each block of the largest groups that is wanted.
const CHOICE: usize = 2;

/// What is going to be a batch, while it can still be given up.
struct Plan<'a> {
    files: Vec<FilePlan<'a>>,
    chosen: Vec<Chosen>,
    /// Those that are overwritten where they are.
    staying: Vec<Chosen>,
    progress: Progress,
}

/// A batch that has taken effect in memory and is to be written.
#[derive(Default)]
pub(super) struct Built {
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// What is written beside them.
    pub(super) data: Data,
    pub(super) progress: Progress,
    /// Segments that it says are Clean.
    pub(super) released: Vec<u32>,
}

/// Segments that one delta says are Clean at most, so that it stays small.
const RELEASES_MAX: usize = 128;

impl Volume {
    /// Builds a batch under the metadata lock, and everything it says takes effect in memory.
    /// Gives no chunk when there is nothing to say. An [`Obstacle`] leaves everything as it was.
    pub(super) fn build(
        &self,
        log: &mut Log,
        meta: &mut Meta,
        request: &Request<'_>,
    ) -> std::result::Result<Built, Obstacle> {
        meta.begin_writing(self.superblock.layout.segment_blocks);
        meta.usage.apply_durable_frees(log.flushed);
        let released = match request.release {
            Releases::None => Vec::new(),
            _ => meta.usage.releasable(log.flushed, RELEASES_MAX),
        };
        let mut room = self.room(log, meta, request);
        let (ordered, others) = self.select(request.selection, room);
        let (Plan { files, mut chosen, staying, progress }, share) = loop {
            let mut plan = self.plan(meta, request, (&ordered, &others), room)?;
            let fits =
                |plan: &Plan<'_>| self.has_room(log, meta, plan, request.reserve, released.len());
            if let Some(share) = fits(&plan) {
                break (plan, share);
            }
            self.engine.narrow(self.site(log, meta), &mut plan.chosen);
            if let Some(share) = fits(&plan) {
                break (plan, share);
            }
            if room == 0 {
                return Err(Error::NoSpace.into());
            }
            // It is more than it seemed: half of it is a start.
            room = if request.moves.is_empty() { room / 2 } else { 0 };
        };
        let alone = request.release == Releases::Alone && !released.is_empty();
        let says = meta.has_changes() || alone;
        if chosen.is_empty() && files.is_empty() && !says {
            return Ok(Built { progress, ..Built::default() });
        }

        let lengthens = files.iter().any(|file| file.lengthens);
        for file in files {
            self.settle_file(meta, file);
        }
        let Beside { chosen: placed, maps } = {
            let layout = &self.superblock.layout;
            self.engine.place(layout, log, meta, &mut chosen, share)
        };
        let delta = meta.delta(&maps, &released);
        meta.clear_changes();
        let batch = self.lay_out(log, meta, &mut chosen, &delta);
        self.map(log, meta, &chosen)?;
        self.map(log, meta, &placed)?;
        self.count_data(meta, chosen.iter().chain(&placed).chain(&staying));
        let ordered = lengthens || !placed.is_empty();
        let data = Data::new(placed.into_iter().chain(staying), ordered);
        meta.tree.prune();
        meta.usage.settle_sealed(log.next_sequence);
        // From the next batch on: roll-forward reads a batch before it knows what it says.
        meta.usage.release(&released);
        if self.options.release == Release::AtOnce || mutated(Mutant::DrainedReused) {
            let drained = meta.usage.all_drained();
            meta.usage.release(&drained);
        }

        let chunks = batch.finish(log, self.superblock.volume(), meta.usage.clock.now());
        self.next_sequence.store(log.next_sequence, Ordering::Relaxed);
        self.writing.write().note_built(&chunks, &data);
        Ok(Built { chunks, data, progress, released })
    }

    /// What goes, `room` dirty blocks at most.
    fn plan<'a>(
        &self,
        meta: &Meta,
        request: &Request<'_>,
        (ordered, others): (&'a [Arc<Handle>], &'a [Arc<Handle>]),
        room: usize,
    ) -> std::result::Result<Plan<'a>, Obstacle> {
        // The largest groups are chosen from all that waits of so many files as there is room for.
        let (others, limit) = match request.selection {
            Selection::Largest(_) if room > 0 => (&others[..others.len().min(room)], usize::MAX),
            _ => (others, room),
        };
        let (mut files, progress) = plan_files(meta, (ordered, room), (others, limit))?;
        if files.is_empty() && progress == Progress::More && !request.urgent {
            return Err(Error::NoSpace.into());
        }
        if let Selection::Largest(count) = request.selection {
            plan::keep_largest(&mut files, room.min(*count));
        }
        let mut chosen = self.choose(meta, &mut files, request)?;
        let staying = self.engine.arrange(&mut chosen);
        Ok(Plan { files, chosen, staying, progress })
    }

    /// The files whose data must go with the next delta, and the others that are selected.
    /// Of those with the largest groups so many that there might be `room` for them.
    fn select(&self, selection: &Selection, room: usize) -> (Vec<Arc<Handle>>, Vec<Arc<Handle>>) {
        let dirty = self.dirty_files.lock();
        let ordered = self.ordered_files.lock();
        let find = |ino: &u64| dirty.get(ino).cloned();
        let first = ordered.iter().filter_map(find).collect();
        let others: Vec<Arc<Handle>> = match selection {
            Selection::All => dirty.values().cloned().collect(),
            Selection::Files(files) => files.iter().filter_map(find).collect(),
            Selection::Largest(count) => {
                dirty.values().take(room.min(count * CHOICE).max(1)).cloned().collect()
            }
        };
        let others = others.into_iter().filter(|handle| !ordered.contains(&handle.ino));
        (first, others.collect())
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
        data.dirty.remove(file.blocks.iter().map(|planned| planned.block));
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
        Ok(())
    }

    /// Counts blocks of data by whose they are. The write clock goes on by what users write.
    fn count_data<'a>(&self, meta: &mut Meta, chosen: impl Iterator<Item = &'a Chosen>) {
        let (mut data, mut cleaning) = (0, 0);
        chosen.for_each(|c| *(if c.cleaning { &mut cleaning } else { &mut data }) += 1);
        meta.usage.clock.advance(data);
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        self.counters.data_bytes.fetch_add(bytes(data), Ordering::Relaxed);
        self.counters.cleaning_bytes.fetch_add(bytes(cleaning), Ordering::Relaxed);
    }
}

/// The head of a group of data blocks.
pub(super) fn data_head(group: u8) -> u8 {
    FIRST_GROUP_HEAD + group
}
