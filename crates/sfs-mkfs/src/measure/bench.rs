//! Passes of timed requests within the limits of a measurement.

use sfs_device::{BLOCK_SIZE, DeviceError};

use super::area::Area;
use super::evidence::{RequestTimes, are_even};
use super::probe::Probe;
use super::{Budget, FILL_PART, MeasureProgressFn};

/// Divisor of the largest request for the requests that fill the area. They must be smaller than an erase block to show
/// that some pay for a cleaning and others do not, and large enough for the full speed.
const FILL_SIZE_PART: u64 = 8;

/// A probe with the time and bytes that it has used.
pub(super) struct Bench<'a> {
    probe: &'a mut dyn Probe,
    budget: Budget,
    progress: MeasureProgressFn<'a>,
    elapsed_ns: u64,
    written_bytes: u64,
}

impl<'a> Bench<'a> {
    /// Creates a bench that has used nothing.
    pub(super) fn new(
        probe: &'a mut dyn Probe,
        budget: Budget,
        progress: MeasureProgressFn<'a>,
    ) -> Self {
        Self { probe, budget, progress, elapsed_ns: 0, written_bytes: 0 }
    }

    /// Returns the device time of all requests, in nanoseconds.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }

    /// Returns the bytes of all requests.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns whether the time has not run out.
    pub(super) fn has_time(&self) -> bool {
        self.elapsed_ns < self.budget.total_ns
    }

    /// Writes the area once, in order, or a part of the area if the device is slow. Returns the
    /// area that was written, and whether the requests took similar times.
    pub(super) fn fill(&mut self, area: Area) -> Result<(Area, bool), DeviceError> {
        let patience_ns = self.budget.total_ns / FILL_PART;
        let size = area.size_max / FILL_SIZE_PART;
        let mut times_ns = Vec::new();
        let filled = self.pass(size, area.in_order(size), |filled| {
            times_ns.push(filled.last_ns);
            filled.elapsed_ns > patience_ns
        })?;
        Ok((area.first(filled.bytes), are_even(times_ns)))
    }

    /// Writes requests of `size` bytes at `blocks`, until there are no more, the time has run out, or `ends` returns
    /// `true` after a request.
    pub(super) fn pass(
        &mut self,
        size: u64,
        blocks: impl IntoIterator<Item = u64>,
        ends: impl FnMut(&Pass) -> bool,
    ) -> Result<Pass, DeviceError> {
        self.more(Pass::default(), size, blocks, ends)
    }

    /// Goes on with `pass`, like [`Bench::pass`].
    pub(super) fn more(
        &mut self,
        mut pass: Pass,
        size: u64,
        blocks: impl IntoIterator<Item = u64>,
        mut ends: impl FnMut(&Pass) -> bool,
    ) -> Result<Pass, DeviceError> {
        for block in blocks {
            let took_ns = self.probe.write(block, size / BLOCK_SIZE as u64)?;
            pass.times.add(took_ns);
            pass.elapsed_ns += took_ns;
            pass.bytes += size;
            pass.last_ns = took_ns;
            self.elapsed_ns += took_ns;
            self.written_bytes += size;
            (self.progress)((self.elapsed_ns * 1000 / self.budget.total_ns).min(1000));
            if !self.has_time() || ends(&pass) {
                break;
            }
        }
        Ok(pass)
    }
}

/// Outcome of a pass.
#[derive(Clone, Copy, Default)]
pub(super) struct Pass {
    pub(super) bytes: u64,
    pub(super) elapsed_ns: u64,
    /// Time of the last request, in nanoseconds.
    pub(super) last_ns: u64,
    pub(super) times: RequestTimes,
}

impl Pass {
    /// Returns the throughput in kB/s.
    pub(super) fn kb_per_s(&self) -> u64 {
        (u128::from(self.bytes) * 1_000_000 / u128::from(self.elapsed_ns.max(1))) as u64
    }
}
