//! A local cache that fails from some request on, and of which a discard leaves what a device may leave.

use std::sync::atomic::{AtomicU64, Ordering};

use sfs_device::{
    Block, Device, DeviceError, Event, Geometry, Keep, Operation, RamDevice, RecordingDevice,
    Stream,
};

use super::model::content;

/// Stamp of blocks that a discard leaves: no write has it.
const GARBAGE: u64 = 1 << 60;

/// Content of discarded blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discards {
    Zeros,
    /// The old content.
    Nothing,
    Garbage,
}

/// The local cache as one life of a program sees it.
pub(crate) struct MortalCache {
    inner: RecordingDevice<RamDevice>,
    /// Block of the cache at which the image begins.
    image: u64,
    discards: Discards,
    /// Requests other than reads until every request fails.
    requests_left: AtomicU64,
}

impl MortalCache {
    pub(crate) fn new(base: &RamDevice, image: u64, discards: Discards) -> Self {
        let inner = RecordingDevice::new(base.snapshot(), Keep::Contents);
        Self { inner, image, discards, requests_left: AtomicU64::new(u64::MAX) }
    }

    /// Lets one of the next requests fail, and all after it.
    pub(crate) fn set_requests(&self, requests: u64) {
        self.requests_left.store(requests, Ordering::Relaxed);
    }

    /// Returns whether requests have begun to fail.
    pub(crate) fn is_dead(&self) -> bool {
        self.requests_left.load(Ordering::Relaxed) == 0
    }

    /// Returns what was changed in this life.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        self.inner.take_events()
    }

    fn count(&self, operation: Operation, requests: u64) -> Result<(), DeviceError> {
        let count = |left: u64| left.checked_sub(requests);
        let before = self.requests_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        if before.is_ok() && !self.is_dead() {
            return Ok(());
        }
        Err(DeviceError::of_blocks(operation, 0, 0, std::io::Error::other("the cache has failed")))
    }
}

impl Device for MortalCache {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.count(Operation::Read, 0)?;
        self.inner.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.count(Operation::Write, 1)?;
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.count(Operation::Flush, 1)?;
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.count(Operation::Discard, 1)?;
        match self.discards {
            Discards::Zeros => self.inner.discard(address, count),
            Discards::Nothing => Ok(()),
            Discards::Garbage => {
                let garbage = content(GARBAGE, address - self.image, count);
                self.inner.write(address, &[&garbage], Stream::default())
            }
        }
    }
}
