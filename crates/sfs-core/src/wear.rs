//! Recorder of wear: counts written bytes for the day on which they were written, in the ledger that each checkpoint stores.
//!
//! Requests add to [`AtomicCounters`] only. What these have grown by is added to the ledger when the day changes, when a
//! checkpoint is written and when somebody asks. The recorder has no clock: [`WearRecorder::set_time`] tells the day.

mod write_speed;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sfs_device::BLOCK_SIZE;

use crate::counters::AtomicCounters;
use crate::format::{
    CheckpointRecord, ChunkSummary, Day, Extensions, Superblock, Timestamp, WearBytes, WearLedger,
};
use crate::mutant::{Mutant, mutated};
use crate::request::Counters;

/// Blocks of log since the last checkpoint from which on the ledger may cost a block of the checkpoint: 64 MiB.
const LOG_BLOCKS_PER_BLOCK: u64 = 64 << 20 >> 12;

/// Recorder of the wear of an open volume.
#[derive(Debug)]
pub(crate) struct WearRecorder {
    counters: Arc<AtomicCounters>,
    /// Bytes that went to the device before this mount, chunks found by roll-forward included.
    device_bytes_before: AtomicU64,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    /// The ledger; `None` on a volume that never had one, before the day is known.
    ledger: Option<WearLedger>,
    /// The present day; `None` while it is unknown.
    today: Option<Day>,
    /// Day on which the volume was made.
    made: Day,
    /// Bytes of the counters that are in the ledger.
    counted: WearBytes,
    is_damaged: bool,
}

impl WearRecorder {
    /// Continues the ledger that `checkpoint` stores.
    pub(crate) fn new(
        counters: Arc<AtomicCounters>,
        superblock: &Superblock,
        extensions: &Extensions,
        device_bytes_before: u64,
    ) -> Self {
        let ledger = WearLedger::of(extensions);
        let is_damaged = ledger.is_err();
        let ledger = ledger.ok().flatten().filter(|_| !mutated(Mutant::LedgerForgotten));
        let record = Record {
            ledger,
            today: None,
            made: Day::of(superblock.created),
            counted: WearBytes::default(),
            is_damaged,
        };
        let device_bytes_before = AtomicU64::new(device_bytes_before);
        Self { counters, device_bytes_before, record: Mutex::new(record) }
    }

    /// Returns whether the checkpoint had a ledger that was malformed.
    pub(crate) fn is_damaged(&self) -> bool {
        self.record.lock().is_damaged
    }

    /// Sets the time. Bytes that were written before this call count for the day before.
    pub(crate) fn set_time(&self, now: Timestamp) {
        let mut record = self.record.lock();
        let day = record.plausible(Day::of(now));
        if record.today != Some(day) {
            record.settle(&self.counters.snapshot());
            record.today = Some(day);
            let ledger = record.ledger.get_or_insert_with(|| WearLedger::new(day));
            // An image that was filled without a date.
            if ledger.since == Day::default() {
                ledger.since = day;
            }
        }
    }

    /// Counts a batch that roll-forward has found.
    pub(crate) fn add_recovered(&self, batch: &[ChunkSummary]) {
        let mut bytes = WearBytes::default();
        batch.iter().for_each(|chunk| bytes.add(WearBytes::of_chunk(chunk)));
        self.device_bytes_before.fetch_add(bytes.sum(), Ordering::Relaxed);
        self.record.lock().add_recovered(bytes, batch.len() as u64);
    }

    /// Counts blocks in place that roll-forward has found.
    pub(crate) fn add_recovered_in_place(&self, blocks: u64) {
        let bytes = WearBytes { user: blocks * BLOCK_SIZE as u64, ..WearBytes::default() };
        self.device_bytes_before.fetch_add(bytes.sum(), Ordering::Relaxed);
        self.record.lock().add_recovered(bytes, 0);
    }

    /// Returns the number of bytes that went to the device before this mount.
    pub(crate) fn device_bytes_before(&self) -> u64 {
        self.device_bytes_before.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that went to the device since the volume was made.
    pub(crate) fn device_bytes(&self) -> u64 {
        let now = self.counters.device_bytes_written.load(Ordering::Relaxed);
        self.device_bytes_before() + now
    }

    /// Returns the ledger as it is now.
    pub(crate) fn ledger(&self) -> WearLedger {
        let mut record = self.record.lock();
        record.settle(&self.counters.snapshot());
        record.ledger.clone().unwrap_or_default()
    }

    /// Notes that a MiB was written in `micros` on average, over a long stretch; returns whether this is the end of a
    /// stretch that took far longer than when the device was new.
    pub(crate) fn note_write_speed(&self, micros: u32) -> bool {
        let mut record = self.record.lock();
        record.ledger.as_mut().is_some_and(|ledger| ledger.speed.note(micros))
    }

    /// Completes `checkpoint` with the number of bytes written and the ledger. Both contain `pending`, what is about to be
    /// written before the record, and the record itself. The ledger takes the rest of the last block, and a block
    /// of its own only after `log_blocks` blocks of log. A volume that is being made has no ledger, and does not count these writes.
    pub(crate) fn complete(
        &self,
        checkpoint: &mut CheckpointRecord,
        pending: PendingBytes,
        log_blocks: u64,
    ) {
        checkpoint.extensions.remove(WearLedger::TAG);
        let more = if log_blocks >= LOG_BLOCKS_PER_BLOCK { BLOCK_SIZE } else { 0 };
        let room = checkpoint.spare_len() + more;
        let device_bytes = self.device_bytes();
        checkpoint.device_bytes_written = device_bytes;
        let mut record_len = checkpoint.encoded_len();
        // The ledger may take another block, which it counts, too.
        for _ in 0..2 {
            let Some(ledger) = self.with_pending(pending.ledger, record_len as u64) else {
                return;
            };
            checkpoint.device_bytes_written = device_bytes + pending.device + record_len as u64;
            ledger.put_into(&mut checkpoint.extensions, room);
            let len = checkpoint.encoded_len();
            if std::mem::replace(&mut record_len, len) == len {
                return;
            }
        }
    }

    fn with_pending(&self, mut pending: WearBytes, record_len: u64) -> Option<WearLedger> {
        let mut record = self.record.lock();
        record.settle(&self.counters.snapshot());
        pending.metadata += record_len;
        let mut ledger = record.ledger.clone()?;
        ledger.add(record.day(), pending);
        Some(ledger)
    }
}

/// Bytes that are about to be written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingBytes {
    /// All bytes that the counters do not have yet.
    pub(crate) device: u64,
    /// Those among them that the ledger would miss: the counters get data when a batch is built.
    pub(crate) ledger: WearBytes,
}

impl Record {
    /// Returns `day`, or the newest day of the ledger if the clock shows a day before the volume was made.
    fn plausible(&self, day: Day) -> Day {
        let newest = self.ledger.as_ref().and_then(WearLedger::newest_day);
        if day < self.made { newest.unwrap_or(self.made) } else { day }
    }

    /// Returns the day for which bytes count now: while it is unknown, the newest day of the ledger.
    fn day(&self) -> Day {
        let newest = || self.ledger.as_ref().and_then(WearLedger::newest_day);
        self.today.or_else(newest).unwrap_or(self.made)
    }

    /// Adds what the counters have grown by since the last call.
    fn settle(&mut self, counters: &Counters) {
        let now = of_counters(counters);
        let bytes = now.since(self.counted);
        let day = self.day();
        if let Some(ledger) = &mut self.ledger {
            ledger.add(day, bytes);
            self.counted = now;
        }
    }

    fn add_recovered(&mut self, bytes: WearBytes, chunks: u64) {
        let today = self.day();
        if let Some(ledger) = &mut self.ledger {
            ledger.add_recovered(today, bytes, chunks);
        }
    }
}

/// Returns the bytes of `counters` by origin.
fn of_counters(counters: &Counters) -> WearBytes {
    WearBytes {
        user: counters.data_bytes,
        cleaning: counters.cleaning_bytes,
        metadata: counters.metadata_bytes + counters.summary_bytes,
        defragmentation: counters.defragmentation_bytes,
    }
}
