//! Making things durable: one batch and one flush for all who wait.
//!
//! Owns: the queue of syncs, and the requests to the device that a commit makes.
//! Promises: a sync returns after a flush that covers everything before it; syncs that come while
//! one is under way share the next.
//! Never: chooses what a batch holds (see `commit`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, DeviceError, Stream};

use super::Volume;
use super::commit::{Built, Progress, Request, Selection, data};
use super::pacing::Vain;
use crate::format::SummaryEntry;
use crate::log::{Chunk, FIRST_GROUP_HEAD, Log};
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// Who waits for a flush.
#[derive(Debug, Default)]
pub(super) struct SyncQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Those who wait are served when this many generations are.
    generation: u64,
    files: BTreeSet<u64>,
    all: bool,
}

impl SyncQueue {
    /// Queues up for `file`, or for everything; gives the generation to wait for.
    fn join(&self, file: Option<u64>) -> u64 {
        let mut waiting = self.0.lock();
        match file {
            Some(ino) => drop(waiting.files.insert(ino)),
            None => waiting.all = true,
        }
        waiting.generation + 1
    }

    /// All who wait now, and their generation.
    fn take(&self) -> (u64, Selection) {
        let mut waiting = self.0.lock();
        waiting.generation += 1;
        let files = std::mem::take(&mut waiting.files);
        let all = std::mem::take(&mut waiting.all);
        let selection = if all { Selection::All } else { Selection::Files(files) };
        (waiting.generation, selection)
    }

    /// What was taken has not become durable: it goes with the next who sync.
    fn give_back(&self, selection: Selection) {
        let mut waiting = self.0.lock();
        match selection {
            Selection::All => waiting.all = true,
            Selection::Files(mut files) => waiting.files.append(&mut files),
            Selection::Largest(_) => {}
        }
    }
}

impl Volume {
    /// Everything that was done to `ino`, and every namespace operation before, is durable
    /// afterwards (durability contract, sentence 1).
    pub fn sync_file(&self, ino: u64) -> Result<()> {
        if mutated(Mutant::CleanFileUnsynced) && !self.dirty_files.lock().contains_key(&ino) {
            return Ok(());
        }
        self.sync(Some(ino))
    }

    /// As [`Volume::sync_file`], for one of several who listen, each of whom is told of every loss once: of the
    /// file's first losses it has been told of `told`. A file is remembered as long as a caller refers to it.
    pub fn sync_file_after(&self, ino: u64, told: &mut u64) -> Result<()> {
        self.pace.note_request();
        if self.options.read_only {
            return Ok(());
        }
        let synced = self.with_failure_written(self.sync_queued(Some(ino)));
        let Some(handle) = self.handles.find(ino) else { return synced };
        let mut data = handle.data();
        let news = data.lost.tell(*told);
        *told = data.lost.count();
        synced.and(news)
    }

    /// Everything is durable afterwards.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(None)
    }

    fn sync(&self, file: Option<u64>) -> Result<()> {
        self.pace.note_request();
        if self.options.read_only {
            return Ok(());
        }
        self.with_failure_written(self.sync_and_tell(file))
    }

    fn sync_and_tell(&self, file: Option<u64>) -> Result<()> {
        match file {
            Some(ino) => {
                let handle = self.handles.find(ino);
                let before = handle.as_ref().map(|handle| handle.data().lost.count());
                self.sync_queued(file)?;
                let handle = handle.or_else(|| self.handles.find(ino));
                handle.map_or(Ok(()), |handle| handle.data().lost.tell(before.unwrap_or(u64::MAX)))
            }
            None => {
                let before = self.lost.lock().syncs.count();
                self.sync_queued(None)?;
                self.lost.lock().syncs.tell(before)
            }
        }
    }

    /// As [`Volume::sync_file`] and [`Volume::sync_all`], without a word of what was given up.
    pub(super) fn sync_queued(&self, file: Option<u64>) -> Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let ticket = self.syncs.join(file);
        let mut log = self.log.lock();
        self.may_write_out()?;
        if log.synced >= ticket {
            return Ok(());
        }
        let (generation, selection) = self.syncs.take();
        let outcome = self.commit(&mut log, &selection).and_then(|()| self.flush(&mut log));
        match outcome {
            Ok(()) => log.synced = generation,
            // Others may wait for it, too, and must not take a later commit for theirs.
            Err(_) => self.syncs.give_back(selection),
        }
        outcome
    }

    /// Writes out what `selection` says: in one batch if there is room for it, otherwise in several,
    /// making room between them.
    pub(super) fn commit(&self, log: &mut Log, selection: &Selection) -> Result<()> {
        let mut vain = Vain::default();
        loop {
            match self.commit_some(log, &Request::of(selection)) {
                Ok(Progress::More) if !matches!(selection, Selection::Largest(_)) => {
                    vain = Vain::default();
                }
                Ok(_) => return Ok(()),
                Err(Error::NoSpace) => {
                    // What cleaning gains a checkpoint of the nodes that it made dirty may need, and
                    // the room for that is there again when it has been written.
                    let more = self.make_room(log)?;
                    if !vain.note(self.spare_blocks()) && !more {
                        return Err(Error::NoSpace);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes out as much of what `request` says as there is room for. `NoSpace` has changed
    /// nothing.
    pub(super) fn commit_some(&self, log: &mut Log, request: &Request<'_>) -> Result<Progress> {
        // The log may have been waited for; what failed meanwhile must not be built upon.
        self.may_write_out()?;
        let mut failed = None;
        let _keep = self.keep_nodes();
        let built = loop {
            let mut meta = self.meta.write();
            match self.build(log, &mut meta, request) {
                Ok(built) => break built,
                Err(obstacle) => {
                    drop(meta);
                    self.overcome(obstacle, &mut failed)?;
                }
            }
        };
        self.write_built(log, &built)?;
        self.note_released(&built.released);
        Ok(built.progress)
    }

    /// Writes a batch. Where its delta says of data beside the log what must not be seen without it, that
    /// data is durable first.
    pub(super) fn write_built(&self, log: &mut Log, built: &Built) -> Result<()> {
        // Damage that was met while this was built may have ended writing.
        self.may_write_out()?;
        let data = &built.data;
        let wrote = |outcome: std::result::Result<(), DeviceError>| {
            outcome.map_err(|error| self.fail(error))
        };
        for run in data.runs() {
            let (address, len) = (run[0].0, run.len());
            wrote(self.device.write(address, &data::parts(run), Stream(FIRST_GROUP_HEAD)))?;
            log.unflushed = true;
            let bytes = (len * BLOCK_SIZE) as u64;
            self.counters.device_bytes_written.fetch_add(bytes, Ordering::Relaxed);
            self.writing.write().note_placed(run);
        }
        if data.is_ordered() && !mutated(Mutant::PlacedUnflushed) {
            // No flush of the log: its chunks are still to come.
            wrote(self.device.flush())?;
        }
        self.write_chunks(log, &built.chunks)
    }

    /// Writes chunks in order.
    pub(super) fn write_chunks(&self, log: &mut Log, chunks: &[Arc<Chunk>]) -> Result<()> {
        self.may_write_out()?;
        for chunk in chunks {
            let outcome = self.device.write(chunk.address, &chunk.parts(), chunk.stream());
            outcome.map_err(|error| self.fail(error))?;
            log.unflushed = true;
            self.count_chunk(chunk);
            self.writing.write().note_chunk(chunk);
        }
        Ok(())
    }

    fn count_chunk(&self, chunk: &Chunk) {
        let is_node = |append: &&_| {
            matches!(append, &&crate::log::Append { entry: SummaryEntry::Node { .. }, .. })
        };
        let nodes = chunk.appends.iter().filter(is_node).count() * BLOCK_SIZE;
        let counters = &self.counters;
        counters.metadata_bytes.fetch_add(nodes as u64, Ordering::Relaxed);
        let summary = (chunk.summary.len() * BLOCK_SIZE) as u64;
        counters.summary_bytes.fetch_add(summary, Ordering::Relaxed);
        let bytes = (chunk.block_count() * BLOCK_SIZE) as u64;
        counters.device_bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Everything that was written is durable afterwards.
    pub(super) fn flush(&self, log: &mut Log) -> Result<()> {
        if log.unflushed {
            if !mutated(Mutant::SkippedFlush) {
                self.device.flush().map_err(|error| self.fail(error))?;
            }
            log.unflushed = false;
            log.flushed = log.next_sequence;
            self.counters.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
