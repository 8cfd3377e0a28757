//! Histograms of blocks by expected remaining lifetime.

/// Number of bins in an octave of remaining lifetime.
pub(super) const BINS_PER_OCTAVE: usize = 8;

/// Number of bins, for 32 octaves.
pub(super) const BINS: usize = 32 * BINS_PER_OCTAVE;

/// Numbers of blocks by expected remaining lifetime.
pub(super) type Histogram = [f64; BINS];

pub(super) const EMPTY: Histogram = [0.0; BINS];

/// Returns the bin of an expected remaining lifetime, log2 of ticks.
pub(super) fn bin(remaining: f64) -> usize {
    ((remaining * BINS_PER_OCTAVE as f64) as usize).min(BINS - 1)
}

/// Returns the middle of a bin, log2 of ticks.
pub(super) fn octaves(bin: usize) -> f64 {
    (bin as f64 + 0.5) / BINS_PER_OCTAVE as f64
}
