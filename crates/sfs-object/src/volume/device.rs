//! The object volume as a [`Device`].

use std::ops::Range;

use sfs_device::{Block, Device, DeviceError, Geometry, Operation, ReadRun, Stream};

use super::{Durability, ObjectDevice, State, dirty};
use crate::mutant::{Mutant, mutated};
use crate::store::ObjectStore;

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Calls `read` once the image holds all of `ranges`, which stays so during the call.
    fn with_present<T>(
        &self,
        ranges: &[Range<u64>],
        read: impl FnOnce() -> T,
    ) -> Result<T, super::Failure> {
        let shape = self.local.shape;
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
            self.fill(ranges)?;
        }
    }

    /// Saves what a write is about to change in regions that are being uploaded.
    fn save_frozen(&self, state: &mut State, blocks: Range<u64>) -> Result<(), DeviceError> {
        let shape = self.local.shape;
        let Some(frozen) = &mut state.frozen else { return Ok(()) };
        for block in blocks {
            let is_unread = frozen.unread.contains(&(block / shape.region_blocks));
            if is_unread && !frozen.saved.contains_key(&block) && !mutated(Mutant::OldBlocksUnsaved)
            {
                let mut old = Box::new(Block::ZERO);
                self.local.image.read(block, std::slice::from_mut(&mut *old))?;
                frozen.saved.insert(block, old);
            }
        }
        Ok(())
    }

    /// Discards whole regions.
    fn discard_regions(&self, regions: Range<u64>) -> Result<(), DeviceError> {
        let shape = self.local.shape;
        let _access = self.access.write();
        let mut state = self.state.lock();
        for region in regions {
            let is_frozen =
                state.frozen.as_ref().is_some_and(|frozen| frozen.unread.contains(&region));
            let is_known = state.map.has(region)
                || state.unjoined.contains(&region)
                || state.ahead.contains(region as usize);
            if is_frozen || !is_known || state.busy.contains(&region) {
                continue;
            }
            let blocks = shape.blocks(region);
            state.open.remove(&region);
            state.discarded.insert(region);
            state.add_pages(shape.pages_of(blocks.clone()));
            self.local.image.discard(blocks)?;
        }
        Ok(())
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
        self.with_present(&[range], || self.local.image.read(address, buffer))
            .map_err(|failure| failure.of(Operation::Read, address, count))?
    }

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        let range = |run: &ReadRun<'_>| run.address..run.address + run.block_count();
        let ranges = runs.iter().map(range).collect::<Vec<_>>();
        let checks = ranges.iter().map(|range| {
            self.geometry.check_range(Operation::Read, range.start, range.end - range.start)
        });
        if checks.collect::<Result<Vec<_>, _>>().is_ok()
            && let Ok(results) = self.with_present(&ranges, || self.local.image.read_many(runs))
        {
            return results;
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
            let _access = self.access.read();
            let mut state = self.state.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone().of(Operation::Write, address, count));
            }
            if regions.clone().all(|region| state.ahead.contains(region as usize)) {
                self.save_frozen(&mut state, address..address + count)?;
                dirty::add(&mut state.open, shape, address..address + count);
                drop(state);
                return self.local.image.write(address, parts, stream);
            }
            drop(state);
            drop(_access);
            self.prepare(regions.clone())
                .map_err(|failure| failure.of(Operation::Write, address, count))?;
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.local.flush()?;
        let uploaded = match self.durability {
            Durability::Local => Ok(()),
            Durability::Remote if mutated(Mutant::FlushedBeforeUpload) => Ok(()),
            Durability::Remote => self.upload(),
        };
        match uploaded.err().or_else(|| self.failure()) {
            Some(failure) => Err(failure.of(Operation::Flush, 0, 0)),
            None => Ok(()),
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
