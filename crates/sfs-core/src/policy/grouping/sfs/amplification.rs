//! Predicted write amplification of a division into groups, for blocks that die at known rates.
//!
//! The cleaner takes the segments of a group at an age x. Then n live blocks with the death rate l
//! occupy n l x / (1 - e^-lx) blocks of segments, and n l / (e^lx - 1) of them are moved per tick:
//! the blocks of all rates in a group are mixed in each segment. The prediction takes the ages at
//! which the fewest blocks in total are moved within the room of the volume.

use super::histogram::{BINS, BINS_PER_OCTAVE, Histogram};
use crate::policy::GROUPS_MAX;

const GROUPS: usize = GROUPS_MAX as usize;

/// Bins of lifetime from one age of cleaning to the next: half an octave.
const BINS_PER_AGE: usize = BINS_PER_OCTAVE / 2;

/// Number of ages of cleaning.
const AGES: usize = BINS / BINS_PER_AGE;

/// Number of halvings of the interval in which the price of room is searched; the interval is 64
/// octaves at first.
const HALVINGS: u32 = 24;

/// Part of an open segment that counts as lost to a group. Half of it is empty on average, but the
/// segments of short-lived blocks, which are cleaned empty, hardly need that room.
const HEAD_LOST: f64 = 0.25;

/// Room for blocks in a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Blocks of all segments that may hold data.
    pub(super) blocks: f64,
    pub(super) segment_blocks: f64,
}

impl Room {
    /// Returns the room beside the open segments of `groups` groups.
    pub(super) fn with_heads(self, groups: usize) -> Self {
        Self { blocks: self.blocks - groups as f64 * self.segment_blocks * HEAD_LOST, ..self }
    }
}

/// The effect of cleaning at an age: blocks occupied, and blocks moved per tick.
#[derive(Clone, Copy, Default)]
struct Effect {
    occupied: f64,
    moved: f64,
}

impl Effect {
    fn add(&mut self, other: Self, count: f64) {
        self.occupied += other.occupied * count;
        self.moved += other.moved * count;
    }
}

/// The effects of cleaning a group, by age.
type Effects = [Effect; AGES];

/// The predictor, with a table of the effects for one block.
pub(super) struct Amplification {
    /// Effects at the death rate of one, by the logarithm of the age in bins; the age of one tick
    /// is in the middle.
    of_block: Box<[Effect; 2 * BINS]>,
}

impl Amplification {
    pub(super) fn new() -> Self {
        let of_block = std::array::from_fn(|index| {
            let x = octaves_to_number(index as f64 - BINS as f64);
            Effect { occupied: x / -(-x).exp_m1(), moved: 1.0 / x.exp_m1() }
        });
        Self { of_block: Box::new(of_block) }
    }

    /// Returns the write amplification for `live` blocks by lifetime, in the groups `of_bin`.
    pub(super) fn predict(&self, live: &Histogram, of_bin: &[u8; BINS], room: Room) -> f64 {
        let mut groups = [[Effect::default(); AGES]; GROUPS];
        let mut died = 0.0;
        for (bin, count) in live.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            let rate = octaves_to_number(-(bin as f64));
            died += count * rate;
            for (age, effect) in groups[usize::from(of_bin[bin]) % GROUPS].iter_mut().enumerate() {
                let Effect { occupied, moved } = self.of_block[BINS + age * BINS_PER_AGE - bin];
                effect.add(Effect { occupied, moved: moved * rate }, *count);
            }
        }
        1.0 + moved_within(room.blocks, &groups) / died.max(f64::MIN_POSITIVE)
    }
}

/// Returns the fewest blocks moved per tick if the groups occupy `room` blocks in total.
fn moved_within(room: f64, groups: &[Effects; GROUPS]) -> f64 {
    let (mut low, mut high) = (-48.0_f64, 16.0);
    for _ in 0..HALVINGS {
        let price = low.midpoint(high);
        if cheapest(price.exp2(), groups).occupied > room { low = price } else { high = price }
    }
    // Some segments may be cleaned at one age, the others at the next.
    let (wide, tight) = (cheapest(low.exp2(), groups), cheapest(high.exp2(), groups));
    let share = (room - tight.occupied) / (wide.occupied - tight.occupied).max(f64::MIN_POSITIVE);
    tight.moved + (wide.moved - tight.moved) * share.clamp(0.0, 1.0)
}

/// Returns the sum of each group's effect at the age that costs it least, at a `price` of an occupied block in moves.
fn cheapest(price: f64, groups: &[Effects; GROUPS]) -> Effect {
    let cost = |effect: &Effect| effect.moved + price * effect.occupied;
    groups.iter().fold(Effect::default(), |mut sum, ages| {
        let least = ages.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        sum.add(least.copied().unwrap_or_default(), 1.0);
        sum
    })
}

/// Returns two to the power of the octaves in `bins` bins.
fn octaves_to_number(bins: f64) -> f64 {
    (bins / BINS_PER_OCTAVE as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { blocks: 1000.0, segment_blocks: 1.0 };

    /// Blocks of one rate follow U = (1 - u) / ln(1 / u), W = 1 / (1 - u) (Menon 1995).
    #[test]
    fn one_rate_agrees_with_the_closed_form() {
        let mut live = [0.0; BINS];
        live[100] = 867.35;
        let found = Amplification::new().predict(&live, &[0; BINS], ROOM);
        assert!((found / 3.952 - 1.0).abs() < 0.03, "{found}");
    }

    /// With nine in ten writes to a tenth of the blocks, the write amplification is 1.91 with a
    /// group for each rate. With one group it is hardly less than that of uniform writes.
    #[test]
    fn two_rates_want_two_groups() {
        let mut live = [0.0; BINS];
        (live[51], live[102]) = (86.7, 780.6);
        let of = |groups| Amplification::new().predict(&live, groups, ROOM);
        let by_rate = std::array::from_fn(|bin| u8::from(bin > 75));
        let apart = of(&by_rate);
        let mixed = of(&[0; BINS]);
        assert!((1.85..2.0).contains(&apart), "{apart}");
        assert!(mixed > 3.5, "{mixed}");
    }
}
