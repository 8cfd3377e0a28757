//! A device whose requests a test can block or delay, to observe other threads meanwhile.
//!
//! While the gate is closed for one kind of request, requests of this kind block before they reach the
//! inner device. A request itself and its result are never changed.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::block::Block;
use crate::device::{Device, Stream};
use crate::error::{DeviceError, Operation};
use crate::geometry::Geometry;

/// Device that forwards requests, and can block or delay the requests of one kind.
pub struct GatedDevice<D> {
    inner: D,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    /// Kind of the requests that are blocked.
    closed: Option<Operation>,
    /// Number of requests that are blocked now.
    waiting: usize,
    /// Kind of the requests that are delayed, and the delay.
    slow: Option<(Operation, Duration)>,
}

impl<D: Device> GatedDevice<D> {
    /// Wraps `inner` with an open gate and without a delay.
    pub fn new(inner: D) -> GatedDevice<D> {
        GatedDevice { inner, gate: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns the inner device, which neither blocks nor delays.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Blocks requests of this kind from now on; requests of all other kinds pass.
    pub fn close(&self, operation: Operation) {
        self.gate.lock().closed = Some(operation);
    }

    /// Opens the gate and releases all blocked requests.
    pub fn open(&self) {
        self.gate.lock().closed = None;
        self.changed.notify_all();
    }

    /// Waits until a request is blocked at the gate, or the gate is open.
    pub fn wait_until_reached(&self) {
        let mut gate = self.gate.lock();
        self.changed.wait_while(&mut gate, |gate| gate.closed.is_some() && gate.waiting == 0);
    }

    /// Delays requests of this kind by `by` from now on; a delay of another kind ends.
    pub fn slow_down(&self, operation: Operation, by: Duration) {
        self.gate.lock().slow = Some((operation, by));
    }

    fn pass(&self, operation: Operation) {
        let mut gate = self.gate.lock();
        if gate.closed == Some(operation) {
            gate.waiting += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut gate, |gate| gate.closed == Some(operation));
            gate.waiting -= 1;
        }
        let slow = gate.slow.filter(|(slow, _)| *slow == operation);
        drop(gate);
        if let Some((_, by)) = slow {
            std::thread::sleep(by);
        }
    }
}

impl<D: Device> Device for GatedDevice<D> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        self.inner.refresh_block_count()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.pass(Operation::Read);
        self.inner.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.pass(Operation::Write);
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.pass(Operation::Flush);
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.pass(Operation::Discard);
        self.inner.discard(address, count)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::{Keep, RamDevice, RecordingDevice};

    #[test]
    fn a_closed_gate_blocks_requests_of_one_kind() {
        let inner = RecordingDevice::new(RamDevice::new(4), Keep::Counts);
        let device = Arc::new(GatedDevice::new(inner));
        device.close(Operation::Flush);
        let flushing = std::thread::spawn({
            let device = device.clone();
            move || device.flush()
        });
        device.wait_until_reached();
        device.write(0, &[&[Block([1; 4096])]], Stream::default()).expect("writes pass the gate");
        assert_eq!(device.inner().counts().flushes, 0);
        assert!(!flushing.is_finished());
        device.open();
        flushing.join().expect("no panic").expect("a flush");
        assert_eq!(device.inner().counts().flushes, 1);
    }

    #[test]
    fn a_delayed_request_takes_at_least_the_delay() {
        let device = GatedDevice::new(RamDevice::new(4));
        let by = Duration::from_millis(20);
        device.slow_down(Operation::Flush, by);
        let begun = Instant::now();
        device.flush().expect("a flush");
        assert!(begun.elapsed() >= by);
    }
}
