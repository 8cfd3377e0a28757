//! The digest that the SFS policy keeps in a block's history: 12 bits and a count of writes.
//!
//! The digest holds the mean interval between writes and how the last interval compared with the mean. A *row* is
//! a class of blocks with similar digests. Histories of other policies have rows, too.

use crate::format::History;

/// Steps per octave of the stored mean interval.
const STEPS: f32 = 16.0;

/// Starts of the classes of mean intervals, in half octaves. Classes of large intervals are half an
/// octave wide: a load that cycles through the volume returns to a block after about the volume's
/// size, which is 2^18 to 2^19 ticks for a volume of a GiB or more.
const STARTS: [u16; 24] =
    [0, 4, 8, 12, 16, 20, 22, 24, 26, 28, 30, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44];

/// Bounds between the classes of the last interval over the mean, in octaves.
const BOUNDS: [f32; 3] = [-3.5, -1.25, 1.25];

/// Class of a last interval about as long as the mean.
const STEADY: u16 = 2;

/// Number of rows.
pub(super) const ROWS: usize = STARTS.len() * 4 + 2;

/// Row of blocks written once.
pub(super) const ONCE: usize = STARTS.len() * 4;

/// Row of blocks written more than once, under another policy.
pub(super) const UNKNOWN: usize = ONCE + 1;

/// Returns the mean interval of a row's blocks in ticks; `size` for a row without intervals.
pub(super) fn interval(row: usize, size: f64) -> f64 {
    if row >= ONCE {
        return size;
    }
    let start = STARTS[row / 4];
    let end = STARTS.get(row / 4 + 1).copied().unwrap_or(start + 2);
    (f64::from(start + end) / 4.0).exp2()
}

/// Returns the row of a block with this history.
pub(super) fn row(history: History) -> usize {
    match history.digest() {
        _ if history.write_count() <= 1 => ONCE,
        None => UNKNOWN,
        Some(digest) => class(digest >> 2) * 4 + usize::from(digest & 3),
    }
}

/// Returns the class of a mean interval, given in steps.
fn class(mean: u16) -> usize {
    STARTS.partition_point(|start| start * (STEPS as u16 / 2) <= mean) - 1
}

/// Returns the history after a write at `now`.
pub(super) fn written(before: Option<History>, now: u32) -> History {
    let Some(before) = before else { return History::digested(1, 0, now) };
    let octaves = (now.saturating_sub(before.modified).max(1) as f32).log2();
    let count = before.write_count().max(1);
    let (mean, class) = match before.digest() {
        Some(digest) if count > 1 => {
            let mean = f32::from(digest >> 2) / STEPS;
            let off = octaves - mean;
            let class = BOUNDS.iter().map(|bound| u16::from(off >= *bound)).sum();
            (mean + off * (1.0 / f32::from(count)).max(0.25), class)
        }
        _ => (octaves, STEADY),
    };
    let mean = (mean * STEPS).round() as u16;
    // A plain count has no intervals: the mean starts with this interval.
    let count = if before.digest().is_some() { count + 1 } else { 2 };
    History::digested(count, mean << 2 | class, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_interval_is_learned_and_a_change_is_noticed() {
        let mut history = written(None, 0);
        assert_eq!(row(history), ONCE);
        for write in 1..20 {
            history = written(Some(history), write * 1024);
        }
        assert_eq!(row(history), class(10 * 16) * 4 + 2);
        assert_eq!(row(written(Some(history), history.modified + 10)) % 4, 0);
        assert_eq!(row(written(Some(history), history.modified + 300)) % 4, 1);
        assert_eq!(row(written(Some(history), history.modified + 9000)) % 4, 3);
    }

    #[test]
    fn classes_begin_at_their_starts() {
        assert_eq!([0, 31, 32, 16 * 16 - 1].map(class), [0, 0, 1, 10]);
        assert_eq!([16 * 16, 16 * 16 + 7, 16 * 16 + 8, u16::MAX >> 2].map(class), [11, 11, 12, 23]);
        for row in (0..ONCE).step_by(4) {
            let mean = (interval(row, 1.0).log2() as f32 * STEPS) as u16;
            assert_eq!(class(mean), row / 4);
        }
    }

    #[test]
    fn plain_histories_have_rows() {
        assert_eq!(row(History::plain(1, 5)), ONCE);
        assert_eq!(row(History::plain(900, 5)), UNKNOWN);
        let after = written(Some(History::plain(900, 5)), 5 + 64);
        assert_eq!((row(after), after.write_count()), (class(6 * 16) * 4 + 2, 2));
        for writes in [0, 1, 0x7fff, 0x8000, 0xffff] {
            let history = History { writes, modified: u32::MAX };
            assert!(row(history) < ROWS && row(written(Some(history), 0)) < ROWS);
        }
    }
}
