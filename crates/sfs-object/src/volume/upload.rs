//! Uploading: cuts, joins, and what is deleted afterwards.

use std::collections::{BTreeSet, VecDeque};

use sfs_device::{BLOCK_SIZE, Block, Stream};

use super::cuts::{Cuts, Uploaded};
use super::demand::Taken;
use super::dirty::{DirtyRegions, Frozen};
use super::local::LocalHeader;
use super::log_record::Record;
use super::region_map::RegionMap;
use super::state::VolumeState;
use super::{Failure, Limits, ObjectDevice, State};
use crate::mutant::{Mutant, mutated};
use crate::name::ObjectName;
use crate::store::ObjectStore;
use crate::writer::Writer;

/// How a cut becomes part of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// By a log object.
    Log,
    /// By a manifest, which needs no log objects then. With `true` the volume is released.
    Manifest(bool),
    /// By a log object, and a manifest that has the map of the one before and releases the volume: log objects follow it.
    LogAndRelease,
}

/// The owner of the epoch, and what was published.
pub(super) struct Uploader<S> {
    pub(super) writer: Writer<S>,
    /// The last header of the local cache.
    pub(super) header: LocalHeader,
    /// The state of the last manifest; its map is not kept here.
    pub(super) published: VolumeState,
    /// First log object that the last manifest does not contain.
    pub(super) log_start: u64,
    /// Blocks in log objects since.
    pub(super) log_blocks: u64,
    /// Blocks in log objects of earlier uses, which the state names.
    pub(super) left_blocks: u64,
    /// Objects that the last manifest needs, and the next one does not.
    pub(super) superseded: Vec<ObjectName>,
    /// Objects that nothing needs, each with the time since when that was known.
    pub(super) garbage: VecDeque<(ObjectName, Option<u64>)>,
    /// The time of the last call that has told it, in seconds since 1970.
    pub(super) now: u64,
}

impl<S: ObjectStore> Uploader<S> {
    /// Publishes a state. Log objects, and what they replace, are superseded if `log_start` passes all of them.
    pub(super) fn publish(
        &mut self,
        mut state: VolumeState,
        log_start: u64,
    ) -> Result<(), Failure> {
        let epoch = self.writer.epoch();
        let mut unneeded = Vec::new();
        if state.log.is_empty() && log_start == self.writer.next_log() {
            unneeded.append(&mut self.superseded);
            unneeded.extend(&self.published.log);
            unneeded.extend((self.log_start..log_start).map(|no| ObjectName::Log(epoch, no)));
        }
        state.garbage =
            self.garbage.iter().map(|(name, _)| *name).chain(unneeded.clone()).collect();
        state.written_secs = self.now;
        let manifests = self.writer.publish(log_start, state.encode())?;
        unneeded.extend(manifests);
        self.garbage.extend(unneeded.into_iter().map(|name| (name, None)));
        self.published = VolumeState { map: Default::default(), garbage: Vec::new(), ..state };
        (self.log_start, self.log_blocks) = (log_start, 0);
        if self.published.log.is_empty() {
            self.left_blocks = 0;
        }
        Ok(())
    }

    /// Returns the number of log objects that follow the map of the last manifest, and of their blocks.
    fn log_size(&self) -> (u64, u64) {
        let objects = self.published.log.len() as u64 + self.writer.next_log() - self.log_start;
        (objects, self.left_blocks + self.log_blocks)
    }
}

/// Content of a cut.
pub(super) struct Cut {
    pub(super) dirty: DirtyRegions,
    pub(super) zero: Vec<u64>,
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Uploads everything that was written before the call, and joins log objects if they are many.
    pub fn upload(&self) -> Result<(), Failure> {
        let mut uploader = self.uploader.lock();
        let commit =
            if self.is_long(uploader.log_size()) { Commit::Manifest(false) } else { Commit::Log };
        self.commit(&mut uploader, commit, None)
    }

    /// Returns whether the log objects are so many that they are to be joined.
    pub(super) fn is_long(&self, (objects, blocks): (u64, u64)) -> bool {
        blocks >= self.limits.log_blocks || objects >= self.limits.log_objects
    }

    /// Uploads everything that was written before the call, and joins all log objects.
    pub fn join(&self) -> Result<(), Failure> {
        let mut uploader = self.uploader.lock();
        self.commit(&mut uploader, Commit::Manifest(false), None)
    }

    /// Uploads what was written, and joins log objects if they are many, the cache is full, or a thread has asked for it. `now` is in seconds since
    /// 1970.
    pub fn upload_due(&self, now: u64) -> Result<(), Failure> {
        let mut uploader = self.uploader.lock();
        uploader.now = now;
        let asked = self.demand.take();
        let is_long = self.is_long(uploader.log_size());
        // Reads evict, and never join.
        let evicted = self.evict(0);
        let is_full = matches!(evicted, Ok(false));
        let joins = is_long || is_full || asked.joins;
        let commit = if joins { Commit::Manifest(false) } else { Commit::Log };
        self.commit(&mut uploader, commit, Some(asked))?;
        let evicted = if is_full { self.evict(0) } else { evicted };
        evicted.map(|_| ())
    }

    /// Ends the use of the volume: everything is in the store afterwards, and another writer may begin. Writes fail from the begin of the
    /// call on, and nothing is read from the store after it.
    ///
    /// # Errors
    ///
    /// The volume is not released after an error of the store, and read-only. It is released after an error of the local cache alone,
    /// whose pages are read from the store again when it is used next.
    pub fn close(&self, now: u64) -> Result<(), Failure> {
        let mut uploader = self.uploader.lock();
        uploader.now = now;
        let commit = if self.may_leave_log(uploader.log_size(), std::iter::empty()) {
            Commit::LogAndRelease
        } else {
            Commit::Manifest(true)
        };
        self.commit(&mut uploader, commit, None)?;
        let present = {
            let mut state = self.state.lock();
            state.is_final = !mutated(Mutant::ClosedEvicted);
            state.present.clone()
        };
        self.local.write_present(&present)?;
        uploader.header.is_closed = true;
        Ok(self.local.set_header(&mut uploader.header)?)
    }

    /// Returns whether log objects are few enough to be left to the next use: what is joined is uploaded once more, in whole regions.
    /// The size is the number of those that are there or under way, and of their blocks, and `under_way` has the regions of pieces under way.
    pub(super) fn may_leave_log(
        &self,
        (objects, mut blocks): (u64, u64),
        under_way: impl Iterator<Item = u64>,
    ) -> bool {
        let state = self.state.lock();
        // More than half of a region is uploaded as a whole.
        let half = (self.local.shape.region_blocks / 2) as usize;
        let mut regions = state.unjoined.iter().copied().chain(under_way).collect::<BTreeSet<_>>();
        for (region, bits) in &state.open {
            let count = bits.count_ones(..);
            if count <= half {
                regions.insert(*region);
                blocks += count as u64;
            }
        }
        // Without pieces a join uploads nothing.
        let are_few = (1..=self.limits.left_regions).contains(&(regions.len() as u64));
        objects < self.limits.left_objects && blocks < self.limits.left_blocks && are_few
    }

    /// Returns whether the last manifest lets another writer begin.
    pub fn is_released(&self) -> bool {
        self.uploader.lock().published.is_released
    }

    /// Makes what was written part of the volume, and tells those who have asked for it. By log objects, and if somebody may have asked, it goes on
    /// with what is written meanwhile, as long as that is due. After an error nothing more is written.
    fn commit(
        &self,
        uploader: &mut Uploader<S>,
        commit: Commit,
        asked: Option<Taken>,
    ) -> Result<(), Failure> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let goes_on = commit == Commit::Log && asked.is_some();
        let cut = self.cut(commit);
        let (of_log, of_manifest) =
            if commit == Commit::Log { (asked, None) } else { (None, asked) };
        let mut result = self.upload_cut(uploader, (cut, of_log), commit, goes_on);
        if result.is_ok() && commit != Commit::Log {
            uploader.header.manifest = uploader.writer.manifests();
            result = self.local.note_header(&mut uploader.header).map_err(Failure::from);
        }
        let mut state = self.state.lock();
        state.frozen = None;
        if let Err(failure) = &result {
            state.fail(failure);
        }
        drop(state);
        result?;
        if commit == Commit::Log {
            return Ok(());
        }
        self.clear_ahead()?;
        // Threads wait for what was committed, and not for room.
        of_manifest.iter().for_each(|asked| self.demand.note_done(asked));
        Ok(())
    }

    /// Freezes what was written up to now. Nothing is written after the cut that releases the volume.
    pub(super) fn cut(&self, commit: Commit) -> Cut {
        let _access = self.access.write();
        let mut state = self.state.lock();
        if matches!(commit, Commit::Manifest(true) | Commit::LogAndRelease) {
            state.fail(&Failure::Closed);
        }
        let mut dirty = std::mem::take(&mut state.open);
        // The first object is under way soon, and those of a long stream are few.
        let Limits { early_blocks_first: first, early_blocks: most, .. } = self.limits;
        let is_much = state.written >= state.early;
        state.early = if is_much { state.early.saturating_mul(2).min(most) } else { first };
        state.written = 0;
        if matches!(commit, Commit::Manifest(_)) {
            for region in &state.unjoined {
                dirty.entry(*region).or_default();
            }
        }
        let discarded = std::mem::take(&mut state.discarded);
        // Others were written since.
        let is_zero = |region: &u64| dirty.get(region).is_none_or(|bits| bits.is_clear());
        let zero = discarded.into_iter().filter(is_zero).collect::<Vec<_>>();
        zero.iter().for_each(|region| {
            dirty.remove(region);
        });
        let unread = dirty.keys().copied().collect();
        let before = state.frozen.replace(Frozen { unread, ..Frozen::default() });
        assert!(
            before.is_none_or(|before| before.unread.is_empty()),
            "the cut before is not read, and what is saved for it would be lost"
        );
        Cut { dirty, zero }
    }

    /// Uploads a cut, and with `goes_on` those after it that are due.
    fn upload_cut(
        &self,
        uploader: &mut Uploader<S>,
        (cut, asked): (Cut, Option<Taken>),
        commit: Commit,
        goes_on: bool,
    ) -> Result<(), Failure> {
        let mut cuts = Cuts::new(self, commit, goes_on.then(|| uploader.log_size()));
        cuts.add(cut, asked);
        let bytes_at_once = self.limits.upload_blocks as usize * BLOCK_SIZE;
        let stored = uploader.writer.store_each(&mut cuts, bytes_at_once);
        let Uploaded { records, superseded, logs, log_blocks, failure } = cuts.end();
        uploader.superseded.extend(superseded);
        uploader.log_blocks += log_blocks;
        if mutated(Mutant::DeletedUnpublished) {
            uploader.garbage.extend(logs.iter().map(|log| (*log, Some(0))));
        }
        stored?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        match commit {
            Commit::Log => Ok(()),
            Commit::LogAndRelease => self.release(uploader),
            Commit::Manifest(is_released) => self.publish(uploader, &records, is_released),
        }
    }

    /// Publishes the state after `records`, none of which is a piece.
    fn publish(
        &self,
        uploader: &mut Uploader<S>,
        records: &[Record],
        is_released: bool,
    ) -> Result<(), Failure> {
        self.apply(uploader, records);
        let map = self.state.lock().map.clone();
        let log_start = uploader.writer.next_log();
        let state = VolumeState { map, is_released, log: Vec::new(), ..uploader.published.clone() };
        uploader.publish(state, log_start)?;
        self.state.lock().published.clear();
        Ok(())
    }

    /// Publishes the state of the last manifest once more, as released. The log objects since follow it.
    fn release(&self, uploader: &mut Uploader<S>) -> Result<(), Failure> {
        let map = self.state.lock().published_map();
        let state = VolumeState { map, is_released: true, ..uploader.published.clone() };
        uploader.publish(state, uploader.log_start)
    }

    /// Returns a region as it was when it was frozen, in this memory if it fits.
    pub(super) fn snapshot(
        &self,
        region: u64,
        memory: Box<[Block]>,
    ) -> Result<Box<[Block]>, Failure> {
        let of = self.local.shape.blocks(region);
        let count = (of.end - of.start) as usize;
        let mut blocks = if memory.len() == count { memory } else { Block::zeroed(count) };
        // Whoever writes meanwhile saves the old block first, as long as the region is unread.
        self.local.image.read(of.start, &mut blocks)?;
        let mut state = self.state.lock();
        if let Some(frozen) = &mut state.frozen {
            frozen.unread.remove(&region);
            for (at, block) in (of.start..).zip(&mut blocks) {
                if let Some(old) = frozen.saved.remove(&at) {
                    *block = *old;
                }
            }
        }
        Ok(blocks)
    }

    /// Notes records that are part of the volume, or are about to be.
    fn apply(&self, uploader: &mut Uploader<S>, records: &[Record]) {
        uploader.superseded.extend(self.apply_records(records));
    }

    /// Notes records in the map. Returns the objects that they replace.
    pub(super) fn apply_records(&self, records: &[Record]) -> Vec<ObjectName> {
        let mut state = self.state.lock();
        let mut superseded = Vec::new();
        for record in records {
            if let Record::Whole { region, .. } | Record::Zero { region } = *record {
                let before = state.map.get(region);
                state.published.entry(region).or_insert(before);
            }
            let before = match *record {
                Record::Piece { address, .. } => {
                    state.unjoined.insert(address / self.local.shape.region_blocks);
                    None
                }
                Record::Whole { region, data } => {
                    state.unjoined.remove(&region);
                    state.map.set(region, data)
                }
                Record::Zero { region } => {
                    state.unjoined.remove(&region);
                    state.map.remove(region)
                }
            };
            superseded.extend(before);
        }
        superseded
    }

    /// Writes a piece of a log object of an earlier writer to the image.
    pub(super) fn write_piece(&self, address: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut blocks = Block::zeroed(bytes.len() / sfs_device::BLOCK_SIZE);
        Block::bytes_of_mut(&mut blocks).copy_from_slice(bytes);
        Ok(self.local.image.write(address, &[&blocks], Stream::default())?)
    }
}

impl State {
    /// Returns the map of the last manifest.
    fn published_map(&self) -> RegionMap {
        let mut map = self.map.clone();
        for (region, object) in &self.published {
            match *object {
                Some(ObjectName::Data(epoch, number)) => map.set(*region, (epoch, number)),
                _ => map.remove(*region),
            };
        }
        map
    }
}
