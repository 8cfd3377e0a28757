//! What theory says of a page-mapped device.
//!
//! Owns: the closed forms (papers.md, section 2), and their solutions.
//! Promises: right in the limit of many large blocks.
//! Never: knows of reserves: the caller takes them off the space.

/// Halvings of the interval: enough for every bit of a double.
const STEPS: u32 = 200;

/// Write amplification of uniform random writes under FIFO collection, and in the limit of large
/// blocks under greedy collection: `A = alpha / (alpha + W(-alpha exp(-alpha)))`, here as the root
/// of `A = 1 / (1 - exp(-alpha / A))`. `alpha` is physical over logical space, above 1.
pub fn uniform(alpha: f64) -> f64 {
    two_classes(alpha, 0.5, 0.5)
}

/// Write amplification of FIFO collection when a fraction `writes` of the writes goes uniformly to
/// a fraction `pages` of the pages, and nothing keeps the two apart (Desnoyers 2012):
/// `A = 1 + r / (exp(r/f alpha/A) - 1) + (1-r) / (exp((1-r)/(1-f) alpha/A) - 1)`.
pub fn two_classes(alpha: f64, writes: f64, pages: f64) -> f64 {
    let class = |r: f64, f: f64, a: f64| r / ((r / f * alpha / a).exp() - 1.0);
    let right = |a: f64| 1.0 + class(writes, pages, a) + class(1.0 - writes, 1.0 - pages, a);
    let (mut low, mut high) = (1.0_f64, 1e6);
    for _ in 0..STEPS {
        let a = low.midpoint(high);
        if right(a) > a { low = a } else { high = a }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_points() {
        // Utilization 0.85 of what is not reserved, as in docs/lab.md.
        assert!((uniform(0.98 / 0.85) - 3.952).abs() < 0.001);
        assert!((uniform(2.0) - 1.255).abs() < 0.001);
    }

    #[test]
    fn classes_that_do_not_differ_are_one() {
        let one = uniform(1.1);
        assert!((two_classes(1.1, 0.2, 0.2) - one).abs() < 1e-9);
        assert!(two_classes(1.1, 0.9, 0.1) > one);
    }
}
