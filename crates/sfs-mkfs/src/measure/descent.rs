//! The search on a device that maps pages: whole passes, from the largest requests down.

use sfs_device::DeviceError;

use super::area::Area;
use super::bench::{Bench, Pass};
use super::result::{ThroughputRow, Unclear};
use super::{CLOSE_PERCENT, Found, SIZE_MIN};

/// Number of attempts that must be slow for a size to count as slow.
const ATTEMPTS: u32 = 2;

/// Multiple of the sequential pass's time after which a random pass is ended.
const PATIENCE: u64 = 4;

/// Number of the largest requests whose bytes a sequential pass writes, to compare with.
const SEQUENTIAL_LARGEST: u64 = 6;

/// Measures from the largest size down to the first that is slow. The rows are appended to `rows`.
pub(super) fn search(
    bench: &mut Bench<'_>,
    area: &Area,
    rows: &mut Vec<ThroughputRow>,
) -> Result<Found, DeviceError> {
    let mut size = area.size_max;
    while size >= SIZE_MIN {
        match judge(bench, area, size, rows)? {
            Speed::Fast => size /= 2,
            // If the largest size is slow, the answer is above the measured sizes.
            Speed::Slow if size == area.size_max => return Ok(Err(Unclear::AlwaysSlow)),
            Speed::Slow => return Ok(Ok(size * 2)),
            Speed::Unknown => return Ok(Err(Unclear::TimeRanOut { size })),
        }
    }
    Ok(Err(Unclear::NeverSlow))
}

/// Measures sequential and random writes of a size, both in whole passes.
pub(super) fn row(
    bench: &mut Bench<'_>,
    area: &Area,
    size: u64,
) -> Result<ThroughputRow, DeviceError> {
    let sequential = bench.pass(size, area.in_order(size), |_| false)?;
    let patience_ns = sequential.elapsed_ns.saturating_mul(PATIENCE);
    let is_long = |random: &Pass| random.elapsed_ns > patience_ns;
    let random = bench.pass(size, area.scattered(size), is_long)?;
    Ok(ThroughputRow {
        size,
        sequential_kb_per_s: sequential.kb_per_s(),
        random_kb_per_s: random.kb_per_s(),
    })
}

/// Judgement of random writes of one size.
enum Speed {
    Fast,
    Slow,
    /// The time ran out.
    Unknown,
}

/// Judges random writes of a size by up to two attempts: slow writes must be slow in both, because the
/// device may have postponed work of the pass before. The better sequential throughput counts, since the first
/// attempt may leave the device slow even for sequential writes. If the time runs out, one attempt is
/// enough that was clearly slow.
fn judge(
    bench: &mut Bench<'_>,
    area: &Area,
    size: u64,
    rows: &mut Vec<ThroughputRow>,
) -> Result<Speed, DeviceError> {
    let mut sequential_kb_per_s = 0;
    let mut was_clear = false;
    for attempt_no in 1..=ATTEMPTS {
        if !bench.has_time() {
            break;
        }
        let Attempt { row, is_clearly_slow, is_whole } = attempt(bench, area, size)?;
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
        bench.pass(area.size_max, area.in_order(area.size_max), |_| false)?;
    }
    Ok(if was_clear { Speed::Slow } else { Speed::Unknown })
}

/// Outcome of one attempt at a size.
struct Attempt {
    row: ThroughputRow,
    is_clearly_slow: bool,
    /// `true` if the time did not run out during the attempt.
    is_whole: bool,
}

/// Measures sequential and random writes of a size. The random ones end when they are clearly slow.
fn attempt(bench: &mut Bench<'_>, area: &Area, size: u64) -> Result<Attempt, DeviceError> {
    let count = (SEQUENTIAL_LARGEST * area.size_max / size) as usize;
    let sequential = bench.pass(size, area.in_order(size).take(count), |_| false)?;
    let is_slow = |random: &Pass| random.times.is_slower_than(&sequential.times, CLOSE_PERCENT);
    let patience_ns =
        sequential.elapsed_ns.saturating_mul(PATIENCE * area.bytes / sequential.bytes.max(1));
    let is_over = |random: &Pass| random.elapsed_ns > patience_ns || is_slow(random);
    let random = bench.pass(size, area.scattered(size), is_over)?;
    let row = ThroughputRow {
        size,
        sequential_kb_per_s: sequential.kb_per_s(),
        random_kb_per_s: random.kb_per_s(),
    };
    Ok(Attempt { row, is_clearly_slow: is_slow(&random), is_whole: bench.has_time() })
}
