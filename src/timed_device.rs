//! A device that measures how long writing takes, to notice that it becomes slow.
//!
//! The core has no clock, so the measurement is made here. A measurement covers 64 MiB and the flushes among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, FileDevice, Geometry, Stream};

/// Bytes of a measurement.
const BYTES: u64 = 64 << 20;

/// A device with measurements of its writes.
pub(crate) struct TimedDevice {
    device: Arc<FileDevice>,
    pace: Mutex<Pace>,
}

/// Writes since the last measurement.
#[derive(Debug, Default)]
struct Pace {
    bytes: u64,
    time: Duration,
    /// Microseconds for a MiB in the measurements that nobody has taken yet.
    measured: Vec<u32>,
}

impl TimedDevice {
    pub(crate) fn new(device: Arc<FileDevice>) -> Self {
        Self { device, pace: Mutex::default() }
    }

    /// Returns the measurements since the last call, in microseconds for a MiB.
    pub(crate) fn take_measurements(&self) -> Vec<u32> {
        std::mem::take(&mut self.pace.lock().measured)
    }

    /// Does `request` and adds its time, and `bytes` that it writes.
    fn timed(
        &self,
        bytes: usize,
        request: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let begin = Instant::now();
        let outcome = request();
        let time = begin.elapsed();
        self.pace.lock().add(bytes as u64, time);
        outcome
    }
}

impl Pace {
    fn add(&mut self, bytes: u64, time: Duration) {
        self.bytes += bytes;
        self.time += time;
        // A measurement ends with a flush: until then the device may hold writes in its cache.
        if bytes == 0 && self.bytes >= BYTES {
            let micros = self.time.as_micros() * (1 << 20) / u128::from(self.bytes);
            self.measured.push(u32::try_from(micros).unwrap_or(u32::MAX));
            (self.bytes, self.time) = (0, Duration::ZERO);
        }
    }
}

impl Device for TimedDevice {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        self.device.refresh_block_count()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.device.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        let blocks: usize = parts.iter().map(|part| part.len()).sum();
        self.timed(blocks * BLOCK_SIZE, || self.device.write(address, parts, stream))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.timed(0, || self.device.flush())
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.device.discard(address, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_covers_64_mib_and_ends_with_a_flush() {
        let mut pace = Pace::default();
        for _ in 0..63 {
            pace.add(1 << 20, Duration::from_millis(10));
        }
        pace.add(0, Duration::from_millis(10));
        assert!(pace.measured.is_empty());
        pace.add(1 << 20, Duration::from_millis(10));
        assert!(pace.measured.is_empty());
        pace.add(0, Duration::from_millis(630));
        assert_eq!(pace.measured, [20_000]);
        pace.add(0, Duration::from_secs(1));
        assert_eq!(pace.measured, [20_000], "nothing was written");
    }
}
