//! The object volume as a [`Device`].

use std::ops::Range;

use sfs_device::{Block, Device, DeviceError, Geometry, Operation, ReadRun, Stream};

use super::shape::Shape;
use super::{Durability, Failure, ObjectDevice, State, dirty};
use crate::mutant::{Mutant, mutated};
use crate::store::ObjectStore;

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Calls `read` once the image holds all of `ranges`, which stays so during the call.
    pub(super) fn with_present<T>(
        &self,
        ranges: &[Range<u64>],
        read: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        let shape = self.local.shape;
        let wait = self.read_wait();
        loop {
            let access = self.access.read();
            let mut state = self.state.lock();
            if ranges.iter().all(|range| state.missing(shape, range).is_empty()) {
                for range in ranges {
                    let regions = shape.regions_of(range.start, range.end - range.start);
                    regions.for_each(|region| state.used.insert(region as usize));
                }
                drop(state);
                let result = read();
                drop(access);
                return Ok(result);
            }
            drop(state);
            drop(access);
            self.fill(ranges, wait)?;
        }
    }

    /// Saves blocks of regions that are being uploaded, before a write changes them. The caller holds `access`, so that no cut comes between.
    ///
    /// Another writer of the same block may save it first: what it has saved is the older content, and stays.
    fn save_frozen(&self, blocks: &[u64]) -> Result<(), DeviceError> {
        let region_blocks = self.local.shape.region_blocks;
        for block in blocks {
            let mut old = Box::new(Block::ZERO);
            self.local.image.read(*block, std::slice::from_mut(&mut *old))?;
            let mut state = self.state.lock();
            if let Some(frozen) = &mut state.frozen
                && frozen.unread.contains(&(block / region_blocks))
            {
                frozen.saved.entry(*block).or_insert(old);
            }
        }
        Ok(())
    }

    /// Discards whole regions.
    fn discard_regions(&self, regions: Range<u64>) -> Result<(), DeviceError> {
        let shape = self.local.shape;
        let _access = self.access.write();
        let claimed = {
            let mut state = self.state.lock();
            if let Some(failure) = &state.failure {
                let (begin, end) = (regions.start, regions.end);
                let (address, count) =
                    (begin * shape.region_blocks, (end - begin) * shape.region_blocks);
                return Err(failure.clone().of(Operation::Discard, address, count));
            }
            let claimed = regions.filter(|region| state.may_discard(*region)).collect::<Vec<_>>();
            state.busy.extend(&claimed);
            claimed
        };
        let discard = |region: &u64| self.local.image.discard(shape.blocks(*region));
        let result = claimed.iter().try_for_each(discard);
        if result.is_ok() {
            let mut state = self.state.lock();
            for region in &claimed {
                state.open.remove(region);
                state.discarded.insert(*region);
                state.add_pages(shape.pages_of(shape.blocks(*region)));
            }
        }
        self.end_busy(claimed.into_iter());
        result
    }
}

impl State {
    /// Returns whether the store has everything.
    fn is_uploaded(&self) -> bool {
        self.open.is_empty() && self.discarded.is_empty() && self.frozen.is_none()
    }

    /// Returns whether a region may be discarded: it is perhaps not zero, and neither an upload nor another thread needs it.
    fn may_discard(&self, region: u64) -> bool {
        let is_frozen = self.frozen.as_ref().is_some_and(|frozen| frozen.unread.contains(&region));
        let is_known = self.map.has(region)
            || self.unjoined.contains(&region)
            || self.ahead.contains(region as usize);
        is_known && !is_frozen && !self.busy.contains(&region)
    }

    /// Returns the blocks of a range that have to be saved before they are written.
    fn unsaved(&self, shape: Shape, blocks: Range<u64>) -> Vec<u64> {
        let Some(frozen) = &self.frozen else { return Vec::new() };
        if mutated(Mutant::OldBlocksUnsaved) {
            return Vec::new();
        }
        let is_unsaved = |block: &u64| {
            frozen.unread.contains(&(block / shape.region_blocks))
                && !frozen.saved.contains_key(block)
        };
        blocks.filter(is_unsaved).collect()
    }
}

impl<S: ObjectStore + Clone + Send + Sync> Device for ObjectDevice<S> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let count = buffer.len() as u64;
        self.geometry.check_range(Operation::Read, address, count)?;
        let range = address..address + count;
        self.note_read(&range);
        self.with_present(&[range], || self.local.image.read(address, buffer))
            .map_err(|failure| failure.of(Operation::Read, address, count))?
    }

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        let range = |run: &ReadRun<'_>| run.address..run.address + run.block_count();
        let ranges = runs.iter().map(range).collect::<Vec<_>>();
        let checks = ranges.iter().map(|range| {
            self.geometry.check_range(Operation::Read, range.start, range.end - range.start)
        });
        if checks.collect::<Result<Vec<_>, _>>().is_ok() {
            ranges.iter().for_each(|range| self.note_read(range));
            match self.with_present(&ranges, || self.local.image.read_many(runs)) {
                Ok(results) => return results,
                // Each run alone would wait once more.
                Err(Failure::Late) => {
                    let late = |range: &Range<u64>| {
                        let count = range.end - range.start;
                        Err(Failure::Late.of(Operation::Read, range.start, count))
                    };
                    return ranges.iter().map(late).collect();
                }
                Err(_) => {}
            }
        }
        // Each run has an outcome of its own.
        let each = runs.iter_mut().map(|run| run.read_by(|address, to| self.read(address, to)));
        each.collect()
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let shape = self.local.shape;
        let count = parts.iter().map(|part| part.len() as u64).sum();
        self.geometry.check_range(Operation::Write, address, count)?;
        let regions = shape.regions_of(address, count);
        loop {
            let access = self.access.read();
            let mut state = self.state.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone().of(Operation::Write, address, count));
            }
            if regions.clone().all(|region| state.ahead.contains(region as usize)) {
                let unsaved = state.unsaved(shape, address..address + count);
                if !unsaved.is_empty() {
                    drop(state);
                    self.save_frozen(&unsaved)?;
                    continue;
                }
                dirty::add(&mut state.open, shape, address..address + count);
                let before = state.written;
                state.written += count;
                let is_much = before < state.early && state.written >= state.early;
                drop(state);
                if is_much {
                    self.demand.hasten();
                }
                return self.local.image.write(address, parts, stream);
            }
            drop(state);
            drop(access);
            self.prepare(regions.clone())
                .map_err(|failure| failure.of(Operation::Write, address, count))?;
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.local.flush()?;
        let uploaded = match self.durability {
            Durability::Local => Ok(()),
            Durability::Remote if mutated(Mutant::FlushedBeforeUpload) => Ok(()),
            Durability::Remote => self.ask(false),
        };
        match uploaded.err().or_else(|| self.failure()) {
            Some(failure) => Err(failure.of(Operation::Flush, 0, 0)),
            None => Ok(()),
        }
    }

    /// Flushes the local cache: the store has states that the device has had, one after the other, so that its order is never another one.
    fn order(&self) -> Result<bool, DeviceError> {
        self.local.flush()?;
        let state = self.state.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone().of(Operation::Flush, 0, 0)),
            None => Ok(self.durability == Durability::Local || state.is_uploaded()),
        }
    }

    /// Discards the regions that lie in the range as a whole.
    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.geometry.check_range(Operation::Discard, address, count)?;
        let (shape, end) = (self.local.shape, address + count);
        let last = match end == shape.volume_blocks {
            true => shape.regions(),
            false => end / shape.region_blocks,
        };
        let regions = address.div_ceil(shape.region_blocks)..last;
        if regions.is_empty() { Ok(()) } else { self.discard_regions(regions) }
    }
}
