//! A device that measures how long writing takes, to notice that it becomes slow.
//!
//! The core has no clock, so the measurement is made here. A measurement covers 64 MiB and the flushes among them. One with many
//! requests does not count: their delays, above all those of flushes, would look like a slow device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, FileDevice, Geometry, ReadRun, Stream};

/// Bytes of a measurement.
const BYTES: u64 = 64 << 20;

/// Largest number of writes and flushes in a measurement: 256 KiB each on average.
const REQUESTS_MAX: u32 = (BYTES >> 18) as u32;

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
    requests: u32,
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
        self.requests = self.requests.saturating_add(1);
        // A measurement ends with a flush: until then the device may hold writes in its cache.
        if bytes == 0 && self.bytes >= BYTES {
            let micros = self.time.as_micros() * (1 << 20) / u128::from(self.bytes);
            if self.requests <= REQUESTS_MAX {
                self.measured.push(u32::try_from(micros).unwrap_or(u32::MAX));
            }
            (self.bytes, self.time, self.requests) = (0, Duration::ZERO, 0);
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

    fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
        self.device.read_many(runs)
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

    /// A database that syncs every few blocks is no sign of a slow device.
    #[test]
    fn many_flushes_are_not_measured() {
        let mut pace = Pace::default();
        for _ in 0..(BYTES >> 14) {
            pace.add(1 << 14, Duration::from_millis(1));
            pace.add(0, Duration::from_millis(10));
        }
        assert!(pace.measured.is_empty());
        pace.add(BYTES, Duration::from_millis(640));
        pace.add(0, Duration::from_millis(640));
        assert_eq!(pace.measured, [20_000]);
    }
}
