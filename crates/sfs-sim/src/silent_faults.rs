//! A device with silent faults: writes that are acknowledged, but lost, torn, misdirected or
//! duplicated.
//!
//! One write at a time can be selected for a fault; all other requests are correct. The device can also
//! shrink, or run out of space as a sparse image on a full filesystem does. In these two cases requests fail
//! with an error.

use std::io;

use parking_lot::Mutex;
use sfs_device::{Block, Device, DeviceError, Geometry, Operation, Stream};

use crate::image::CowImage;

/// Silent fault of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentFault {
    /// The write is acknowledged, but not performed.
    Lost,
    /// Only the first half of the write is performed.
    Half,
    /// The write goes to blocks this far after its own, and wraps around before the end of the
    /// device.
    Misdirected(u64),
    /// The write is performed, and performed again at blocks this far after its own, wrapping
    /// around.
    Duplicated(u64),
}

/// Image with at most one silent fault at a time.
pub struct SilentFaultDevice {
    inner: CowImage,
    limits: Mutex<DeviceLimits>,
}

struct DeviceLimits {
    /// Fault to come, and the number of writes until then; 1 is the next write.
    fault: Option<(u64, SilentFault)>,
    /// Number of blocks that are still accessible.
    accessible_blocks: u64,
    /// Number of blocks that can still be written before the file beneath is full.
    writable_blocks: u64,
}

impl SilentFaultDevice {
    /// Makes a device without faults on `inner`.
    pub fn new(inner: CowImage) -> Self {
        let accessible_blocks = inner.geometry().block_count;
        let limits = DeviceLimits { fault: None, accessible_blocks, writable_blocks: u64::MAX };
        Self { inner, limits: Mutex::new(limits) }
    }

    /// Returns a copy of the content.
    pub fn image(&self) -> CowImage {
        self.inner.clone()
    }

    /// Makes the `nth` write from now on faulty; 1 is the next write.
    pub fn inject(&self, nth: u64, fault: SilentFault) {
        self.limits.lock().fault = Some((nth, fault));
    }

    /// Makes only the first `blocks` blocks accessible; the reported geometry does not change.
    pub fn shrink(&self, blocks: u64) {
        self.limits.lock().accessible_blocks = blocks;
    }

    /// Makes writes fail with ENOSPC after `blocks` more blocks were written.
    pub fn fill(&self, blocks: u64) {
        self.limits.lock().writable_blocks = blocks;
    }

    /// Refuses a request beyond the accessible blocks.
    fn check_accessible(
        &self,
        operation: Operation,
        address: u64,
        count: u64,
    ) -> Result<(), DeviceError> {
        let block_count = self.limits.lock().accessible_blocks;
        Geometry { block_count, ..Geometry::default() }
            .check_range(operation, address, count)
            .map_err(|error| error_of(error, io::ErrorKind::Other))
    }

    fn take_writable(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        let mut limits = self.limits.lock();
        match limits.writable_blocks.checked_sub(count) {
            Some(remaining) => {
                limits.writable_blocks = remaining;
                Ok(())
            }
            None => {
                let full = io::Error::from(io::ErrorKind::StorageFull);
                Err(DeviceError::of_blocks(Operation::Write, address, count, full))
            }
        }
    }

    /// Counts a write and returns its fault, if it has one.
    fn next_fault(&self) -> Option<SilentFault> {
        let mut limits = self.limits.lock();
        let (nth, fault) = limits.fault?;
        limits.fault = (nth > 1).then_some((nth - 1, fault));
        (nth == 1).then_some(fault)
    }
}

/// Replaces the source of `error` by an error of `kind`.
fn error_of(error: DeviceError, kind: io::ErrorKind) -> DeviceError {
    DeviceError { source: io::Error::from(kind), ..error }
}

impl Device for SilentFaultDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.check_accessible(Operation::Read, address, buffer.len() as u64)?;
        self.inner.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let content = parts.concat();
        let count = content.len() as u64;
        self.check_accessible(Operation::Write, address, count)?;
        self.take_writable(address, count)?;
        let end = self.inner.geometry().block_count;
        let elsewhere = |by: u64| (address + by) % (end - count);
        let put = |at, content: &[Block]| self.inner.write(at, &[content], stream);
        match self.next_fault() {
            None => put(address, &content),
            Some(SilentFault::Lost) => Ok(()),
            Some(SilentFault::Half) => put(address, &content[..content.len() / 2]),
            Some(SilentFault::Misdirected(by)) => put(elsewhere(by), &content),
            Some(SilentFault::Duplicated(by)) => {
                put(address, &content)?;
                put(elsewhere(by), &content)
            }
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.check_accessible(Operation::Discard, address, count)?;
        self.inner.discard(address, count)
    }
}
