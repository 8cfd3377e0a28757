//! Groups by expected remaining lifetime: centres on the logarithm of the lifetime.
//!
//! A centre keeps its group number while it exists, because open segments are named by group. No two centres are
//! closer than [`CLOSE`], and each pair separates at least [`SLIGHT`] of the traffic's scatter.

use crate::format::Group;
use crate::policy::GROUPS_MAX;

const GROUPS: usize = GROUPS_MAX as usize;

/// Bins in an octave of remaining lifetime.
const BINS_PER_OCTAVE: f64 = 8.0;

/// Number of bins, for 32 octaves.
const BINS: usize = 256;

/// Distance in octaves below which two centres are merged.
const CLOSE: f64 = 0.75;

/// Scatter in octaves squared, as a share of all traffic, below which two centres are merged. A group costs half
/// a segment, however little is written to it.
const SLIGHT: f64 = 0.02;

const ROUNDS: u32 = 8;

/// Traffic by expected remaining lifetime.
pub(super) type Histogram = [f64; BINS];

pub(super) const NO_TRAFFIC: Histogram = [0.0; BINS];

pub(super) fn bin(remaining: f64) -> usize {
    ((remaining * BINS_PER_OCTAVE) as usize).min(BINS - 1)
}

fn octaves(bin: usize) -> f64 {
    (bin as f64 + 0.5) / BINS_PER_OCTAVE
}

#[derive(Clone, Copy, Debug, Default)]
struct Cluster {
    weight: f64,
    sum: f64,
    squares: f64,
}

impl Cluster {
    fn mean(&self) -> f64 {
        self.sum / self.weight
    }

    fn scatter(&self) -> f64 {
        (self.squares - self.sum * self.mean()).max(0.0)
    }
}

pub(super) struct Groups {
    pub(super) count_max: u8,
    pub(super) centres: [Option<f64>; GROUPS],
    of_bin: [Group; BINS],
}

impl Groups {
    pub(super) fn new(count_max: u8) -> Self {
        Self { count_max, centres: [None; GROUPS], of_bin: [Group(0); BINS] }
    }

    /// Returns the group of a block with this expected remaining lifetime, log2 of ticks.
    pub(super) fn group(&self, remaining: f64) -> Group {
        self.of_bin[bin(remaining)]
    }

    /// Moves the centres to the current traffic.
    pub(super) fn draw(&mut self, traffic: &Histogram) {
        let known = self.centres;
        self.split(traffic);
        for _ in 0..ROUNDS {
            let clusters = self.clusters(traffic);
            for (centre, cluster) in self.centres.iter_mut().zip(&clusters) {
                *centre = centre.and((cluster.weight > 0.0).then(|| cluster.mean()));
            }
        }
        while self.merge(traffic, &known) {}
        self.assign();
    }

    /// Assigns every bin to its nearest centre.
    pub(super) fn assign(&mut self) {
        for bin in 0..BINS {
            self.of_bin[bin] = Group(self.nearest(octaves(bin)) as u8);
        }
    }

    fn nearest(&self, value: f64) -> usize {
        let distance = |group: usize| self.centres[group].map_or(f64::MAX, |c| (c - value).abs());
        (0..GROUPS).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(0)
    }

    fn clusters(&self, traffic: &Histogram) -> [Cluster; GROUPS] {
        let mut clusters = [Cluster::default(); GROUPS];
        for (bin, weight) in traffic.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            let value = octaves(bin);
            let cluster = &mut clusters[self.nearest(value)];
            cluster.weight += weight;
            cluster.sum += weight * value;
            cluster.squares += weight * value * value;
        }
        clusters
    }

    /// Splits the cluster with the most scatter until there are as many centres as allowed.
    fn split(&mut self, traffic: &Histogram) {
        while self.centres.iter().flatten().count() < usize::from(self.count_max) {
            let clusters = self.clusters(traffic);
            let worst = (0..GROUPS)
                .max_by(|a, b| clusters[*a].scatter().total_cmp(&clusters[*b].scatter()))
                .unwrap_or(0);
            let cluster = clusters[worst];
            if cluster.weight <= 0.0 {
                return;
            }
            let Some(free) = self.centres.iter().position(Option::is_none) else { return };
            let deviation = (cluster.scatter() / cluster.weight).sqrt();
            if self.centres[worst].is_none() {
                self.centres[worst] = Some(cluster.mean());
            } else if deviation > CLOSE / 4.0 {
                self.centres[worst] = Some(cluster.mean() - deviation);
                self.centres[free] = Some(cluster.mean() + deviation);
            } else {
                return;
            }
        }
    }

    /// Merges the closest two centres that are too close or separate too little traffic for the cost of a group.
    /// The centre that existed before keeps its number. Returns `false` if no pair qualifies.
    fn merge(&mut self, traffic: &Histogram, known: &[Option<f64>; GROUPS]) -> bool {
        let clusters = self.clusters(traffic);
        let all: f64 = clusters.iter().map(|cluster| cluster.weight).sum();
        let mut closest: Option<(f64, usize, usize)> = None;
        for a in 0..GROUPS {
            for b in a + 1..GROUPS {
                let (Some(x), Some(y)) = (self.centres[a], self.centres[b]) else { continue };
                let distance = (x - y).abs();
                let (v, w) = (clusters[a].weight, clusters[b].weight);
                let separated = v * w / (v + w).max(f64::MIN_POSITIVE) * distance * distance;
                if (distance < CLOSE || separated < SLIGHT * all)
                    && closest.is_none_or(|(least, ..)| distance < least)
                {
                    closest = Some((distance, a, b));
                }
            }
        }
        let Some((_, a, b)) = closest else { return false };
        let weight = clusters[a].weight + clusters[b].weight;
        let heavier = if clusters[a].weight < clusters[b].weight { b } else { a };
        let stays = match (known[a], known[b]) {
            (Some(_), None) => a,
            (None, Some(_)) => b,
            _ => heavier,
        };
        self.centres[a + b - stays] = None;
        if weight > 0.0 {
            self.centres[stays] = Some((clusters[a].sum + clusters[b].sum) / weight);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(peaks: &[f64]) -> Histogram {
        let mut traffic = NO_TRAFFIC;
        for peak in peaks {
            traffic[bin(*peak)] = 1.0;
        }
        traffic
    }

    #[test]
    fn peaks_of_traffic_get_centres_that_keep_their_numbers() {
        let mut groups = Groups::new(8);
        groups.draw(&traffic(&[3.0, 9.0, 15.0]));
        let of = |groups: &Groups| [3.0, 9.0, 15.0].map(|peak| groups.group(peak));
        let before = of(&groups);
        assert_eq!(groups.centres.iter().flatten().count(), 3);
        assert!(before[0] != before[1] && before[1] != before[2] && before[0] != before[2]);
        groups.draw(&traffic(&[3.25, 9.0, 15.0, 20.0]));
        assert_eq!(of(&groups), before);
        groups.draw(&traffic(&[9.0, 9.25, 9.5]));
        assert_eq!(groups.centres.iter().flatten().count(), 1);
        groups.draw(&NO_TRAFFIC);
        assert!(groups.group(40.0) < Group(8));
    }
}
