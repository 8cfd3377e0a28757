//! A cache that is open.
//!
//! Lookups and invalidations take the lock of the state and never wait for the cache device with it. One thread at a time, in
//! [`Cache::work`], writes segments and makes room. The first error of the device, and the first block that is not what was
//! written, ends the use of the cache: everything is forgotten, and the owner is told once.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::{
    Block, Copies, Device, DeviceError, Moment, ReadPart, ReadRun, Stream, WantedBlock,
};

use crate::DISK_OBJECT;
use crate::bitmap::LiveMap;
use crate::error::CacheError;
use crate::header::CacheHeader;
use crate::loading;
use crate::memory::IndexMemory;
use crate::mutant::{Mutant, mutated};
use crate::section::{FilledSegment, Found, Slot};
use crate::state::{Phase, State};
use crate::summary::{BlockKey, Summary};

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

/// A wanted block that is on the cache device.
struct Place<'a, 'b> {
    section: usize,
    slot: Slot,
    address: u64,
    wanted: &'a mut WantedBlock<'b>,
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

    /// Calls `waker` whenever there is work for [`Cache::work`].
    pub fn on_work(&self, waker: impl Fn() + Send + Sync + 'static) {
        *self.waker.lock() = Some(Box::new(waker));
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
        match header.write(&*self.device) {
            Ok(()) => self.state.lock().begin_writing(),
            Err(error) => {
                drop(header);
                self.end_use(&error.to_string());
            }
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

    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker();
        }
    }

    /// Does one step of [`Cache::work`].
    fn step(&self) -> bool {
        match self.write_filled(false) {
            Ok(false) => {}
            Ok(true) => return true,
            Err(_) => return false,
        }
        if let Some((no, segment, live)) = self.victim() {
            return self.reclaim(no, segment, live);
        }
        let filling = self.header.lock().filling;
        let mut state = self.state.lock();
        state.phase == Phase::Writing && state.add_waiting(filling)
    }

    /// Writes the first segment that is full or, with `partly`, all. Returns whether there was one.
    fn write_filled(&self, partly: bool) -> Result<bool, DeviceError> {
        let mut was_any = false;
        let count = self.state.lock().sections.len();
        for no in 0..count {
            let (segment, address, summary_blocks) = {
                let mut state = self.state.lock();
                if state.phase != Phase::Writing || no >= state.sections.len() {
                    return Ok(was_any);
                }
                let section = &mut state.sections[no];
                let Some(segment) = section.take_filled(partly) else { continue };
                let address = section.segment_address(segment.no);
                (segment, address, section.summary_blocks())
            };
            was_any = true;
            let written = self.write_segment(&segment, address, summary_blocks);
            if let Err(error) = written {
                self.end_use(&error.to_string());
                return Err(error);
            }
            let mut state = self.state.lock();
            state.counts.bytes_written += written.unwrap_or(0);
            if let Some(section) = state.sections.get_mut(no) {
                section.note_written();
            }
        }
        Ok(was_any)
    }

    fn write_segment(
        &self,
        segment: &FilledSegment,
        address: u64,
        summary_blocks: u32,
    ) -> Result<u64, DeviceError> {
        let summary = segment.summary.encode(summary_blocks);
        let used = &segment.blocks[..segment.summary.entries.len()];
        self.device.write(address, &[&summary, used], Stream::default())?;
        Ok(((summary.len() + used.len()) * sfs_device::BLOCK_SIZE) as u64)
    }

    /// Returns a section that lacks free segments while blocks wait, the segment that is to become free, and its live blocks.
    fn victim(&self) -> Option<(usize, u32, u32)> {
        let state = self.state.lock();
        if state.phase != Phase::Writing || state.waiting.is_empty() {
            return None;
        }
        let victim = |(no, section): (usize, &crate::section::Section)| {
            let (segment, live) = section.victim()?;
            Some((no, segment, live))
        };
        state.sections.iter().enumerate().find_map(victim)
    }

    /// Frees a segment.
    fn reclaim(&self, no: usize, segment: u32, live: u32) -> bool {
        let read = match live {
            0 => Ok(None),
            _ => self.read_segment(no, segment).map(Some),
        };
        let content = match read {
            Ok(content) => content,
            Err(error) => {
                self.end_use(&error.to_string());
                return false;
            }
        };
        if content.as_ref().is_some_and(Option::is_none) {
            self.end_use(&format!("the summary of segment {segment} is damaged"));
            return false;
        }
        let content = content.flatten();
        let filling = self.header.lock().filling;
        let is_right = {
            let mut state = self.state.lock();
            let sequence = state.sequence + 1;
            let Some(section) = state.sections.get_mut(no) else { return false };
            let content = content.as_ref().map(|(summary, blocks)| (summary, &blocks[..]));
            let moved = section.reclaim(segment, content, (sequence, filling));
            let newest = section.newest_sequence();
            state.sequence = state.sequence.max(newest);
            state.counts.moved += moved.unwrap_or(0);
            moved.is_some()
        };
        if !is_right && !mutated(Mutant::LieForgiven) {
            self.end_use("a block of the cache is not what was written");
        }
        is_right
    }

    /// Reads a segment; `None` without a sound summary.
    #[expect(clippy::type_complexity, reason = "a summary and its blocks, or nothing")]
    fn read_segment(
        &self,
        no: usize,
        segment: u32,
    ) -> Result<Option<(Summary, Box<[Block]>)>, DeviceError> {
        let (address, summary_blocks, data_blocks) = {
            let state = self.state.lock();
            let section = &state.sections[no];
            (section.segment_address(segment), section.summary_blocks(), section.data_blocks())
        };
        let mut memory = Block::zeroed((summary_blocks + data_blocks) as usize);
        self.device.read(address, &mut memory)?;
        let (summary, blocks) = memory.split_at(summary_blocks as usize);
        Ok(Summary::decode(summary, data_blocks).map(|summary| (summary, blocks.into())))
    }

    /// Finds the places of the wanted blocks. Those in memory are copied, and the segments of the others stay until they are read.
    fn locate<'a, 'b>(&self, wanted: &'a mut [WantedBlock<'b>]) -> (Moment, Vec<Place<'a, 'b>>) {
        let mut state = self.state.lock();
        let moment = state.now();
        if state.dropped.is_some() {
            return (moment, Vec::new());
        }
        let mut places = Vec::new();
        let State { sections, counts, .. } = &mut *state;
        for wanted in wanted {
            let key = BlockKey { object: DISK_OBJECT, block: wanted.address };
            counts.misses += 1;
            for (no, section) in sections.iter_mut().enumerate() {
                match section.find(key) {
                    None => continue,
                    Some(Found::Memory(block)) => {
                        if is_content(wanted, block) {
                            wanted.memory.clone_from(block);
                            wanted.is_found = true;
                            (counts.hits, counts.misses) = (counts.hits + 1, counts.misses - 1);
                        } else {
                            counts.old_copies += 1;
                            section.forget(DISK_OBJECT, wanted.address..wanted.address + 1);
                        }
                    }
                    Some(Found::Device(slot)) => {
                        section.pin(slot);
                        let address = section.address(slot);
                        places.push(Place { section: no, slot, address, wanted });
                    }
                }
                break;
            }
        }
        (moment, places)
    }

    /// Reads blocks from the cache device, and keeps those with the wanted content.
    fn read_places(&self, mut places: Vec<Place<'_, '_>>) {
        places.sort_unstable_by_key(|place| place.address);
        let outcomes = {
            let mut runs: Vec<ReadRun<'_>> = Vec::new();
            let mut end = 0;
            for place in &mut places {
                let part = ReadPart::Into(std::slice::from_mut(&mut *place.wanted.memory));
                match runs.last_mut() {
                    Some(run) if end == place.address => run.parts.push(part),
                    _ => runs.push(ReadRun { address: place.address, parts: vec![part] }),
                }
                end = place.address + 1;
            }
            self.device.read_many(&mut runs)
        };
        let failed = outcomes.into_iter().find_map(Result::err);
        let mut wrong = Vec::new();
        if failed.is_none() || mutated(Mutant::ErrorServed) {
            for place in &mut places {
                let is_right = is_content(place.wanted, place.wanted.memory)
                    || mutated(Mutant::ChecksumNotCompared)
                    || failed.is_some();
                place.wanted.is_found = is_right;
                if !is_right {
                    wrong.push((
                        place.section,
                        place.slot,
                        place.wanted.address,
                        crc32c::crc32c(&place.wanted.memory.0),
                    ));
                }
            }
        }
        let lies = wrong.iter().any(|(section, slot, address, checksum)| {
            self.lies(*section, *slot, *address, *checksum)
        });
        {
            let mut state = self.state.lock();
            let found = places.iter().filter(|place| place.wanted.is_found).count() as u64;
            state.counts.hits += found;
            state.counts.misses = state.counts.misses.saturating_sub(found);
            state.counts.old_copies += wrong.len() as u64;
            if state.dropped.is_none() {
                for place in &places {
                    state.sections[place.section].unpin(place.slot);
                }
                for (section, slot, address, _) in &wrong {
                    let section = &mut state.sections[*section];
                    let key = BlockKey { object: DISK_OBJECT, block: *address };
                    if section.slot_of(key) == Some(*slot) {
                        section.forget(DISK_OBJECT, *address..*address + 1);
                    }
                }
            }
        }
        if let Some(error) = failed {
            self.end_use(&error.to_string());
        } else if lies && !mutated(Mutant::LieForgiven) {
            self.end_use("a block of the cache is not what was written");
        }
    }

    /// Returns whether content with `checksum`, which the device returned for a slot, is not what was written there. The segment of
    /// the slot is pinned.
    fn lies(&self, section: usize, slot: Slot, address: u64, checksum: u32) -> bool {
        let (at, entry, summary_blocks, data_blocks) = {
            let state = self.state.lock();
            if state.dropped.is_some() {
                return false;
            }
            let section = &state.sections[section];
            let (at, entry) = section.entry_of(slot);
            (at, entry, section.summary_blocks(), section.data_blocks())
        };
        let mut memory = Block::zeroed(summary_blocks as usize);
        if self.device.read(at, &mut memory).is_err() {
            return true;
        }
        let summary = Summary::decode(&memory, data_blocks);
        let entry = summary.as_ref().and_then(|summary| summary.entries.get(entry));
        entry.is_none_or(|entry| entry.key.block != address || entry.checksum != checksum)
    }
}

impl Copies for Cache {
    fn fetch(&self, wanted: &mut [WantedBlock<'_>]) -> Moment {
        let (moment, places) = self.locate(wanted);
        if !places.is_empty() {
            self.read_places(places);
        }
        moment
    }

    fn offer(&self, moment: Moment, address: u64, blocks: &[Block]) {
        let is_taken = self.state.lock().offer(moment, address, blocks);
        if is_taken {
            self.wake();
        }
    }
}

/// Returns whether `block` has the wanted content.
fn is_content(wanted: &WantedBlock<'_>, block: &Block) -> bool {
    let summed = match mutated(Mutant::HeadNotCompared) {
        true => block.0.get(wanted.head.len()..),
        false => block.0.strip_prefix(wanted.head),
    };
    summed.is_some_and(|summed| crc32c::crc32c(summed) == wanted.checksum)
}
