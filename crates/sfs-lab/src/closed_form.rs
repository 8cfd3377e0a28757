//! What theory says: uniform random writes and the greedy cleaner, and blocks of known rates.
//!
//! Owns: the formulas (Menon 1995; Desnoyers 2012; docs/lab.md), and their solutions.
//! Promises: right in the limit of many large segments.
//! Never: knows of reserves: the caller takes them off the space.

/// Write amplification at this utilization, 0..1 (exclusive).
///
/// Everything in a segment dies at the same rate, so a victim's live fraction `u` and the mean over
/// the volume `U` obey U = (1 - u) / ln(1 / u).
pub fn write_amplification(utilization: f64) -> f64 {
    let (mut low, mut high) = (1e-12_f64, 1.0 - 1e-12);
    for _ in 0..200 {
        let u = low.midpoint(high);
        if (1.0 - u) / -u.ln() < utilization { low = u } else { high = u }
    }
    1.0 / (1.0 - low)
}

/// Least write amplification at this utilization, 0..1 (exclusive), of a cleaner that knows the
/// constant rate of every block, but not when it will be written: the optimum of the index of waiting.
///
/// `classes` are blocks of one rate: how many of them there are, and how many of the writes go to
/// them, both above zero and in any unit.
pub fn known_rates(classes: &[(f64, f64)], utilization: f64) -> f64 {
    let (blocks, writes) = classes.iter().fold((0.0, 0.0), |(b, w), c| (b + c.0, w + c.1));
    let (mut low, mut high) = (-30.0_f64, 30.0);
    for _ in 0..100 {
        let price = low.midpoint(high);
        let occupied: f64 = classes
            .iter()
            .map(|class| {
                let x = waited(class.1 / writes / (class.0 / blocks) / price.exp2());
                class.0 / blocks * x / -(-x).exp_m1()
            })
            .sum();
        if occupied > 1.0 / utilization { low = price } else { high = price }
    }
    let moved = classes.iter().map(|class| {
        let x = waited(class.1 / writes / (class.0 / blocks) / low.exp2());
        class.1 / writes / x.exp_m1()
    });
    1.0 + moved.sum::<f64>()
}

/// The x with e^x - 1 - x = `ratio`: a segment is cleaned when e^-x of it lives.
fn waited(ratio: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0 + (2.0 + ratio).ln() * 2.0);
    for _ in 0..60 {
        let x = low.midpoint(high);
        if x.exp_m1() - x < ratio { low = x } else { high = x }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_points() {
        assert!((write_amplification(0.85) - 3.52).abs() < 0.01);
        // The 2% that are kept clean are not there for blocks.
        assert!((write_amplification(0.85 / 0.98) - 3.952).abs() < 0.001);
    }

    #[test]
    fn who_knows_rates_gains_by_them() {
        let within_reserve = 0.85 / 0.98;
        let uniform = known_rates(&[(0.3, 0.3), (0.7, 0.7)], within_reserve);
        assert!((uniform - write_amplification(within_reserve)).abs() < 0.01, "{uniform}");
        let skewed = known_rates(&[(0.1, 0.9), (0.9, 0.1)], within_reserve);
        assert!((skewed - 1.91).abs() < 0.01, "{skewed}");
    }

    /// The peers' job: 192 Ki blocks, Zipf 0.99, a sync for every 1,024 writes, of which each writes a block
    /// once. What docs/lab.md says of it.
    #[test]
    fn the_peers_job_cannot_be_done_with_one_byte_each() {
        const BLOCKS: u32 = 192 << 10;
        const WRITES: f64 = 1024.0;
        let weight = |rank: u32| f64::from(rank).powf(-0.99);
        let all: f64 = (1..=BLOCKS).map(weight).sum();
        // Blocks of about one rate are a class.
        let class = |rank: u32| (f64::from(rank).log2() * 16.0) as usize;
        let mut classes = vec![(0.0, 0.0); class(BLOCKS) + 1];
        for rank in 1..=BLOCKS {
            let (blocks, writes) = &mut classes[class(rank)];
            *blocks += 1.0;
            *writes += -(WRITES * (-weight(rank) / all).ln_1p()).exp_m1();
        }
        classes.retain(|(blocks, _)| *blocks > 0.0);
        let written: f64 = classes.iter().map(|(_, writes)| writes).sum();
        let coalesced = written / WRITES;
        assert!((coalesced - 0.65).abs() < 0.02, "{coalesced}");
        let least = |utilization| 0.649 * known_rates(&classes, utilization);
        assert!((least(0.751) - 0.98).abs() < 0.01, "{}", least(0.751));
        assert!((least(0.79) - 1.08).abs() < 0.01, "{}", least(0.79));
    }
}
