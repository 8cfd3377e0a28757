//! What lifetime remembers of a block besides its last write: 12 bits and the count.
//!
//! Owns: the digest: a mean interval between writes, and how far the last one was from it.
//! Promises: any history can be read, also one that another policy wrote.
//! Never: needs the clock but for the interval.

use crate::format::History;

/// Steps of an octave in which the mean interval is kept.
const STEPS: f32 = 16.0;

/// Where the classes of mean intervals begin, in half octaves. Small ones are all short; large ones are told apart
/// by half octaves, for a load that goes round the volume comes back to a block after about the volume's
/// size, which is 2^18 to 2^19 ticks if it is a GiB or more.
const STARTS: [u16; 24] =
    [0, 4, 8, 12, 16, 20, 22, 24, 26, 28, 30, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44];

/// Bounds between the classes of the last interval against the mean, in octaves.
const BOUNDS: [f32; 3] = [-3.5, -1.25, 1.25];

/// The class of a last interval that is about as long as the mean.
const AS_EVER: u16 = 2;

/// Blocks that are expected to live alike.
pub(super) const ROWS: usize = STARTS.len() * 4 + 2;

/// Written once.
pub(super) const ONCE: usize = STARTS.len() * 4;

/// Written by another policy, more than once.
pub(super) const UNKNOWN: usize = ONCE + 1;

/// The mean interval of a row's blocks in ticks; `size` where it is not known.
pub(super) fn interval(row: usize, size: f64) -> f64 {
    if row >= ONCE {
        return size;
    }
    let start = STARTS[row / 4];
    let end = STARTS.get(row / 4 + 1).copied().unwrap_or(start + 2);
    (f64::from(start + end) / 4.0).exp2()
}

/// The row of a block with this history.
pub(super) fn row(history: History) -> usize {
    match history.digest() {
        _ if history.write_count() <= 1 => ONCE,
        None => UNKNOWN,
        Some(digest) => class(digest >> 2) * 4 + usize::from(digest & 3),
    }
}

/// The class of a mean interval, which is in steps.
fn class(mean: u16) -> usize {
    STARTS.partition_point(|start| start * (STEPS as u16 / 2) <= mean) - 1
}

/// The history after a write.
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
        _ => (octaves, AS_EVER),
    };
    let mean = (mean * STEPS).round() as u16;
    // A plain count says nothing of intervals: the mean starts here, with one.
    let count = if before.digest().is_some() { count + 1 } else { 2 };
    History::digested(count, mean << 2 | class, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rhythm_is_learned_and_a_change_is_seen() {
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
    fn classes_are_where_they_begin() {
        assert_eq!([0, 31, 32, 16 * 16 - 1].map(class), [0, 0, 1, 10]);
        assert_eq!([16 * 16, 16 * 16 + 7, 16 * 16 + 8, u16::MAX >> 2].map(class), [11, 11, 12, 23]);
        for row in (0..ONCE).step_by(4) {
            let mean = (interval(row, 1.0).log2() as f32 * STEPS) as u16;
            assert_eq!(class(mean), row / 4);
        }
    }

    #[test]
    fn plain_histories_are_borne() {
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
