//! Fault injection: a device that fails the requests that a test selects.
//!
//! A failed request returns `EIO` and never reaches the inner device. Corruption of reads flips one
//! bit in the returned copy; the inner device keeps the correct data.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::block::{BLOCK_SIZE, Block};
use crate::device::{Device, Stream};
use crate::error::{DeviceError, Operation};
use crate::geometry::Geometry;

/// Bit that corruption inverts in the last byte of a block. A check of the block's first bytes alone
/// does not detect it.
const FLIPPED_BIT: u8 = 0x01;

/// Device that forwards requests, except the requests that a test selects to fail.
pub struct FaultyDevice<D> {
    inner: D,
    reads: FaultTrigger,
    writes: FaultTrigger,
    flushes: FaultTrigger,
    discards: FaultTrigger,
    corrupt: Mutex<Vec<Range<u64>>>,
    unreadable: Mutex<Vec<Range<u64>>>,
}

/// Decides which requests of one kind fail.
#[derive(Default)]
struct FaultTrigger {
    /// Number of requests up to and including the one that fails; zero if none will fail.
    countdown: AtomicU64,
    /// `true` if all later requests fail, too.
    stays: AtomicBool,
    /// `true` while every request fails.
    always: AtomicBool,
}

impl FaultTrigger {
    /// Counts one request and returns whether this request fails.
    fn fires(&self) -> bool {
        let before = self
            .countdown
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let is_nth = before == Ok(1);
        if is_nth && self.stays.load(Ordering::SeqCst) {
            self.always.store(true, Ordering::SeqCst);
        }
        is_nth || self.always.load(Ordering::SeqCst)
    }

    fn set(&self, nth: u64, stays: bool) {
        self.stays.store(stays, Ordering::SeqCst);
        self.countdown.store(nth, Ordering::SeqCst);
    }
}

impl<D: Device> FaultyDevice<D> {
    /// Wraps `inner` without any fault.
    pub fn new(inner: D) -> FaultyDevice<D> {
        FaultyDevice {
            inner,
            reads: FaultTrigger::default(),
            writes: FaultTrigger::default(),
            flushes: FaultTrigger::default(),
            discards: FaultTrigger::default(),
            corrupt: Mutex::default(),
            unreadable: Mutex::default(),
        }
    }

    /// Returns the inner device, which has no faults.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Fails one request: the `nth` of its kind after this call. An `nth` of 1 is the next request; 0 removes
    /// the fault.
    ///
    /// # Panics
    ///
    /// For [`Operation::Open`], which is not a request to an open device.
    pub fn fail_nth(&self, operation: Operation, nth: u64) {
        self.trigger(operation).set(nth, false);
    }

    /// Fails the `nth` request of its kind after this call and all later ones. An `nth` of 1 is the next request.
    ///
    /// # Panics
    ///
    /// For [`Operation::Open`], which is not a request to an open device.
    pub fn fail_from(&self, operation: Operation, nth: u64) {
        self.trigger(operation).set(nth, true);
    }

    /// Fails every request of this kind while `fail` is `true`.
    ///
    /// # Panics
    ///
    /// For [`Operation::Open`], which is not a request to an open device.
    pub fn fail_all(&self, operation: Operation, fail: bool) {
        self.trigger(operation).always.store(fail, Ordering::SeqCst);
    }

    /// Flips one bit in every block of `addresses` that is read; the stored data is not changed.
    pub fn corrupt_reads(&self, addresses: Range<u64>) {
        self.corrupt.lock().push(addresses);
    }

    /// Fails every read of a block of `addresses`, as a card does after an uncorrectable error.
    pub fn fail_reads(&self, addresses: Range<u64>) {
        self.unreadable.lock().push(addresses);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        for trigger in [&self.reads, &self.writes, &self.flushes, &self.discards] {
            trigger.set(0, false);
            trigger.always.store(false, Ordering::SeqCst);
        }
        self.corrupt.lock().clear();
        self.unreadable.lock().clear();
    }

    fn trigger(&self, operation: Operation) -> &FaultTrigger {
        match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
            Operation::Flush => &self.flushes,
            Operation::Discard => &self.discards,
            Operation::Open => panic!("a device is open already"),
        }
    }

    /// Counts the request, and returns the injected error if the request has to fail.
    fn admit(&self, operation: Operation, address: u64, count: u64) -> Result<(), DeviceError> {
        let is_bad = |range: &Range<u64>| range.start < address + count && address < range.end;
        let is_unreadable =
            operation == Operation::Read && self.unreadable.lock().iter().any(is_bad);
        if self.trigger(operation).fires() || is_unreadable {
            let source = io::Error::from_raw_os_error(libc::EIO);
            return Err(DeviceError::of_blocks(operation, address, count, source));
        }
        Ok(())
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        self.inner.refresh_block_count()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.admit(Operation::Read, address, buffer.len() as u64)?;
        self.inner.read(address, buffer)?;
        let corrupt = self.corrupt.lock();
        for (address, block) in (address..).zip(buffer) {
            if corrupt.iter().any(|range| range.contains(&address)) {
                block.0[BLOCK_SIZE - 1] ^= FLIPPED_BIT;
            }
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let block_count = parts.iter().map(|part| part.len() as u64).sum();
        self.admit(Operation::Write, address, block_count)?;
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.admit(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.admit(Operation::Discard, address, count)?;
        self.inner.discard(address, count)
    }
}

#[cfg(test)]
mod tests;
