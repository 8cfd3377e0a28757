//! A device that fails on command.
//!
//! Owns: the faults to come.
//! Promises: a request that fails does not reach the device inside; the error is `EIO`.
//! Never: fails what it was not told to.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{Block, Device, DeviceError, Geometry, Operation, Stream};

/// The bit of a corrupted block's last byte that comes back inverted. The last, so that a check
/// of the block's head alone does not find it.
const FLIPPED_BIT: u8 = 0x01;

/// A device that passes requests on until it is told to fail.
pub struct FaultyDevice<D> {
    inner: D,
    reads: Fault,
    writes: Fault,
    flushes: Fault,
    discards: Fault,
    corrupt: Mutex<Vec<Range<u64>>>,
    unreadable: Mutex<Vec<Range<u64>>>,
}

/// What will become of the requests of one kind.
#[derive(Default)]
struct Fault {
    /// Fails when it counts down to zero; zero is off.
    countdown: AtomicU64,
    always: AtomicBool,
}

impl Fault {
    /// Counts one request; whether it must fail.
    fn strikes(&self) -> bool {
        let before = self
            .countdown
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        before == Ok(1) || self.always.load(Ordering::SeqCst)
    }
}

impl<D: Device> FaultyDevice<D> {
    /// A device without faults.
    pub fn new(inner: D) -> FaultyDevice<D> {
        FaultyDevice {
            inner,
            reads: Fault::default(),
            writes: Fault::default(),
            flushes: Fault::default(),
            discards: Fault::default(),
            corrupt: Mutex::default(),
            unreadable: Mutex::default(),
        }
    }

    /// The device inside, which has no faults.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Fails one request: the `nth` of its kind from now on. One is the next; zero is none.
    ///
    /// # Panics
    ///
    /// For [`Operation::Open`], which is no request.
    pub fn fail_nth(&self, operation: Operation, nth: u64) {
        self.fault(operation).countdown.store(nth, Ordering::SeqCst);
    }

    /// Fails every request of this kind from now on, or no longer.
    ///
    /// # Panics
    ///
    /// For [`Operation::Open`], which is no request.
    pub fn fail_all(&self, operation: Operation, fail: bool) {
        self.fault(operation).always.store(fail, Ordering::SeqCst);
    }

    /// Flips a bit in every block of `addresses` each time it is read; the medium is unharmed.
    pub fn corrupt_reads(&self, addresses: Range<u64>) {
        self.corrupt.lock().push(addresses);
    }

    /// Fails every read of a block of `addresses`, as a card does that cannot correct it.
    pub fn fail_reads(&self, addresses: Range<u64>) {
        self.unreadable.lock().push(addresses);
    }

    /// Takes all faults away.
    pub fn heal(&self) {
        for fault in [&self.reads, &self.writes, &self.flushes, &self.discards] {
            fault.countdown.store(0, Ordering::SeqCst);
            fault.always.store(false, Ordering::SeqCst);
        }
        self.corrupt.lock().clear();
        self.unreadable.lock().clear();
    }

    fn fault(&self, operation: Operation) -> &Fault {
        match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
            Operation::Flush => &self.flushes,
            Operation::Discard => &self.discards,
            Operation::Open => panic!("a device is open already"),
        }
    }

    fn strike(&self, operation: Operation, address: u64, count: u64) -> Result<(), DeviceError> {
        let is_bad = |range: &Range<u64>| range.start < address + count && address < range.end;
        let is_unreadable =
            operation == Operation::Read && self.unreadable.lock().iter().any(is_bad);
        if self.fault(operation).strikes() || is_unreadable {
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

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.strike(Operation::Read, address, buffer.len() as u64)?;
        self.inner.read(address, buffer)?;
        let corrupt = self.corrupt.lock();
        for (address, block) in (address..).zip(buffer) {
            if corrupt.iter().any(|range| range.contains(&address)) {
                block.0[crate::BLOCK_SIZE - 1] ^= FLIPPED_BIT;
            }
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let block_count = parts.iter().map(|part| part.len() as u64).sum();
        self.strike(Operation::Write, address, block_count)?;
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.strike(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.strike(Operation::Discard, address, count)?;
        self.inner.discard(address, count)
    }
}

#[cfg(test)]
mod tests;
