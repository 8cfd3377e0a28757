//! Ages in cells of half an octave, such that whole cells grow older at once.
//!
//! Owns: the epochs: of the youngest level, and twice as long on every level above.
//! Promises: [`Ages::shifts`] and [`Ages::cell`] agree: a birth counted in the first cell and moved by
//! every shift is always in the cell that its time of birth says.
//! Never: counts anything.

/// Levels above the youngest one.
const LEVELS: u32 = 16;

/// Four cells on the youngest level, two on each other.
pub(super) const CELLS: usize = 4 + 2 * LEVELS as usize;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    /// Ticks of the shortest epoch, log2.
    shift: u32,
}

impl Ages {
    /// For a volume of `size` ticks: the oldest cell begins at about its sixteen-fold.
    pub(super) fn new(size: f64) -> Self {
        Self { shift: (size.log2() - 13.0).max(0.0) as u32 }
    }

    /// Number of the epoch that `time` is in, of the shortest ones.
    pub(super) fn epoch(&self, time: u32) -> u32 {
        time >> self.shift
    }

    /// When an epoch begins.
    pub(super) fn time(&self, epoch: u32) -> u32 {
        u32::try_from(u64::from(epoch) << self.shift).unwrap_or(u32::MAX)
    }

    /// The cell of what was born at `born`.
    pub(super) fn cell(&self, born: u32, now: u32) -> usize {
        let (born, now) = (self.epoch(born), self.epoch(now));
        let age = now.saturating_sub(born);
        if age < 4 {
            return age as usize;
        }
        let mut level = age.ilog2() - 1;
        if (now >> level) - (born >> level) >= 4 {
            level += 1;
        }
        if level > LEVELS {
            return CELLS - 1;
        }
        let slot = (now >> level) - (born >> level);
        4 + 2 * (level as usize - 1) + (slot as usize - 2)
    }

    /// The cells whose content grows older as `epoch` ends, oldest first: each to the next one.
    pub(super) fn shifts(epoch: u32) -> impl Iterator<Item = usize> {
        let levels = (epoch + 1).trailing_zeros().min(LEVELS);
        let older = (1..=levels).rev().flat_map(|level| {
            let first = 4 + 2 * (level as usize - 1);
            [first + 1, first]
        });
        older.chain((0..4).rev()).filter(|cell| cell + 1 < CELLS)
    }

    /// Ticks for which what is in `cell` now has been there when `epoch` ends, if that is to be
    /// counted now. Cells are looked at twice in their epoch, and every 64 epochs: deaths are told at
    /// once, and the time that goes with them must not come much later.
    pub(super) fn stay(&self, cell: usize, epoch: u32) -> Option<f64> {
        match level(cell) {
            0 => Some(if cell == 0 { self.ticks() / 2.0 } else { self.ticks() }),
            level => {
                let epochs = epochs_between(level);
                (epoch + 1).is_multiple_of(epochs).then(|| self.ticks() * f64::from(epochs))
            }
        }
    }

    /// Ticks for which what is in `cell` now has been there when `epoch` begins, and that [`Self::stay`]
    /// has not counted: not little of all where nothing has been so old before.
    pub(super) fn uncounted(&self, cell: usize, epoch: u32) -> f64 {
        f64::from(epoch % epochs_between(level(cell))) * self.ticks()
    }

    /// Mean age at which a cell is entered, in ticks.
    pub(super) fn start(&self, cell: usize) -> f64 {
        let epochs = match cell {
            0 => 0.0,
            1..4 => cell as f64 - 0.5,
            _ => f64::from(level(cell)).exp2() * if cell.is_multiple_of(2) { 1.75 } else { 2.5 },
        };
        epochs * self.ticks()
    }

    /// Of the shortest epoch.
    fn ticks(&self) -> f64 {
        f64::from(self.shift).exp2()
    }
}

/// Epochs between two looks at the cells of a level.
fn epochs_between(level: u32) -> u32 {
    1 << level.saturating_sub(1).min(6)
}

fn level(cell: usize) -> u32 {
    if cell < 4 { 0 } else { (cell as u32 - 4) / 2 + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_and_cells_agree() {
        let ages = Ages { shift: 3 };
        for born in [0, 7, 8, 40, 999, 4711] {
            let mut cell = 0;
            for epoch in ages.epoch(born)..40_000 {
                assert_eq!(ages.cell(born, epoch << 3), cell, "born {born}, epoch {epoch}");
                if Ages::shifts(epoch).any(|shifted| shifted == cell) {
                    cell += 1;
                }
            }
        }
    }

    #[test]
    fn cells_begin_where_the_last_one_ends() {
        let ages = Ages::new(f64::from(1 << 18));
        let starts: Vec<f64> = (0..CELLS).map(|cell| ages.start(cell)).collect();
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "{starts:?}");
        assert!(starts[CELLS - 1] > f64::from(1 << 22), "{starts:?}");
        assert_eq!(ages.cell(0, u32::MAX), CELLS - 1);
    }

    #[test]
    fn a_stay_is_as_long_as_its_cell() {
        let ages = Ages { shift: 0 };
        for cell in 1..CELLS - 2 {
            let born = (0..1 << 10).map(|birth| birth * 7);
            let mut sum = 0.0;
            for born in born.clone() {
                for epoch in born..born + (8 << level(cell)) {
                    if ages.cell(born, epoch) == cell {
                        sum += ages.stay(cell, epoch).unwrap_or(0.0);
                    }
                }
                if level(cell) > 8 {
                    return;
                }
            }
            let mean = sum / f64::from(1 << 10);
            let width = ages.start(cell + 1) - ages.start(cell);
            assert!((mean / width - 1.0).abs() < 0.2, "cell {cell}: {mean} {width}");
        }
    }
}
