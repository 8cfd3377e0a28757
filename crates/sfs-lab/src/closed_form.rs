//! What theory says of uniform random writes and the greedy cleaner.
//!
//! Owns: the formula (Menon 1995; Desnoyers 2012), and its solution.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_points() {
        assert!((write_amplification(0.85) - 3.52).abs() < 0.01);
        // The 2% that are kept clean are not there for blocks.
        assert!((write_amplification(0.85 / 0.98) - 3.952).abs() < 0.001);
    }
}
