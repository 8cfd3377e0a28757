//! Measurement of a device's erase block size by timing writes.
//!
//! The measurement is that of the FAST 2009 paper, section 4.1. The search finds the request size from
//! which random writes are as fast as sequential ones, and goes from large requests to small ones.
//! So every pass but the last is as fast as the device can be, and the device has no postponed work
//! when the answer is found.
//!
//! A measurement is bounded in bytes and time. A size is the answer only if random writes of this
//! size are as fast as sequential ones, and random writes of half the size are slower in two
//! attempts. A pass of random writes ends as soon as it is clearly slow, and what was clear before the
//! time ran out counts. Otherwise the measurement says what it lacks ([`Unclear`]). The caller decides whether the device may be written.

mod evidence;
mod probe;
mod result;

use sfs_device::{BLOCK_SIZE, DeviceError};

pub use probe::{DeviceProbe, Probe};
pub use result::{Measurement, ThroughputRow, Unclear};

use evidence::RequestTimes;

/// Largest and smallest request, in bytes. The clustered blocks of the papers' devices have 4 to 32
/// MiB.
const SIZE_MAX: u64 = 64 << 20;
const SIZE_MIN: u64 = 128 << 10;

/// Minimum number of requests of the largest size in a pass.
const REQUESTS_MIN: u64 = 8;

/// Share of the sequential throughput from which random writes count as fast. The paper compares
/// whole MB/s; noise of 20% in each of 16 requests moves the ratio by 4%.
const CLOSE_PERCENT: u64 = 88;

/// Number of attempts that must be slow for a size to count as slow.
const ATTEMPTS: u32 = 2;

/// Multiple of the sequential pass's time after which a random pass is ended.
const PATIENCE: u64 = 4;

/// Divisor of the time budget for one pass.
const PASS_PART: u64 = 16;

/// Limits of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Number of bytes of a pass; must be more than the device can buffer (the paper: 1 GB).
    pub pass_bytes: u64,
    /// Maximum device time of all passes, in nanoseconds.
    pub total_ns: u64,
}

impl Budget {
    /// 1 GiB a pass, a minute and a half in all.
    pub const DEFAULT: Budget = Budget { pass_bytes: 1 << 30, total_ns: 90_000_000_000 };
}

/// Region of a medium to measure.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Number of blocks of the device.
    pub block_count: u64,
    /// Start of the device on the medium, in bytes: requests are aligned on the medium.
    pub partition_start: u64,
}

/// Callback for the progress of a measurement, in thousandths.
pub type MeasureProgressFn<'a> = &'a mut dyn FnMut(u64);

/// Measures a device. The content of the region is overwritten.
///
/// # Errors
///
/// Errors of the device.
pub fn measure(
    probe: &mut dyn Probe,
    region: Region,
    budget: Budget,
    progress: MeasureProgressFn<'_>,
) -> Result<Measurement, DeviceError> {
    let Some(area) = Area::new(region, budget.pass_bytes) else {
        return Ok(Measurement { unclear: Some(Unclear::TooSmall), ..Measurement::default() });
    };
    let mut bench = Measuring { probe, budget, progress, elapsed_ns: 0, written_bytes: 0 };
    let area = bench.fill(area)?;
    let mut rows = Vec::new();
    let found = bench.descend(&area, &mut rows)?;
    Ok(Measurement {
        rows,
        segment_size: found.ok(),
        unclear: found.err(),
        written_bytes: bench.written_bytes,
        elapsed_ms: bench.elapsed_ns / 1_000_000,
    })
}

/// Measures the throughput at every size from `size_min` up, for a model of the device's cost: each
/// size once, the larger ones first.
///
/// # Errors
///
/// Errors of the device.
pub fn sweep(
    probe: &mut dyn Probe,
    region: Region,
    budget: Budget,
    size_min: u64,
) -> Result<Vec<ThroughputRow>, DeviceError> {
    let Some(area) = Area::new(region, budget.pass_bytes) else { return Ok(Vec::new()) };
    let mut bench =
        Measuring { probe, budget, progress: &mut |_| (), elapsed_ns: 0, written_bytes: 0 };
    let area = bench.fill(area)?;
    let mut rows = Vec::new();
    let mut size = area.size_max;
    while size >= size_min && bench.has_time() {
        bench.pass(&area, area.size_max, Order::Sequential, u64::MAX, None)?;
        rows.push(bench.row(&area, size)?);
        size /= 2;
    }
    Ok(rows)
}

/// Range of blocks that is written; its start is aligned on the medium.
#[derive(Clone, Copy)]
struct Area {
    first_block: u64,
    bytes: u64,
    size_max: u64,
}

impl Area {
    /// Returns `None` for a device that is too small for a few requests.
    fn new(region: Region, pass_bytes: u64) -> Option<Area> {
        let block = BLOCK_SIZE as u64;
        let start = region.partition_start.div_ceil(block) * block;
        let mut size_max = SIZE_MAX;
        loop {
            let first = start.next_multiple_of(size_max) - start;
            let room = (region.block_count * block).saturating_sub(first).min(pass_bytes);
            let bytes = room / size_max * size_max;
            if bytes >= REQUESTS_MIN * size_max {
                return Some(Area { first_block: first / block, bytes, size_max });
            }
            if size_max == SIZE_MIN {
                return None;
            }
            size_max /= 2;
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Sequential,
    Random,
}

struct Measuring<'a> {
    probe: &'a mut dyn Probe,
    budget: Budget,
    progress: MeasureProgressFn<'a>,
    elapsed_ns: u64,
    written_bytes: u64,
}

impl Measuring<'_> {
    fn has_time(&self) -> bool {
        self.elapsed_ns < self.budget.total_ns
    }

    /// Writes the area once, in order, or a part of the area if the device is slow. Returns the
    /// area that the passes use.
    fn fill(&mut self, area: Area) -> Result<Area, DeviceError> {
        let patience_ns = self.budget.total_ns / PASS_PART;
        let filled = self.pass(&area, area.size_max, Order::Sequential, patience_ns, None)?;
        let bytes = filled.bytes.max(REQUESTS_MIN * area.size_max).min(area.bytes);
        Ok(Area { bytes, ..area })
    }

    /// Measures from the largest size down to the first that is slow.
    fn descend(
        &mut self,
        area: &Area,
        rows: &mut Vec<ThroughputRow>,
    ) -> Result<Result<u64, Unclear>, DeviceError> {
        let mut size = area.size_max;
        while size >= SIZE_MIN {
            match self.judge(area, size, rows)? {
                Speed::Fast => size /= 2,
                // If the largest size is slow, the answer is above the measured sizes.
                Speed::Slow if size == area.size_max => return Ok(Err(Unclear::AlwaysSlow)),
                Speed::Slow => return Ok(Ok(size * 2)),
                Speed::Unknown => return Ok(Err(Unclear::TimeRanOut { size })),
            }
        }
        Ok(Err(Unclear::NeverSlow))
    }

    /// Judges random writes of a size by up to two attempts: slow writes must be slow in both, because the
    /// device may have postponed work of the pass before. The better sequential throughput counts, since the first
    /// attempt may leave the device slow even for sequential writes. If the time runs out, one attempt is
    /// enough that was clearly slow.
    fn judge(
        &mut self,
        area: &Area,
        size: u64,
        rows: &mut Vec<ThroughputRow>,
    ) -> Result<Speed, DeviceError> {
        let mut sequential_kb_per_s = 0;
        let mut was_clear = false;
        for attempt_no in 1..=ATTEMPTS {
            if !self.has_time() {
                break;
            }
            let Attempt { row, is_clearly_slow, is_whole } = self.attempt(area, size)?;
            rows.push(row);
            sequential_kb_per_s = row.sequential_kb_per_s.max(sequential_kb_per_s);
            if is_clearly_slow {
                was_clear = true;
            } else if !is_whole {
                break;
            } else if row.random_kb_per_s * 100 >= sequential_kb_per_s * CLOSE_PERCENT {
                return Ok(Speed::Fast);
            }
            if attempt_no == ATTEMPTS {
                return Ok(Speed::Slow);
            }
            self.pass(area, area.size_max, Order::Sequential, u64::MAX, None)?;
        }
        Ok(if was_clear { Speed::Slow } else { Speed::Unknown })
    }

    /// Measures sequential and random writes of a size. The random ones end when they are clearly slow.
    fn attempt(&mut self, area: &Area, size: u64) -> Result<Attempt, DeviceError> {
        let sequential = self.pass(area, size, Order::Sequential, u64::MAX, None)?;
        let patience_ns = sequential.elapsed_ns.saturating_mul(PATIENCE);
        let random = self.pass(area, size, Order::Random, patience_ns, Some(&sequential.times))?;
        let row = ThroughputRow {
            size,
            sequential_kb_per_s: sequential.kb_per_s(),
            random_kb_per_s: random.kb_per_s(),
        };
        let is_clearly_slow = random.times.is_slower_than(&sequential.times, CLOSE_PERCENT);
        Ok(Attempt { row, is_clearly_slow, is_whole: self.has_time() })
    }

    /// Measures sequential and random writes of a size, both in whole passes.
    fn row(&mut self, area: &Area, size: u64) -> Result<ThroughputRow, DeviceError> {
        let sequential = self.pass(area, size, Order::Sequential, u64::MAX, None)?;
        let patience_ns = sequential.elapsed_ns.saturating_mul(PATIENCE);
        let random = self.pass(area, size, Order::Random, patience_ns, None)?;
        Ok(ThroughputRow {
            size,
            sequential_kb_per_s: sequential.kb_per_s(),
            random_kb_per_s: random.kb_per_s(),
        })
    }

    /// Writes the area in requests of `size` bytes, until the pass takes longer than `patience_ns`, the time has run
    /// out, or the requests are clearly slower than `sequential` ones.
    fn pass(
        &mut self,
        area: &Area,
        size: u64,
        order: Order,
        patience_ns: u64,
        sequential: Option<&RequestTimes>,
    ) -> Result<Pass, DeviceError> {
        let block = BLOCK_SIZE as u64;
        let count = area.bytes / size;
        let mut pass = Pass::default();
        for no in 0..count {
            let place = if order == Order::Random { scattered(no, count) } else { no };
            let address = area.first_block + place * size / block;
            let took_ns = self.probe.write(address, size / block)?;
            pass.times.add(took_ns);
            pass.elapsed_ns += took_ns;
            pass.bytes += size;
            let spent_ns = self.elapsed_ns + pass.elapsed_ns;
            (self.progress)((spent_ns * 1000 / self.budget.total_ns).min(1000));
            let is_clear = |times| pass.times.is_slower_than(times, CLOSE_PERCENT);
            if pass.elapsed_ns > patience_ns
                || spent_ns > self.budget.total_ns
                || sequential.is_some_and(is_clear)
            {
                break;
            }
        }
        self.elapsed_ns += pass.elapsed_ns;
        self.written_bytes += pass.bytes;
        Ok(pass)
    }
}

/// Judgement of random writes of one size.
enum Speed {
    Fast,
    Slow,
    /// The time ran out.
    Unknown,
}

/// Outcome of one attempt at a size.
struct Attempt {
    row: ThroughputRow,
    is_clearly_slow: bool,
    /// `true` if the time did not run out during the attempt.
    is_whole: bool,
}

/// Outcome of a pass.
#[derive(Default)]
struct Pass {
    bytes: u64,
    elapsed_ns: u64,
    times: RequestTimes,
}

impl Pass {
    fn kb_per_s(&self) -> u64 {
        kb_per_s(self.bytes, self.elapsed_ns)
    }
}

fn kb_per_s(bytes: u64, elapsed_ns: u64) -> u64 {
    (u128::from(bytes) * 1_000_000 / u128::from(elapsed_ns.max(1))) as u64
}

/// Returns the `no`th of `count` positions in an order that looks random; each position occurs
/// once. A Feistel network permutes the numbers below a power of four, and is applied until the
/// position is below `count`.
fn scattered(no: u64, count: u64) -> u64 {
    let half_bits = count.max(2).ilog2().div_ceil(2).max(1) + u32::from(!count.is_power_of_two());
    let mask = (1u64 << half_bits) - 1;
    let mut place = no;
    loop {
        let (mut left, mut right) = (place >> half_bits, place & mask);
        for round in 1..=4u64 {
            let mixed = (right + round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (left, right) = (right, left ^ ((mixed >> 40) & mask));
        }
        place = left << half_bits | right;
        if place < count {
            return place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_occurs_once_and_few_in_order() {
        for count in [1, 2, 3, 8, 16, 100, 1024, 5000] {
            let places: Vec<u64> = (0..count).map(|no| scattered(no, count)).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count), "{count}");
            let followers = places.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(followers as u64 <= 2 + count / 20, "{count}: {followers}");
        }
    }

    #[test]
    fn the_area_is_aligned_on_the_medium() {
        let region = Region { block_count: 1 << 20, partition_start: 1 << 20 };
        let area = Area::new(region, 1 << 30).expect("room");
        assert_eq!((area.first_block, area.bytes, area.size_max), (63 << 8, 1 << 30, 64 << 20));
        // A partition at sector 63 is aligned to the next block.
        let old = Area::new(Region { partition_start: 63 * 512, ..region }, 1 << 30);
        assert_eq!(old.expect("room").first_block * 4096 + 64 * 512, 64 << 20);
        let small = Area::new(Region { block_count: 10_000, partition_start: 0 }, 1 << 30);
        assert_eq!(small.expect("room").size_max, 4 << 20);
        assert!(Area::new(Region { block_count: 100, partition_start: 0 }, 1 << 30).is_none());
    }
}
