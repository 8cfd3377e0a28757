//! The write cost model of the FAST 2009 paper (section 3.2), fitted to measured throughputs.
//!
//! A block of 4 KiB takes `T = Tmerge / (f R) + S / B`, where f R is the number of blocks written to a
//! logical block at a time. The fit minimizes the squares of relative errors, so that small and large
//! requests count alike. Requests larger than a logical block, where f R has its maximum, are left out.

use serde::Serialize;
use sfs_mkfs::measure::ThroughputRow;

/// S: size of a block, the paper's sector, in bytes.
const BLOCK_SIZE: f64 = 4096.0;

/// The two constants of a device, and the error of their fit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CostModel {
    /// Time of a merge, in microseconds.
    pub merge_us: f64,
    /// Time of a block at full bandwidth, S / B, in microseconds.
    pub block_us: f64,
    /// Root of the mean square of the relative errors.
    pub error: f64,
}

impl CostModel {
    /// Returns the model that fits random writes of all sizes up to `logical_block` bytes; `None` for
    /// fewer than two sizes.
    pub fn fit(rows: &[ThroughputRow], logical_block: u64) -> Option<CostModel> {
        let points: Vec<(f64, f64)> =
            rows.iter().filter(|row| row.size <= logical_block).map(point).collect();
        if points.len() < 2 {
            return None;
        }
        // T_i = a x_i + b with weights 1 / T_i^2, by the normal equations.
        let sum = |term: fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|&(x, t)| term(x, t) / (t * t)).sum()
        };
        let (xx, x, one) = (sum(|x, _| x * x), sum(|x, _| x), sum(|_, _| 1.0));
        let (xt, t) = (sum(|x, t| x * t), sum(|_, t| t));
        let determinant = xx * one - x * x;
        let merge_us = (xt * one - t * x) / determinant;
        let block_us = (xx * t - x * xt) / determinant;
        let model = CostModel { merge_us, block_us, error: 0.0 };
        let squares = points.iter().map(|&(x, t)| ((merge_us * x + block_us) / t - 1.0).powi(2));
        let error = (squares.sum::<f64>() / points.len() as f64).sqrt();
        Some(CostModel { error, ..model })
    }

    /// Returns the time of a block in microseconds, if `blocks` (f R) are written to a logical
    /// block at a time.
    pub fn block_time_us(&self, blocks: f64) -> f64 {
        self.merge_us / blocks + self.block_us
    }
}

/// Returns 1 / (f R) and the time of a block in microseconds. A logical block gets one random
/// request at a time, so f R is the size of the request in blocks.
fn point(row: &ThroughputRow) -> (f64, f64) {
    (BLOCK_SIZE / row.size as f64, block_us(row.random_kb_per_s))
}

/// Returns the time of a block of 4 KiB in microseconds, at a throughput in kB/s.
pub fn block_us(kb_per_s: u64) -> f64 {
    BLOCK_SIZE * 1000.0 / kb_per_s.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_of_exact_data_are_found() {
        // Merges of 20 ms, blocks of 40 us.
        let row = |size: u64| {
            let us = 20_000.0 * BLOCK_SIZE / size as f64 + 40.0;
            let random_kb_per_s = (BLOCK_SIZE * 1000.0 / us) as u64;
            ThroughputRow { size, sequential_kb_per_s: 100_000, random_kb_per_s }
        };
        let mut rows: Vec<ThroughputRow> = (12..=22).map(|bits| row(1 << bits)).collect();
        let beyond = ThroughputRow { size: 8 << 20, random_kb_per_s: 1, ..rows[0] };
        rows.push(beyond);
        let model = CostModel::fit(&rows, 4 << 20).expect("enough rows");
        assert!((model.merge_us / 20_000.0 - 1.0).abs() < 0.02, "{model:?}");
        assert!((model.block_us / 40.0 - 1.0).abs() < 0.02, "{model:?}");
        assert!(model.error < 0.01 && model.block_time_us(1024.0) < 60.0);
        assert_eq!(CostModel::fit(&rows[..1], 4 << 20), None);
    }
}
