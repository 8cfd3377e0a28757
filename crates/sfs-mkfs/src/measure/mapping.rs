//! Whether a device merges blocks on small writes: a short test before the search.
//!
//! A layer with block or hybrid mapping has a log block for each of a few logical blocks, or one for the writes
//! that begin a logical block. So a small write at the start of a logical block, after writes to many others,
//! copies the rest of a block. The copy takes as long as writing about an erase block, which gives a guess of its
//! size. A page-mapped layer writes such a request as fast as any other, and the test leaves it little to clean.

use std::ops::Range;

use sfs_device::{BLOCK_SIZE, DeviceError};

use super::area::Area;
use super::bench::{Bench, Pass};
use super::{SIZE_MAX, SIZE_MIN};

/// Size of a request of the test, in bytes.
const SIZE: u64 = 256 << 10;

/// Number of sequential requests to compare with.
const SEQUENTIAL_COUNT: usize = 64;

/// Number of places far apart; more than the log blocks of the papers' devices.
const PLACES: u64 = 16;

/// Size of the smallest area that can be tested, in bytes.
pub(super) const AREA_MIN: u64 = PLACES * SIZE;

/// Number of requests far apart that use up the log blocks, and of those that are compared.
const UNCOMPARED_COUNT: u64 = 10;
const COMPARED_COUNT: u64 = 32;

/// Share of the sequential throughput below which writes far apart merge blocks. A merge of 512 KiB makes it 33%.
const MERGES_PERCENT: u64 = 50;

/// Address mapping of a device, as far as its times show it.
pub(super) enum Mapping {
    /// Small writes far apart merge erase blocks of about `guess` bytes, a power of two.
    Blocks {
        /// Size in bytes.
        guess: u64,
    },
    /// Small writes far apart are as fast as sequential ones.
    Pages,
}

/// Tests the mapping of a device whose `area` of at least [`AREA_MIN`] bytes is full.
pub(super) fn test(bench: &mut Bench<'_>, area: &Area) -> Result<Mapping, DeviceError> {
    let in_order = || area.in_order(SIZE).take(SEQUENTIAL_COUNT);
    let sequential = bench.pass(SIZE, in_order(), |_| false)?.times;
    bench.pass(SIZE, places(area, 0..UNCOMPARED_COUNT), |_| false)?;
    let compared = places(area, UNCOMPARED_COUNT..UNCOMPARED_COUNT + COMPARED_COUNT);
    let merge_ns = sequential.mean_ns() * 100.0 / MERGES_PERCENT as f64;
    let mut merge_count = 0;
    let is_slow = |apart: &Pass| apart.times.is_slower_than(&sequential, MERGES_PERCENT);
    let apart = bench.pass(SIZE, compared, |apart| {
        merge_count += u64::from(apart.last_ns as f64 > merge_ns);
        is_slow(apart)
    })?;
    // A page-mapped device that cleans up stops now and then, and goes on at full speed.
    if is_slow(&apart) && merge_count * 8 >= apart.bytes / SIZE * 7 {
        let apart = apart.times;
        let merged = SIZE as f64 * (apart.mean_ns() / sequential.mean_ns() - 1.0);
        let guess = 1 << (merged.log2().round() as u32);
        return Ok(Mapping::Blocks { guess: guess.clamp(SIZE_MIN, SIZE_MAX) });
    }
    // The log of a page-mapped device goes on at the start of an erase block.
    let rest = bench.written_bytes().next_multiple_of(area.size_max) - bench.written_bytes();
    bench.pass(SIZE, area.in_order(SIZE).take((rest / SIZE) as usize), |_| false)?;
    Ok(Mapping::Pages)
}

/// Returns the blocks of the requests `nos`, which begin logical blocks as large as the area allows. No two that follow
/// each other are neighbours, and [`PLACES`] that follow each other are different.
fn places(area: &Area, nos: Range<u64>) -> impl Iterator<Item = u64> + use<> {
    let distance = 1 << (area.bytes / PLACES).ilog2();
    let first = area.first_block;
    nos.map(move |no| first + (no * 7 % PLACES) * distance / BLOCK_SIZE as u64)
}
