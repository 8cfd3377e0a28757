//! Log writer: owns the state of the log, writes batches, and makes them durable.
//!
//! A caller locks the log, builds a batch with it, and passes the batch back to be written in
//! order. A flush covers all earlier writes. Concurrent syncs share one commit and one flush by the
//! queue in `sync_queue`. The writer neither decides the content of a batch nor looks for space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{FairMutex, FairMutexGuard};
use sfs_device::Stream;

use super::LogState;
use super::sync_queue::SyncQueue;
use crate::Result;
use crate::counters::AtomicCounters;
use crate::format::{Group, Head};
use crate::health::Health;
use crate::io::{Chunk, InPlaceWrites, VolumeDevice};
use crate::lock_rank::{Rank, Ranked};
use crate::mutant::{Mutant, mutated};

/// Owner of the log.
pub(crate) struct LogWriter {
    /// Fair: a thread that writes batch after batch passes the log on to a sync that waits.
    state: FairMutex<LogState>,
    pub(crate) syncs: SyncQueue,
    /// `true` while nothing may be written. Changed by the thread that holds the log.
    is_frozen: AtomicBool,
    io: Arc<VolumeDevice>,
    health: Arc<Health>,
    counters: Arc<AtomicCounters>,
}

impl LogWriter {
    /// Continues the log at `state`.
    pub(crate) fn new(
        state: LogState,
        io: Arc<VolumeDevice>,
        health: Arc<Health>,
        counters: Arc<AtomicCounters>,
    ) -> Self {
        let (syncs, is_frozen) = (SyncQueue::default(), AtomicBool::new(false));
        Self { state: FairMutex::new(state), syncs, is_frozen, io, health, counters }
    }

    /// Locks the log, which is held while a batch is built, written and flushed.
    pub(crate) fn lock(&self) -> Ranked<FairMutexGuard<'_, LogState>> {
        Ranked::take(Rank::Log, || self.state.lock())
    }

    /// Locks the log unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<Ranked<FairMutexGuard<'_, LogState>>> {
        Ranked::try_take(Rank::Log, || self.state.try_lock())
    }

    /// Begins or ends a freeze: between them a thread that has taken the log must leave it as it is.
    pub(crate) fn set_frozen(&self, _log: &mut LogState, is_frozen: bool) {
        self.is_frozen.store(is_frozen, Ordering::Release);
    }

    /// Returns whether nothing may be written. The answer is certain only for a caller that holds the log.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// Writes a batch: blocks in place first, then the chunks in order. Where the delta refers to content that must not
    /// be seen without the blocks in place, these are durable before the first chunk is written.
    pub(crate) fn write_batch(
        &self,
        log: &mut LogState,
        chunks: &[Arc<Chunk>],
        in_place: &InPlaceWrites,
    ) -> Result<()> {
        // Damage that was met while the batch was built may have ended writing.
        self.health.check_running()?;
        for run in in_place.runs() {
            self.io.write_in_place(run, Stream(Head::of(Group(0)).0))?;
            log.unflushed = true;
        }
        if in_place.flush_before_delta() && !mutated(Mutant::PlacedUnflushed) {
            // This flush does not count as a flush of the log: the chunks are written afterwards.
            self.io.order()?;
        }
        self.write_chunks(log, chunks)
    }

    /// Writes chunks in order.
    pub(crate) fn write_chunks(&self, log: &mut LogState, chunks: &[Arc<Chunk>]) -> Result<()> {
        self.health.check_running()?;
        for chunk in chunks {
            self.io.write_chunk(chunk)?;
            log.unflushed = true;
        }
        Ok(())
    }

    /// Makes all earlier writes durable. After an error of a device that is late ([`sfs_device::Late`]) a later call makes up for it.
    pub(crate) fn flush(&self, log: &mut LogState) -> Result<()> {
        if log.unflushed {
            if !mutated(Mutant::SkippedFlush) {
                self.io.flush()?;
            }
            self.note_flushed(log, true);
        }
        Ok(())
    }

    /// Makes sure that no later write is kept by a crash that loses an earlier one: enough for the order of the log, and for nobody who waits until
    /// something is durable.
    pub(crate) fn order(&self, log: &mut LogState) -> Result<()> {
        if log.unflushed {
            let is_durable = match mutated(Mutant::SkippedFlush) {
                true => true,
                false => self.io.order()?,
            };
            self.note_flushed(log, is_durable);
        }
        Ok(())
    }

    fn note_flushed(&self, log: &mut LogState, is_durable: bool) {
        log.unflushed = !is_durable;
        log.flushed = log.next_sequence;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
    }
}
