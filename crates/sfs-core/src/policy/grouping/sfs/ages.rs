//! Age cells of half an octave whose blocks grow older together.
//!
//! Time is cut into epochs; each level of cells has epochs twice as long as the level below. At the end of an epoch
//! whole cells move to the next older one. A birth counted in the first cell and moved by every
//! [`Ages::shifts`] is always in the cell that [`Ages::cell`] returns for its time of birth.

/// Number of levels above the youngest level.
const LEVELS: u32 = 16;

/// Number of cells: four on the youngest level, two on each other level.
pub(super) const CELLS: usize = 4 + 2 * LEVELS as usize;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    /// Log2 of the ticks in an epoch of the youngest level.
    shift: u32,
}

impl Ages {
    /// Returns the cells for a volume of `size` ticks. The oldest cell begins at about 20 times
    /// `size`.
    pub(super) fn new(size: f64) -> Self {
        Self { shift: (size.log2() - 13.0).max(0.0) as u32 }
    }

    /// Returns the number of the shortest epoch that contains `time`.
    pub(super) fn epoch(&self, time: u32) -> u32 {
        time >> self.shift
    }

    /// Returns the time at which an epoch begins.
    pub(super) fn time(&self, epoch: u32) -> u32 {
        u32::try_from(u64::from(epoch) << self.shift).unwrap_or(u32::MAX)
    }

    /// Returns the cell of a block written at `born`.
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

    /// Returns the cells whose blocks move to the next older cell when `epoch` ends, oldest first.
    pub(super) fn shifts(epoch: u32) -> impl Iterator<Item = usize> {
        let levels = (epoch + 1).trailing_zeros().min(LEVELS);
        let older = (1..=levels).rev().flat_map(|level| {
            let first = 4 + 2 * (level as usize - 1);
            [first + 1, first]
        });
        older.chain((0..4).rev()).filter(|cell| cell + 1 < CELLS)
    }

    /// Returns the ticks to count at the end of `epoch` for each block in `cell`; `None` if the
    /// cell is not due. A cell is due twice in its own epoch, and at least every 64 short epochs.
    /// Deaths are counted at once, so the time at risk must not be counted much later.
    pub(super) fn stay(&self, cell: usize, epoch: u32) -> Option<f64> {
        match level(cell) {
            0 => Some(if cell == 0 { self.ticks() / 2.0 } else { self.ticks() }),
            level => {
                let epochs = epochs_between(level);
                (epoch + 1).is_multiple_of(epochs).then(|| self.ticks() * f64::from(epochs))
            }
        }
    }

    /// Returns the ticks that each block in `cell` has spent there before `epoch` and that [`Self::stay`] has not
    /// counted yet. These ticks matter in a cell that has had no blocks before.
    pub(super) fn uncounted(&self, cell: usize, epoch: u32) -> f64 {
        f64::from(epoch % epochs_between(level(cell))) * self.ticks()
    }

    /// Returns the mean age at which a block enters a cell, in ticks.
    pub(super) fn start(&self, cell: usize) -> f64 {
        let epochs = match cell {
            0 => 0.0,
            1..4 => cell as f64 - 0.5,
            _ => f64::from(level(cell)).exp2() * if cell.is_multiple_of(2) { 1.75 } else { 2.5 },
        };
        epochs * self.ticks()
    }

    /// Returns the ticks of the shortest epoch.
    fn ticks(&self) -> f64 {
        f64::from(self.shift).exp2()
    }
}

/// Returns the number of short epochs between two counts of the cells of a level.
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
    fn cells_begin_at_growing_ages() {
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
