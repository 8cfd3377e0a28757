//! Measurement of a device's erase block size by timing writes.
//!
//! The measurement is that of the FAST 2009 paper, section 4.1: it finds the request size from which random
//! writes are as fast as sequential ones. The paper tries every size on a gibibyte. Here an early test of the
//! device's address mapping (`mapping`) chooses between two searches, so that most devices need less:
//!
//! * A device that merges blocks (block or hybrid mapping) shows its erase blocks in few requests. The test
//!   guesses the size from the time of a merge, and `brief` searches around the guess.
//! * A device that maps pages shows its erase blocks only when its spare blocks are used up, and small random
//!   writes leave work behind for gibibytes of later writes. So `descent` goes from large requests to small
//!   ones, in whole passes. Every pass but the last is as fast as the device can be.
//!
//! A measurement is bounded in bytes and time. A size is the answer only if random writes of this
//! size are as fast as sequential ones, and random writes of half the size are clearly slower.
//! Otherwise the measurement says what it lacks ([`Unclear`]). The caller decides whether the device may be
//! written.

mod area;
mod bench;
mod brief;
mod descent;
mod evidence;
mod mapping;
mod probe;
mod result;

use sfs_device::DeviceError;

pub use area::Region;
pub use probe::{DeviceProbe, Probe};
pub use result::{Measurement, ThroughputRow, Unclear};

use area::Area;
use bench::Bench;
use mapping::Mapping;

/// Largest and smallest request, in bytes. The clustered blocks of the papers' devices have 4 to 32
/// MiB.
const SIZE_MAX: u64 = 64 << 20;
const SIZE_MIN: u64 = 128 << 10;

/// Share of the sequential throughput from which random writes count as fast. The paper compares
/// whole MB/s; noise of 20% in each of 16 requests moves the ratio by 4%.
const CLOSE_PERCENT: u64 = 88;

/// Divisor of the time budget for filling the area.
const FILL_PART: u64 = 6;

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
    let mut bench = Bench::new(probe, budget, progress);
    let mut rows = Vec::new();
    let found = search(&mut bench, area, &mut rows)?;
    Ok(Measurement {
        rows,
        segment_size: found.ok(),
        unclear: found.err(),
        written_bytes: bench.written_bytes(),
        elapsed_ms: bench.elapsed_ns() / 1_000_000,
    })
}

/// Size of an erase block, or the reason why none was found.
type Found = Result<u64, Unclear>;

/// Fills the area, tests the mapping, and searches.
fn search(
    bench: &mut Bench<'_>,
    whole: Area,
    rows: &mut Vec<ThroughputRow>,
) -> Result<Found, DeviceError> {
    if whole.bytes < mapping::AREA_MIN {
        return Ok(Err(Unclear::TooSmall));
    }
    let (area, is_even) = bench.fill(whole)?;
    if area.bytes < mapping::AREA_MIN {
        return Ok(Err(Unclear::TooSlow));
    }
    if let Mapping::Blocks { guess } = mapping::test(bench, &area)? {
        return brief::search(bench, &area, guess, rows);
    }
    // A page-mapped device that has cleaned up goes on in a block that is filled in part. Requests of the size of an erase
    // block then cover parts of two, and no search can tell.
    if !is_even {
        return Ok(Err(Unclear::Unsettled));
    }
    // The spare blocks would serve a part of the area at full speed at any size.
    if area.bytes < whole.bytes {
        return Ok(Err(Unclear::TooSlow));
    }
    descent::search(bench, &whole, rows)
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
    let mut nothing = |_| ();
    let mut bench = Bench::new(probe, budget, &mut nothing);
    let (area, _) = bench.fill(area)?;
    let mut rows = Vec::new();
    let mut size = area.size_max;
    while size >= size_min && bench.has_time() {
        bench.pass(area.size_max, area.in_order(area.size_max), |_| false)?;
        rows.push(descent::row(&mut bench, &area, size)?);
        size /= 2;
    }
    Ok(rows)
}
