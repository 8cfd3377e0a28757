//! Background work: one bounded step at a time, whenever the caller finds the time.
//!
//! Owns: when what waits is written, when a checkpoint is due, and the volume's clock.
//! Promises: what was written waits no longer than the commit interval, and about half a second once writing
//! has paused, but for what went to the device to make room.
//! Never: waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sfs_device::BLOCK_SIZE;

use super::Volume;
use super::commit::Selection;
use super::handles::Handle;
use super::losses::READS_MAX;
use super::pacing::Dead;
use super::space::unless_full;
use crate::Result;
use crate::format::Timestamp;
use crate::mutant::{Mutant, mutated};
use crate::request::Work;

/// Writing that has paused for this long is made durable.
const PAUSE: Duration = Duration::from_millis(500);

/// After so many milliseconds memory that nobody has needed is given back: who needs it again sooner would
/// only pay for it anew.
const REST_MS: i64 = 10_000;

/// Between two sweeps of the handles.
const SWEEP_MS: i64 = 500;

/// A checkpoint is due when so many blocks of log have been written since the last: 512 MiB, or
/// more if it has many nodes to write.
const CHECKPOINT_BLOCKS: u64 = 512 << 20 >> 12;

/// Blocks of log for each of its nodes.
const CHECKPOINT_SHARE: u64 = 48;

/// Most blocks of log, however many nodes there are: 1.5 GiB.
const CHECKPOINT_BLOCKS_MAX: u64 = 3 * CHECKPOINT_BLOCKS;

/// Changes that the next delta may have to say before it is written.
const CHANGES_MAX: usize = 16_384;

/// Dirty nodes that are no reason for a checkpoint, however small the cache.
const DIRTY_NODES_MIN: usize = 256;

/// The share of the write buffer that is written out at once to make room in it: one in so many.
const WRITE_OUT_SHARE: usize = 8;

/// What is due.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Counts changes.
    changes: AtomicU64,
    /// The time that was last heard of, in seconds since 1970.
    seconds: AtomicI64,
    due: Mutex<Due>,
}

/// Times in milliseconds since 1970.
#[derive(Debug, Default)]
struct Due {
    /// What `changes` was at the last step, and when that step was.
    seen: u64,
    /// Since when something waits.
    waiting: Option<i64>,
    /// Last step at which something new had been written.
    active: i64,
    /// Last checkpoint.
    checkpoint: i64,
    /// When handles were swept.
    swept: i64,
    /// When memory was given back.
    rested: i64,
    /// What `changes` was when cleaning gained nothing, and the fewest dead blocks since.
    futile: Option<(u64, u64)>,
}

impl Clock {
    pub(super) fn start(&self, now: Timestamp) {
        self.note_time(now);
        self.due.lock().checkpoint = millis(now);
    }

    /// Users have not let a segment's worth of blocks die since cleaning gained nothing: another round
    /// would only wear the device.
    pub(super) fn is_cleaning_futile(&self, dead: Dead) -> bool {
        let is_so =
            |(changes, least): &mut (u64, u64)| !dead.is_more(least) || *changes == self.changes();
        self.due.lock().futile.as_mut().is_some_and(is_so)
    }

    /// Cleaning has gained nothing.
    pub(super) fn note_futile(&self, dead: Dead) {
        self.due.lock().futile = Some((self.changes(), dead.blocks));
    }

    /// The time that was last heard of: of the last step of background work.
    pub(super) fn seconds(&self) -> i64 {
        self.seconds.load(Ordering::Relaxed)
    }

    fn note_time(&self, now: Timestamp) {
        self.seconds.store(now.secs, Ordering::Relaxed);
    }

    /// Changes by users so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Something has changed.
    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

fn millis(time: Timestamp) -> i64 {
    time.secs.saturating_mul(1000).saturating_add(i64::from(time.nanos / 1_000_000))
}

/// Whether `last` is `interval` milliseconds ago, or to come, as by a clock that was set back; then it is
/// `now`.
fn is_due(last: &mut i64, interval: i64, now: Timestamp) -> bool {
    let now = millis(now);
    let is_due = !(0..interval).contains(&now.saturating_sub(*last));
    if is_due {
        *last = now;
    }
    is_due
}

impl Volume {
    /// A file has dirty blocks or pending attributes.
    pub(super) fn note_dirty(&self, handle: &Arc<Handle>) {
        let ordered = handle.data().ordered.is_some();
        self.dirty_files.lock().entry(handle.ino).or_insert_with(|| handle.clone());
        if ordered {
            self.ordered_files.lock().insert(handle.ino);
        }
    }

    /// The name of `ino` has taken the place of another file: its data goes with the next delta.
    pub(super) fn order(&self, ino: u64) {
        if mutated(Mutant::RenameUnordered) {
            return;
        }
        let Some(handle) = self.handles.find(ino) else { return };
        let mut data = handle.data();
        // A length that waits is data, too: of a file that is all hole.
        if !data.dirty.is_empty() || data.pending.is_some() {
            data.ordered = Some(self.next_sequence.load(Ordering::Relaxed));
            drop(data);
            self.note_dirty(&handle);
        }
    }

    /// Writes the data of `ino` out. Data that has to go with the next delta has to fit into one
    /// batch with it: where there is not room for much, it goes ahead of what will be said of it.
    pub(super) fn write_ahead(&self, ino: u64) -> Result<()> {
        let mut log = self.log.lock();
        unless_full(self.commit(&mut log, &Selection::Files([ino].into())))
    }

    /// Before data is put into the buffer: if it runs over, and cannot be written out, there is no room for more.
    pub(super) fn relieve_if_run_over(&self) -> Result<()> {
        if self.runs_over() { self.relieve() } else { Ok(()) }
    }

    /// Whether twice as much is in memory as should be.
    fn runs_over(&self) -> bool {
        self.pool.dirty_bytes() >= 2 * self.options.write_buffer
    }

    /// Writes dirty blocks out when they take half of the write buffer, or it is nearly full with what
    /// is under cleaning or on its way to the device; waits for it when it is full.
    pub(super) fn relieve(&self) -> Result<()> {
        let budget = self.options.write_buffer;
        let dirty = self.dirty_blocks.load(Ordering::Relaxed) * BLOCK_SIZE;
        if dirty < budget / 2 && self.pool.dirty_bytes() < budget - budget / WRITE_OUT_SHARE {
            return Ok(());
        }
        let log = if self.pool.dirty_bytes() < budget {
            self.log.try_lock()
        } else {
            Some(self.log.lock())
        };
        let Some(mut log) = log else { return Ok(()) };
        let count = (budget / WRITE_OUT_SHARE / BLOCK_SIZE).max(1);
        loop {
            let before = self.dirty_blocks.load(Ordering::Relaxed);
            let attempts = if self.runs_over() { READS_MAX } else { 1 };
            let outcome =
                self.commit_again_if_unread(&mut log, &Selection::Largest(count), attempts);
            // What is in the buffer has been taken, whatever of others cannot be written: only if it runs
            // over is there something to say.
            if self.runs_over() || self.has_failed() {
                outcome?;
            }
            // One write may be longer than what is written out at once.
            if self.pool.dirty_bytes() < budget
                || self.dirty_blocks.load(Ordering::Relaxed) >= before
            {
                return Ok(());
            }
        }
    }

    /// One bounded step of what is due: deletions, aged data, a checkpoint, discards, cleaning.
    pub fn work(&self, now: Timestamp) -> Result<Work> {
        self.clock.note_time(now);
        if self.options.read_only {
            return Ok(Work::Idle(Duration::MAX));
        }
        self.with_failure_written(self.step(now))
    }

    fn step(&self, now: Timestamp) -> Result<Work> {
        self.may_write_out()?;
        // Before what may fail: of files that are damaged there may be many.
        let mut committed = Ok(());
        if self.is_commit_due(now) {
            committed = self.sync_queued(None);
            self.clock.due.lock().waiting = None;
        }
        self.sweep_if_due(now);
        self.rest_if_due(now);
        // What is deleted may be the room that a commit needs.
        let reclaimed = self.reclaim_step();
        committed?;
        self.lost.lock().work.tell_news()?;
        if reclaimed? {
            return Ok(Work::More);
        }
        self.checkpoint_if_due(now)?;
        if self.discard_some(&mut self.log.lock()) {
            return Ok(Work::More);
        }
        if let Some(work) = self.pace_cleaning()? {
            return Ok(work);
        }
        let waits = self.clock.due.lock().waiting.is_some();
        Ok(Work::Idle(if waits { PAUSE / 2 } else { Duration::from_secs(1) }))
    }

    /// Forgets handles that nobody needs, however much cleaning there is.
    fn sweep_if_due(&self, now: Timestamp) {
        if is_due(&mut self.clock.due.lock().swept, SWEEP_MS, now) {
            self.handles.sweep(self.next_sequence.load(Ordering::Relaxed));
        }
    }

    /// Gives memory back.
    fn rest_if_due(&self, now: Timestamp) {
        if is_due(&mut self.clock.due.lock().rested, REST_MS, now) {
            self.pool.release_idle();
        }
    }

    fn checkpoint_if_due(&self, now: Timestamp) -> Result<()> {
        let mut log = self.log.lock();
        let blocks = log.blocks_since_checkpoint;
        if self.is_checkpoint_due(blocks, now) {
            self.errors.forget_news();
            self.checkpoint_in_any_case(&mut log, false)?;
            self.clock.due.lock().checkpoint = millis(now);
            return Ok(());
        }
        self.release_if_due(&mut log)
    }

    fn is_commit_due(&self, now: Timestamp) -> bool {
        let changed = !self.dirty_files.lock().is_empty() || self.meta.read().has_changes();
        // What was written to make room, or went with what the cleaner moved, is not durable yet.
        let waits = changed || self.log.try_lock().is_none_or(|log| log.unflushed);
        let changes = self.clock.changes.load(Ordering::Relaxed);
        let now = millis(now);
        let mut due = self.clock.due.lock();
        if !waits {
            due.waiting = None;
            return false;
        }
        if changes != due.seen {
            due.seen = changes;
            due.active = now;
        }
        let since = *due.waiting.get_or_insert(now);
        let long = |from: i64, interval: Duration| {
            now.saturating_sub(from) >= i64::try_from(interval.as_millis()).unwrap_or(i64::MAX)
        };
        let paused = changed && long(due.active, PAUSE);
        paused || long(since, self.options.commit_interval) || now < since
    }

    fn is_checkpoint_due(&self, blocks: u64, now: Timestamp) -> bool {
        if blocks == 0 && !self.errors.has_news() {
            return false;
        }
        let dirty_nodes = self.meta.read().tree.dirty_count();
        let last = self.clock.due.lock().checkpoint;
        let age = millis(now).saturating_sub(last);
        let interval = i64::try_from(self.options.checkpoint_interval.as_millis());
        let enough = dirty_nodes as u64 * CHECKPOINT_SHARE;
        blocks >= enough.clamp(CHECKPOINT_BLOCKS, CHECKPOINT_BLOCKS_MAX)
            || dirty_nodes >= self.options.cache / BLOCK_SIZE / 2
            || age >= interval.unwrap_or(i64::MAX)
            || age < 0
    }

    /// Before more metadata changes: writes out what has become too much for memory or for a
    /// single delta.
    pub(super) fn relieve_changes(&self) -> Result<()> {
        let (changes, dirty_nodes) = {
            let meta = self.meta.read();
            (meta.change_count(), meta.tree.dirty_count())
        };
        let too_many = dirty_nodes > self.options.cache / BLOCK_SIZE / 2 + DIRTY_NODES_MIN;
        if changes >= CHANGES_MAX || too_many {
            let Some(mut log) = self.log.try_lock() else { return Ok(()) };
            if too_many {
                return unless_full(self.checkpoint(&mut log, false));
            }
            let selection = Selection::Files(Default::default());
            return unless_full(self.commit(&mut log, &selection));
        }
        self.keep_room()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::RamDevice;

    use super::super::rig::{BLOCKS, NOW, create, new_volume, write};
    use super::*;
    use crate::memory::DirtyBuf;

    #[test]
    fn memory_is_kept_for_who_writes_again_soon() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let rest_at = |secs: i64| {
            let now = Timestamp { secs: NOW.secs + secs, ..NOW };
            while volume.work(now).expect("it works") == Work::More {}
            volume.pool.cached_blocks()
        };
        let file = create(&volume, "file");
        write(&volume, file, &[1; 5000]);
        rest_at(1);
        let used: Vec<DirtyBuf> = (0..4096).map(|_| DirtyBuf::new(1, &volume.pool)).collect();
        drop(used);
        assert!(rest_at(2) >= 4096);
        assert!(rest_at(9) >= 4096);
        assert!(rest_at(11) >= 4096, "they were needed");
        write(&volume, file, &[2; 5000]);
        assert!(rest_at(20) >= 4096);
        assert!(rest_at(22) < 10, "little was needed");
        assert_eq!(rest_at(33), 0);
    }
}
