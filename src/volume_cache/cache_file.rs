//! The device of a cache, which is free for other programs once the cache is detached.

use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::{Block, Device, DeviceError, FileDevice, Geometry, Operation, ReadRun, Stream};

/// Device that can be closed while others refer to it.
pub(super) struct CacheFile {
    geometry: Geometry,
    file: Mutex<Option<Arc<FileDevice>>>,
}

impl CacheFile {
    /// Takes the device over.
    pub(super) fn new(file: FileDevice) -> Self {
        Self { geometry: file.geometry().clone(), file: Mutex::new(Some(Arc::new(file))) }
    }

    /// Closes the device when the requests in flight are done. Later ones fail.
    pub(super) fn release(&self) {
        self.file.lock().take();
    }

    /// Makes the rings by which the device is read.
    pub(super) fn make_read_rings(&self, count: usize) {
        if let Some(file) = &*self.file.lock() {
            file.make_read_rings(count);
        }
    }

    fn file(&self, operation: Operation, address: u64) -> Result<Arc<FileDevice>, DeviceError> {
        let gone = || std::io::Error::other("the cache was detached");
        let file = self.file.lock().clone();
        file.ok_or_else(|| DeviceError::of_blocks(operation, address, 0, gone()))
    }
}

impl Device for CacheFile {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        self.file(Operation::Read, 0)?.refresh_block_count()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.file(Operation::Read, address)?.read(address, buffer)
    }

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        match self.file(Operation::Read, 0) {
            Ok(file) => file.read_many(runs),
            Err(_) => {
                let failed = |run: &ReadRun<'_>| self.file(Operation::Read, run.address).map(drop);
                runs.iter().map(failed).collect()
            }
        }
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.file(Operation::Write, address)?.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file(Operation::Flush, 0)?.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.file(Operation::Discard, address)?.discard(address, count)
    }
}
