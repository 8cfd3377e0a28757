//! Write amplification in closed form, in the limit of many large segments: uniform writes with the
//! greedy cleaner (Menon 1995, Desnoyers 2012), and blocks of known constant rates (docs/lab.md).
//!
//! A reserve of clean segments holds no blocks, so a caller passes the utilization of the other
//! segments.

/// Returns the write amplification at a utilization, 0..1 (exclusive), under uniform writes.
///
/// All blocks of a segment die at the same rate, so a victim's live fraction `u` and the mean over
/// the volume `U` obey U = (1 - u) / ln(1 / u).
pub fn write_amplification(utilization: f64) -> f64 {
    let (mut low, mut high) = (1e-12_f64, 1.0 - 1e-12);
    for _ in 0..200 {
        let u = low.midpoint(high);
        if (1.0 - u) / -u.ln() < utilization { low = u } else { high = u }
    }
    1.0 / (1.0 - low)
}

/// Returns the least write amplification at a utilization, 0..1 (exclusive), for a cleaner that
/// knows the constant rate of every block but not the times of its writes: the optimum of the index
/// of waiting (docs/lab.md).
///
/// Each of the `classes` has blocks of one rate: the number of blocks, and the number of writes to
/// these blocks, both above zero and in any unit.
pub fn known_rates(classes: &[(f64, f64)], utilization: f64) -> f64 {
    let (blocks, writes) = classes.iter().fold((0.0, 0.0), |(b, w), c| (b + c.0, w + c.1));
    let (mut low, mut high) = (-30.0_f64, 30.0);
    for _ in 0..100 {
        let price = low.midpoint(high);
        let occupied: f64 = classes
            .iter()
            .map(|class| {
                let x = cleaning_age(class.1 / writes / (class.0 / blocks) / price.exp2());
                class.0 / blocks * x / -(-x).exp_m1()
            })
            .sum();
        if occupied > 1.0 / utilization { low = price } else { high = price }
    }
    let moved = classes.iter().map(|class| {
        let x = cleaning_age(class.1 / writes / (class.0 / blocks) / low.exp2());
        class.1 / writes / x.exp_m1()
    });
    1.0 + moved.sum::<f64>()
}

/// Returns the classes of [`known_rates`] in the log behind a write buffer that absorbs the part
/// `coalesced`, 0..1, of all writes.
///
/// A write puts a block into the buffer for a time that is the same for all blocks. The copy of the
/// block in the log dies with that write, and further writes find the block in the buffer. After
/// the buffer has written the block out, the block dies at the rate of its writes again.
pub fn behind_buffer(classes: &[(f64, f64)], coalesced: f64) -> Vec<(f64, f64)> {
    let all: f64 = classes.iter().map(|class| class.1).sum();
    let in_log =
        |time: f64, (blocks, writes): (f64, f64)| 1.0 / (1.0 + writes / all / blocks * time);
    let (mut low, mut high) = (0.0_f64, 1e15);
    for _ in 0..200 {
        let time = low.midpoint(high);
        let written: f64 = classes.iter().map(|class| in_log(time, *class) * class.1 / all).sum();
        if written > 1.0 - coalesced { low = time } else { high = time }
    }
    let class = |class: &(f64, f64)| (class.0 * in_log(low, *class), class.1 * in_log(low, *class));
    classes.iter().map(class).collect()
}

/// Returns [`known_rates`] for a log with room for `space` blocks, behind a buffer as in [`behind_buffer`]. A block in the
/// buffer needs no place in the log.
pub fn known_rates_in_log(classes: &[(f64, f64)], coalesced: f64, space: f64) -> f64 {
    let in_log = behind_buffer(classes, coalesced);
    let live: f64 = in_log.iter().map(|class| class.0).sum();
    known_rates(&in_log, live / space)
}

/// Returns the x with e^x - 1 - x = `ratio`: a segment is cleaned when the part e^-x of its blocks
/// is live.
fn cleaning_age(ratio: f64) -> f64 {
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
    fn the_solution_agrees_with_published_points() {
        assert!((write_amplification(0.85) - 3.52).abs() < 0.01);
        // The 2% of segments that are kept clean hold no blocks.
        assert!((write_amplification(0.85 / 0.98) - 3.952).abs() < 0.001);
    }

    #[test]
    fn known_rates_help_only_if_they_differ() {
        let within_reserve = 0.85 / 0.98;
        let uniform = known_rates(&[(0.3, 0.3), (0.7, 0.7)], within_reserve);
        assert!((uniform - write_amplification(within_reserve)).abs() < 0.01, "{uniform}");
        let skewed = known_rates(&[(0.1, 0.9), (0.9, 0.1)], within_reserve);
        assert!((skewed - 1.91).abs() < 0.01, "{skewed}");
    }

    #[test]
    fn a_buffer_takes_hot_blocks_out_of_the_log() {
        let classes = [(10.0, 9.0), (90.0, 1.0)];
        assert!((behind_buffer(&classes, 0.0)[0].0 - 10.0).abs() < 1e-9);
        let behind = behind_buffer(&classes, 0.5);
        assert!((behind[0].1 + behind[1].1 - 5.0).abs() < 1e-6, "{behind:?}");
        assert!(behind[0].0 < 5.0 && behind[1].0 > 85.0, "{behind:?}");
        for (before, after) in classes.iter().zip(&behind) {
            assert!((before.1 / before.0 - after.1 / after.0).abs() < 1e-9);
        }
    }

    /// The job of docs/lab.md, "The kernel's filesystems": 192 Ki blocks, Zipf 0.99, and a sync after every 1,024
    /// writes, which writes each block at most once.
    #[test]
    fn the_job_of_the_kernel_filesystems_has_its_published_bound() {
        const BLOCKS: u32 = 192 << 10;
        const WRITES: f64 = 1024.0;
        let weight = |rank: u32| f64::from(rank).powf(-0.99);
        let all: f64 = (1..=BLOCKS).map(weight).sum();
        // Blocks of about the same rate form a class.
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
