//! The search on a device that merges blocks: few requests of each size, around a guess.
//!
//! A request that does not cover its erase blocks pays for a merge, and a larger one never pays for more. So the
//! search goes up from a slow size and down from a fast one until the two meet.

use sfs_device::DeviceError;

use super::area::Area;
use super::bench::{Bench, Pass};
use super::result::{ThroughputRow, Unclear};
use super::{CLOSE_PERCENT, Found, SIZE_MIN};

/// Number of requests of each kind that are not compared: they use up free log blocks, or pay for what the requests
/// before left.
const UNCOMPARED_COUNT: usize = 8;

/// Number of sequential requests that are compared.
const SEQUENTIAL_COUNT: usize = 12;

/// Number of random requests that are compared.
const RANDOM_COUNT: usize = 16;

/// Maximum number of rounds of both kinds.
const ROUNDS: usize = 3;

/// Searches from `guess` on. The rows are appended to `rows`.
pub(super) fn search(
    bench: &mut Bench<'_>,
    area: &Area,
    guess: u64,
    rows: &mut Vec<ThroughputRow>,
) -> Result<Found, DeviceError> {
    let mut size = guess.min(area.size_max);
    let (mut fast, mut slow) = (None, None);
    loop {
        let Some(is_fast) = judge(bench, area, size, rows)? else {
            return Ok(Err(Unclear::TimeRanOut { size }));
        };
        if is_fast {
            fast = Some(size);
            if slow == Some(size / 2) {
                return Ok(Ok(size));
            }
            if size == SIZE_MIN {
                return Ok(Err(Unclear::NeverSlow));
            }
            size /= 2;
        } else {
            slow = Some(size);
            if fast == Some(size * 2) {
                return Ok(Ok(size * 2));
            }
            if size == area.size_max {
                return Ok(Err(Unclear::AlwaysSlow));
            }
            size *= 2;
        }
    }
}

/// Returns whether random writes of a size are as fast as sequential ones, or `None` if the time ran out.
fn judge(
    bench: &mut Bench<'_>,
    area: &Area,
    size: u64,
    rows: &mut Vec<ThroughputRow>,
) -> Result<Option<bool>, DeviceError> {
    let (mut in_order, mut scattered) = (area.in_order(size).cycle(), area.scattered(size).cycle());
    let (mut sequential, mut random) = (Pass::default(), Pass::default());
    let mut is_fast = None;
    for _ in 0..ROUNDS {
        bench.pass(size, in_order.by_ref().take(UNCOMPARED_COUNT), |_| false)?;
        let compared = in_order.by_ref().take(SEQUENTIAL_COUNT);
        sequential = bench.more(sequential, size, compared, |_| false)?;
        bench.pass(size, scattered.by_ref().take(UNCOMPARED_COUNT), |_| false)?;
        let is_slow = |random: &Pass| random.times.is_slower_than(&sequential.times, CLOSE_PERCENT);
        random = bench.more(random, size, scattered.by_ref().take(RANDOM_COUNT), is_slow)?;
        if is_slow(&random) {
            is_fast = Some(false);
            break;
        }
        if !bench.has_time() {
            break;
        }
        // Requests that are slow, but not clearly, get another round; the last one decides.
        let is_close = random.kb_per_s() * 100 >= sequential.kb_per_s() * CLOSE_PERCENT;
        is_fast = Some(is_close);
        if is_close {
            break;
        }
    }
    rows.push(ThroughputRow {
        size,
        sequential_kb_per_s: sequential.kb_per_s(),
        random_kb_per_s: random.kb_per_s(),
    });
    Ok(is_fast.filter(|is_fast| bench.has_time() || !is_fast))
}
