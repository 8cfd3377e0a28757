//! A cache that is open.
//!
//! Lookups and invalidations take the lock of the state and never wait for the cache device with it. One thread at a time, in
//! [`Cache::work`], writes segments and makes room. The first error of the device, and the first block that is not what was
//! written, ends the use of the cache: everything is forgotten, and the owner is told once.

mod lookup;
mod writing;

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::{Block, Device, DeviceError};

use crate::bitmap::LiveMap;
use crate::error::CacheError;
use crate::header::CacheHeader;
use crate::loading;
use crate::memory::IndexMemory;
use crate::mutant::{Mutant, mutated};
use crate::state::{Phase, State};

/// Identity of a cache, as the superblock of its volume has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UUID of the volume.
    pub volume_uuid: [u8; 16],
    /// UUID of its cache.
    pub cache_uuid: [u8; 16],
    /// Epoch of the last program that has written to the volume. An epoch of zeros is that of no cache.
    pub epoch: [u8; 16],
}

/// State of the content that a cache had when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// Copies of a mount that has ended: each is what the disk has.
    Warm,
    /// Copies of a mount that was cut off, or that another program's writes may have made old. All are forgotten.
    Emptied,
}

/// Figures of a cache. Numbers of blocks are since it was opened, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStat {
    /// State of the content when the cache was opened.
    pub warmth: Warmth,
    /// Reason why the cache is not used any more.
    pub dropped: Option<String>,
    /// Blocks that can be cached.
    pub capacity_blocks: u64,
    /// Blocks that are cached now.
    pub cached_blocks: u64,
    /// Extents that are cached now, wholly or in part.
    pub cached_extents: u64,
    /// Blocks that were read from the cache.
    pub hit_blocks: u64,
    /// Blocks that were looked up and were not there.
    pub miss_blocks: u64,
    /// Of these, blocks with an old copy.
    pub old_blocks: u64,
    /// Blocks that were added.
    pub added_blocks: u64,
    /// Blocks that were written once more to free a segment.
    pub moved_blocks: u64,
    /// Blocks that were not added because they belong to a sequential stream.
    pub bypassed_blocks: u64,
    /// Blocks that were not added because too many waited.
    pub crowded_out_blocks: u64,
    /// Blocks that were forgotten because the disk's were written.
    pub invalidated_blocks: u64,
    /// Extents that were evicted.
    pub evicted_extents: u64,
    /// Bytes written to the cache device since the cache was made.
    pub bytes_written: u64,
    /// Name of the eviction policy.
    pub policy: &'static str,
    /// Identity of the cache.
    pub cache_uuid: [u8; 16],
}

/// Receiver of the reason why a cache is not used any more.
type Report = Box<dyn Fn(&str) + Send + Sync>;

/// An open cache.
pub struct Cache {
    device: Arc<dyn Device>,
    header: Mutex<CacheHeader>,
    state: Mutex<State>,
    /// Held by the thread that writes segments.
    worker: Mutex<()>,
    warmth: Warmth,
    report: Mutex<Option<Report>>,
    waker: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
}

impl Cache {
    /// Opens the cache on `device` for the volume with this identity, and reads what it holds. Writes nothing. The index takes
    /// [`IndexMemory::of`] the cache, and at most `memory_max` bytes.
    ///
    /// # Errors
    ///
    /// Those of [`CacheHeader::read`], [`CacheError::OtherVolume`], [`CacheError::Dirty`].
    pub fn open(
        device: Arc<dyn Device>,
        of: &Identity,
        memory_max: u64,
    ) -> Result<Self, CacheError> {
        let header = CacheHeader::read(&*device)?;
        let is_ours = header.volume_uuid == of.volume_uuid && header.cache_uuid == of.cache_uuid;
        if !is_ours && !mutated(Mutant::OtherVolume) {
            return Err(CacheError::OtherVolume);
        }
        let mut state = State::new(&header, IndexMemory::of(&header).at_most(memory_max));
        let is_last = header.epoch == of.epoch && of.epoch != [0; 16];
        let is_current = is_last || mutated(Mutant::StaleEpochTrusted);
        let warmth = match is_current && loading::load(&*device, &header, &mut state)? {
            true => Warmth::Warm,
            false => Warmth::Emptied,
        };
        Ok(Self {
            device,
            header: Mutex::new(header),
            state: Mutex::new(state),
            worker: Mutex::new(()),
            warmth,
            report: Mutex::new(None),
            waker: Mutex::new(None),
        })
    }

    /// Calls `report` once with the reason, when the cache is not used any more.
    pub fn on_drop(&self, report: impl Fn(&str) + Send + Sync + 'static) {
        *self.report.lock() = Some(Box::new(report));
    }

    /// Calls `waker` whenever there is work for [`Cache::work`]: at once, if there is some already.
    pub fn on_work(&self, waker: impl Fn() + Send + Sync + 'static) {
        *self.waker.lock() = Some(Box::new(waker));
        self.wake_for_waiting();
    }

    /// Begins the mount with the epoch `epoch`, which the superblock of the volume has by now, durably. From now on the cache
    /// writes blocks, those that were read since it was opened among them.
    pub fn begin(&self, epoch: [u8; 16]) {
        let _worker = self.worker.lock();
        let mut header = self.header.lock();
        header.epoch = epoch;
        header.is_closed = false;
        if self.warmth == Warmth::Emptied {
            header.filling = u64::from_le_bytes(epoch[..8].try_into().expect("eight bytes"));
        }
        let written = header.write(&*self.device);
        drop(header);
        match written {
            Ok(()) => {
                self.state.lock().begin_writing();
                self.wake_for_waiting();
            }
            Err(error) => self.end_use(&error.to_string()),
        }
    }

    /// Writes what was read, if a segment is full, or makes room. Returns whether there may be more to do. Called by one thread of
    /// the owner.
    pub fn work(&self) -> bool {
        let _worker = self.worker.lock();
        self.step()
    }

    /// Writes all that waits to the device, and then the map of live blocks, for the next mount. From now on the cache takes no blocks.
    /// The superblock of the volume has `epoch` by now, durably, and nothing more is written to the volume.
    pub fn close(&self, epoch: [u8; 16]) {
        let _worker = self.worker.lock();
        if self.state.lock().phase != Phase::Writing {
            return;
        }
        while self.step() {}
        let _ = self.write_filled(true);
        let mut header = self.header.lock();
        let (map, written) = {
            let mut state = self.state.lock();
            if state.dropped.is_some() {
                return;
            }
            state.phase = Phase::Ended;
            let mut map = LiveMap::new(header.bit_count());
            for (section, first) in state.sections.iter().zip(loading::first_bits(&header)) {
                section.mark_live(&mut map, first);
            }
            (map, std::mem::take(&mut state.counts.bytes_written))
        };
        header.is_closed = true;
        header.epoch = epoch;
        header.bytes_written = header.bytes_written.saturating_add(written);
        let closed = match mutated(Mutant::ClosedBeforeMap) {
            false => map.write(&*self.device, &header).and_then(|bytes| {
                header.bytes_written += bytes;
                header.write(&*self.device)
            }),
            true => header
                .write(&*self.device)
                .and_then(|()| map.write(&*self.device, &header).map(drop)),
        };
        if let Err(error) = closed {
            drop(header);
            self.end_use(&error.to_string());
        }
    }

    /// Writes what was read to the device, durably, without ending the use of the cache.
    ///
    /// # Errors
    ///
    /// Errors of the device, after which the cache is not used any more.
    pub fn flush(&self) -> Result<(), DeviceError> {
        let _worker = self.worker.lock();
        while self.step() {}
        self.write_filled(true)?;
        self.device.flush().inspect_err(|error| self.end_use(&error.to_string()))
    }

    /// Ends the use of the cache for `reason`, and waits for the request that is being written: the device can be closed.
    pub fn give_up(&self, reason: &str) {
        self.end_use(reason);
        drop(self.worker.lock());
    }

    /// Ends the use of the cache for `reason`: forgets everything, and reports it once.
    pub fn end_use(&self, reason: &str) {
        {
            let header = self.header.lock();
            let mut state = self.state.lock();
            if state.dropped.is_some() {
                return;
            }
            state.dropped = Some(reason.to_owned());
            state.clear(&header);
        }
        if let Some(report) = &*self.report.lock() {
            report(reason);
        }
    }

    /// Returns what the cache had when it was opened.
    pub fn warmth(&self) -> Warmth {
        self.warmth
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Returns the figures.
    pub fn stat(&self) -> CacheStat {
        let header = self.header.lock();
        let state = self.state.lock();
        let sum = |figure: &dyn Fn(&crate::section::Section) -> u64| {
            state.sections.iter().map(figure).sum()
        };
        let counts = &state.counts;
        CacheStat {
            warmth: self.warmth,
            dropped: state.dropped.clone(),
            capacity_blocks: sum(&|section| {
                u64::from(section.plan().segment_count) * u64::from(section.data_blocks())
            }),
            cached_blocks: sum(&|section| section.live_blocks()),
            cached_extents: sum(&|section| section.extent_count()),
            hit_blocks: counts.hits,
            miss_blocks: counts.misses,
            old_blocks: counts.old_copies,
            added_blocks: counts.added,
            moved_blocks: counts.moved,
            bypassed_blocks: counts.bypassed,
            crowded_out_blocks: counts.crowded_out,
            invalidated_blocks: counts.invalidated,
            evicted_extents: sum(&|section| section.evicted_extents()),
            bytes_written: header.bytes_written.saturating_add(counts.bytes_written),
            policy: header.policy.name(),
            cache_uuid: header.cache_uuid,
        }
    }

    /// Returns the addresses on the disk, and the content, of all copies; for tests, which compare them with the disk.
    pub fn all_copies(&self) -> Result<Vec<(u64, Block)>, DeviceError> {
        let state = self.state.lock();
        let mut copies = Vec::new();
        for section in &state.sections {
            for (key, slot) in section.entries() {
                let mut block = Block::ZERO;
                match section.memory(slot) {
                    Some(memory) => block.clone_from(memory),
                    None => {
                        self.device
                            .read(section.address(slot), std::slice::from_mut(&mut block))?;
                    }
                }
                copies.push((key.block, block));
            }
        }
        Ok(copies)
    }

    /// Notes that the blocks `range` of the disk are written or discarded, before and after that.
    pub(crate) fn note_write(&self, range: Range<u64>) {
        self.state.lock().note_write(range);
    }

    /// Wakes the thread for blocks that waited before it could be told, or before they could be written.
    fn wake_for_waiting(&self) {
        let has_work = self.state.lock().has_work();
        if has_work {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker();
        }
    }
}
