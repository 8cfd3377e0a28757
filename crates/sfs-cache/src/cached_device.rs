//! A disk with a cache, as one device.

use std::sync::Arc;

use sfs_device::{Block, Copies, Device, DeviceError, Geometry, ReadRun, Stream};

use crate::cache::Cache;
use crate::mutant::{Mutant, mutated};

/// A disk whose blocks are cached. Every request goes to the disk alone; a caller that can verify what it reads asks
/// [`Device::copies`] first. A write waits for the disk only.
pub struct CachedDevice {
    disk: Arc<dyn Device>,
    cache: Arc<Cache>,
}

impl CachedDevice {
    /// Joins a disk and its cache.
    pub fn new(disk: Arc<dyn Device>, cache: Arc<Cache>) -> Self {
        Self { disk, cache }
    }

    /// Forgets the copies of the blocks before and after `request` changes them: a reader that has read them in between may
    /// offer the old content.
    fn change(
        &self,
        (address, count): (u64, u64),
        keeps: Mutant,
        request: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let range = address..address.saturating_add(count);
        if !mutated(keeps) {
            self.cache.note_write(range.clone());
        }
        let outcome = request();
        if !mutated(keeps) {
            self.cache.note_write(range);
        }
        outcome
    }
}

impl Device for CachedDevice {
    fn geometry(&self) -> &Geometry {
        self.disk.geometry()
    }

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        self.disk.refresh_block_count()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.disk.read(address, buffer)
    }

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        self.disk.read_many(runs)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let count = parts.iter().map(|part| part.len() as u64).sum();
        self.change((address, count), Mutant::WriteKeepsCopy, || {
            self.disk.write(address, parts, stream)
        })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.disk.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.change((address, count), Mutant::DiscardKeepsCopy, || {
            self.disk.discard(address, count)
        })
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&*self.cache)
    }
}
