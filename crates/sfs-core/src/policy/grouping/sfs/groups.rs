//! Groups by expected remaining lifetime: iterative quantization of its logarithm.
//!
//! Written and moved blocks are quantized into one group, two groups, and so on. The division with the least predicted
//! write amplification is taken. A group keeps its number while it exists, because open segments are named by group.

use super::super::quantization::{Partition, Quantization};
use super::amplification::{Amplification, Room};
use super::histogram::{BINS, Histogram, bin, octaves};
use crate::format::Group;
use crate::policy::GROUPS_MAX;

const GROUPS: usize = GROUPS_MAX as usize;

/// Share of the predicted amplification that a change of the number of groups has to save.
const GAIN_MIN: f64 = 0.005;

/// Centres by group number; `None` for a number without a group.
pub(super) type Centres = [Option<f64>; GROUPS];

pub(super) struct Groups {
    pub(super) count_max: u8,
    pub(super) centres: Centres,
    of_bin: [u8; BINS],
    /// The quantization into each number of groups.
    quantizations: [Quantization; GROUPS],
    amplification: Amplification,
}

impl Groups {
    pub(super) fn new(count_max: u8) -> Self {
        let quantization = |index| Quantization::new(Partition::Iterative, index as u8 + 1);
        Self {
            count_max,
            centres: [None; GROUPS],
            of_bin: [0; BINS],
            quantizations: std::array::from_fn(quantization),
            amplification: Amplification::new(),
        }
    }

    /// Returns the group of a block with this expected remaining lifetime, log2 of ticks.
    pub(super) fn group(&self, remaining: f64) -> u8 {
        self.of_bin[bin(remaining)]
    }

    /// Returns whether any block belongs to the group.
    pub(super) fn is_in_use(&self, group: Group) -> bool {
        self.of_bin.contains(&group.0)
    }

    /// Limits the number of groups from the next draw on. Centres with a higher number are dropped.
    pub(super) fn limit(&mut self, count_max: u8) {
        self.count_max = count_max;
        self.centres[usize::from(count_max)..].fill(None);
    }

    /// Draws the groups anew for blocks that were written and moved (`traffic`) in a volume of `live` blocks.
    pub(super) fn draw(&mut self, traffic: &Histogram, live: &Histogram, room: Room) {
        let values = (0..BINS).map(|bin| (octaves(bin), traffic[bin]));
        let values = values.filter(|(_, weight)| *weight > 0.0);
        let current = self.centres.iter().flatten().count().max(1);
        let mut least: Option<(f64, usize)> = None;
        for groups in 1..=usize::from(self.count_max) {
            let quantization = &mut self.quantizations[groups - 1];
            quantization.draw_weighted(values.clone());
            let of_bin = std::array::from_fn(|bin| quantization.group(octaves(bin)).0);
            let predicted = self.amplification.predict(live, &of_bin, room.with_heads(groups));
            let cost = if groups == current { predicted * (1.0 - GAIN_MIN) } else { predicted };
            if least.is_none_or(|(least, _)| cost < least) {
                least = Some((cost, groups));
            }
        }
        let drawn = least.and_then(|(_, groups)| self.quantizations[groups - 1].centres());
        if let Some(drawn) = drawn {
            self.centres = numbered(drawn, &self.centres);
            self.assign();
        }
    }

    /// Restores the centres of a saved state.
    pub(super) fn restore(&mut self, centres: Centres) {
        self.centres = centres;
        let mut known = [0.0; GROUPS];
        let count = known.iter_mut().zip(centres.iter().flatten()).map(|(k, c)| *k = *c).count();
        if let Some(index) = count.checked_sub(1) {
            self.quantizations[index].warm_start(&known[..count]);
        }
        self.assign();
    }

    /// Assigns every bin to its nearest centre.
    fn assign(&mut self) {
        for bin in 0..BINS {
            self.of_bin[bin] = self.nearest(octaves(bin)) as u8;
        }
    }

    fn nearest(&self, value: f64) -> usize {
        let distance = |group: usize| self.centres[group].map_or(f64::MAX, |c| (c - value).abs());
        (0..GROUPS).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(0)
    }
}

/// Returns the `drawn` centres by group number. Each centre keeps the number of the `known` centre
/// that it is closest to, the closest pair first; a centre that is left over takes a free number.
fn numbered(drawn: &[f64], known: &Centres) -> Centres {
    let mut left: Centres = [None; GROUPS];
    left.iter_mut().zip(drawn).for_each(|(left, centre)| *left = Some(*centre));
    let mut centres = [None; GROUPS];
    while let Some((group, index)) = closest(&left, known, &centres) {
        centres[group] = left[index].take();
    }
    for centre in left.into_iter().flatten() {
        if let Some(free) = centres.iter_mut().find(|centre| centre.is_none()) {
            *free = Some(centre);
        }
    }
    centres
}

/// Returns the number of the known centre, and the index of the centre `left`, that are closest to each other. Numbers in
/// `taken` are left out.
fn closest(left: &Centres, known: &Centres, taken: &Centres) -> Option<(usize, usize)> {
    let mut closest: Option<(f64, (usize, usize))> = None;
    for (group, known) in known.iter().enumerate().filter(|(group, _)| taken[*group].is_none()) {
        for (index, centre) in left.iter().enumerate() {
            let Some(distance) = known.zip(*centre).map(|(a, b)| (a - b).abs()) else { continue };
            if closest.is_none_or(|(least, _)| distance < least) {
                closest = Some((distance, (group, index)));
            }
        }
    }
    closest.map(|(_, pair)| pair)
}

#[cfg(test)]
mod tests {
    use super::super::histogram::EMPTY;
    use super::*;

    const ROOM: Room = Room { blocks: 100_000.0, segment_blocks: 64.0 };

    fn traffic(peaks: &[f64]) -> Histogram {
        let mut traffic = EMPTY;
        for peak in peaks {
            traffic[bin(*peak)] = 1.0;
        }
        traffic
    }

    /// Returns numbers of live blocks by lifetime, so that blocks of each lifetime die equally
    /// often.
    fn live(peaks: &[f64]) -> Histogram {
        let mut live = EMPTY;
        let sum: f64 = peaks.iter().map(|peak| peak.exp2()).sum();
        for peak in peaks {
            live[bin(*peak)] += peak.exp2() / sum * 85_000.0;
        }
        live
    }

    #[test]
    fn peaks_of_traffic_get_groups_that_keep_their_numbers() {
        let mut groups = Groups::new(8);
        let peaks = [8.0, 12.0, 16.0];
        groups.draw(&traffic(&peaks), &live(&peaks), ROOM);
        let of = |groups: &Groups| peaks.map(|peak| groups.group(peak));
        let before = of(&groups);
        assert_eq!(groups.centres.iter().flatten().count(), 3, "{:?}", groups.centres);
        assert!(before[0] != before[1] && before[1] != before[2] && before[0] != before[2]);
        let peaks = [8.25, 12.0, 16.0, 20.0];
        groups.draw(&traffic(&peaks), &live(&peaks), ROOM);
        assert_eq!(of(&groups), before);
    }

    #[test]
    fn blocks_that_live_equally_long_get_one_group() {
        let mut groups = Groups::new(8);
        let peaks = [15.9, 16.0, 16.1];
        groups.draw(&traffic(&peaks), &live(&peaks), ROOM);
        assert_eq!(groups.centres.iter().flatten().count(), 1, "{:?}", groups.centres);
        groups.draw(&EMPTY, &EMPTY, ROOM);
        assert!(groups.group(40.0) < 8);
    }

    /// A group that would help in a large volume does not pay for its open segment in a small one.
    #[test]
    fn few_segments_get_few_groups() {
        let count = |segment_blocks| {
            let mut groups = Groups::new(8);
            let peaks = [13.0, 14.0, 15.0, 16.0, 17.0, 18.0];
            let room = Room { segment_blocks, ..ROOM };
            groups.draw(&traffic(&peaks), &live(&peaks), room);
            groups.centres.iter().flatten().count()
        };
        assert!(count(4096.0) < count(16.0), "{} {}", count(4096.0), count(16.0));
    }
}
