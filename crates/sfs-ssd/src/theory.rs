//! Analytical write amplification of a page-mapped device (Desnoyers 2012).
//!
//! The equations hold in the limit of many large blocks, and do not include reserved blocks, which
//! the caller has to subtract from the physical space.

/// Number of iterations of the bisection, enough for every bit of an `f64`.
const BISECTIONS: u32 = 200;

/// Returns the write amplification of uniform random writes under FIFO collection, and in the limit of
/// large blocks also under greedy collection.
///
/// The closed form is `A = alpha / (alpha + W(-alpha exp(-alpha)))`, computed here as the root of
/// `A = 1 / (1 - exp(-alpha / A))`. `alpha` is physical divided by logical space, above 1.
pub fn uniform(alpha: f64) -> f64 {
    two_classes(alpha, 0.5, 0.5)
}

/// Returns the write amplification of FIFO collection for two classes of pages in the same blocks.
///
/// A fraction `writes` of the writes (`r`) goes uniformly to a fraction `pages` of the pages (`f`). The
/// result is the root of `A = 1 + r / (exp(r/f alpha/A) - 1) + (1-r) / (exp((1-r)/(1-f) alpha/A) - 1)`
/// (Desnoyers 2012).
pub fn two_classes(alpha: f64, writes: f64, pages: f64) -> f64 {
    let class = |r: f64, f: f64, a: f64| r / ((r / f * alpha / a).exp() - 1.0);
    let right = |a: f64| 1.0 + class(writes, pages, a) + class(1.0 - writes, 1.0 - pages, a);
    let (mut low, mut high) = (1.0_f64, 1e6);
    for _ in 0..BISECTIONS {
        let a = low.midpoint(high);
        if right(a) > a { low = a } else { high = a }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_agrees_with_known_values() {
        // Utilization 0.85 of the unreserved space, as in docs/lab.md.
        assert!((uniform(0.98 / 0.85) - 3.952).abs() < 0.001);
        assert!((uniform(2.0) - 1.255).abs() < 0.001);
    }

    #[test]
    fn two_equal_classes_give_the_uniform_result() {
        let one = uniform(1.1);
        assert!((two_classes(1.1, 0.2, 0.2) - one).abs() < 1e-9);
        assert!(two_classes(1.1, 0.9, 0.1) > one);
    }
}
