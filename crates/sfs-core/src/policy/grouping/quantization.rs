//! Iterative segment quantization (SFS), and the two partitions that the paper compares it with.
//!
//! [`Quantization::draw`] divides values into groups, in falling order of their centres. A draw does not allocate and
//! takes at most three rounds.

use crate::format::Group;
use crate::policy::GROUPS_MAX;

const GROUPS: usize = GROUPS_MAX as usize;

/// Maximum number of rounds of assigning values to centres and moving the centres.
const ROUNDS: u32 = 3;

/// The rule by which values are divided into groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// Assigns each value to the nearest centre; each centre is the mean of its values.
    #[default]
    Iterative,
    /// Divides the range into equal parts.
    EqualWidth,
    /// Divides the values into equal numbers.
    EqualCount,
}

/// A division of values into groups; group 0 has the largest values.
#[derive(Clone, Copy, Debug)]
pub struct Quantization {
    partition: Partition,
    count: usize,
    centres: [f64; GROUPS],
    /// Lower bound of each group but the last.
    bounds: [f64; GROUPS],
    /// `true` once there are centres to start from.
    warm: bool,
}

impl Quantization {
    /// Returns a quantization into `groups` groups, clamped to 1..=[`GROUPS_MAX`].
    pub fn new(partition: Partition, groups: u8) -> Self {
        let count = usize::from(groups.clamp(1, GROUPS_MAX));
        Self { partition, count, centres: [0.0; GROUPS], bounds: [0.0; GROUPS], warm: false }
    }

    /// Returns the rule of division.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// Returns the number of groups.
    pub fn group_count(&self) -> u8 {
        self.count as u8
    }

    /// Returns the centres in falling order; `None` before the first [`Quantization::draw`].
    pub fn centres(&self) -> Option<&[f64]> {
        self.warm.then_some(&self.centres[..self.count])
    }

    /// Sets the centres to start from. Returns `false`, without effect, unless there is one finite number for
    /// each group.
    pub fn warm_start(&mut self, centres: &[f64]) -> bool {
        if centres.len() != self.count || centres.iter().any(|centre| !centre.is_finite()) {
            return false;
        }
        self.centres[..self.count].copy_from_slice(centres);
        self.order();
        true
    }

    /// Returns the group of a value.
    pub fn group(&self, value: f64) -> Group {
        let bounds = &self.bounds[..self.count - 1];
        Group(bounds.iter().map(|bound| u8::from(value < *bound)).sum())
    }

    /// Computes the groups anew for `values`, which are finite; may reorder them.
    ///
    /// Without values nothing changes. With no more values than groups each value is a centre, and
    /// the smallest value is also the centre of the groups left over. Otherwise
    /// [`Partition::Iterative`] moves a centre without values to the value that is farthest from
    /// its own centre, one centre a round. Hotness falls as a volume grows, so a centre at an old
    /// high value would never get values again.
    pub fn draw(&mut self, values: &mut [f64]) {
        if values.is_empty() {
            return;
        }
        if values.len() <= self.count {
            values.sort_unstable_by(|a, b| b.total_cmp(a));
            self.centres = std::array::from_fn(|group| values[group.min(values.len() - 1)]);
            self.order();
            return;
        }
        match self.partition {
            Partition::Iterative => {
                if !self.warm {
                    self.equal_count(values);
                    self.order();
                }
                self.iterate(values.iter().map(|value| (*value, 1.0)));
            }
            Partition::EqualWidth => self.equal_width(values),
            Partition::EqualCount => self.equal_count(values),
        }
    }

    /// Computes the groups anew for values with weights above zero, by [`Partition::Iterative`]; without values
    /// nothing changes.
    pub fn draw_weighted(&mut self, values: impl Iterator<Item = (f64, f64)> + Clone) {
        let range =
            |(low, high): (f64, f64), (value, _): (f64, f64)| (low.min(value), high.max(value));
        let (low, high) = values.clone().fold((f64::INFINITY, f64::NEG_INFINITY), range);
        if low > high {
            return;
        }
        if !self.warm {
            let width = (high - low) / self.count as f64;
            self.centres = std::array::from_fn(|group| high - width * (group as f64 + 0.5));
            self.order();
        }
        self.iterate(values);
    }

    fn iterate(&mut self, values: impl Iterator<Item = (f64, f64)> + Clone) {
        for _ in 0..ROUNDS {
            let mut sums = [0.0; GROUPS];
            let mut weights = [0.0; GROUPS];
            let mut farthest = (0.0, 0.0);
            for (value, weight) in values.clone() {
                let group = self.group(value).index() % GROUPS;
                sums[group] += value * weight;
                weights[group] += weight;
                let distance = (value - self.centres[group]).abs();
                if distance > farthest.0 {
                    farthest = (distance, value);
                }
            }
            let before = self.centres;
            if let Some(empty) = weights[..self.count].iter().position(|weight| *weight == 0.0)
                && farthest.0 > 0.0
            {
                (sums[empty], weights[empty]) = (farthest.1, 1.0);
            }
            for group in 0..self.count {
                if weights[group] > 0.0 {
                    self.centres[group] = sums[group] / weights[group];
                }
            }
            self.order();
            if self.centres == before {
                break;
            }
        }
    }

    fn equal_width(&mut self, values: &[f64]) {
        let (low, high) = values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
        let width = (high - low) / self.count as f64;
        for group in 0..self.count {
            self.bounds[group] = high - width * (group + 1) as f64;
            self.centres[group] = self.bounds[group] + width / 2.0;
        }
        self.warm = true;
    }

    fn equal_count(&mut self, values: &mut [f64]) {
        values.sort_unstable_by(|a, b| b.total_cmp(a));
        for group in 0..self.count {
            let end = values.len() * (group + 1) / self.count;
            let part = &values[values.len() * group / self.count..end];
            self.bounds[group] = part[part.len() - 1];
            self.centres[group] = part.iter().sum::<f64>() / part.len() as f64;
        }
        self.warm = true;
    }

    /// Sorts the centres and sets the bounds half way between neighbours.
    fn order(&mut self) {
        let centres = &mut self.centres[..self.count];
        centres.sort_unstable_by(|a, b| b.total_cmp(a));
        for (bound, pair) in self.bounds.iter_mut().zip(centres.windows(2)) {
            *bound = pair[0].midpoint(pair[1]);
        }
        self.warm = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(partition: Partition, groups: u8, values: &[f64]) -> Quantization {
        let mut quantization = Quantization::new(partition, groups);
        quantization.draw(&mut values.to_vec());
        quantization
    }

    const VALUES: [f64; 8] = [1.0, 2.0, 100.0, 101.0, 102.0, 1000.0, 1010.0, 5.0];

    #[test]
    fn iterative_quantization_finds_clusters() {
        let quantization = drawn(Partition::Iterative, 3, &VALUES);
        assert_eq!(quantization.centres(), Some(&[1005.0, 101.0, 8.0 / 3.0][..]));
        assert_eq!(
            [2000.0, 600.0, 500.0, 60.0, 50.0].map(|v| quantization.group(v).0),
            [0, 0, 1, 1, 2]
        );
    }

    #[test]
    fn equal_partitions_divide_range_or_count() {
        let width = drawn(Partition::EqualWidth, 4, &[0.0, 1.0, 2.0, 3.0, 8.0]);
        assert_eq!(width.centres(), Some(&[7.0, 5.0, 3.0, 1.0][..]));
        assert_eq!([8.0, 5.0, 3.0, 1.0].map(|v| width.group(v).0), [0, 1, 2, 3]);
        let count = drawn(Partition::EqualCount, 2, &VALUES);
        assert_eq!(VALUES.map(|v| count.group(v).0), [1, 1, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn few_values_become_centres_and_an_empty_cluster_moves() {
        let mut quantization = drawn(Partition::Iterative, 3, &[7.0, 3.0]);
        assert_eq!(quantization.centres(), Some(&[7.0, 3.0, 3.0][..]));
        quantization.draw(&mut []);
        assert_eq!(quantization.centres(), Some(&[7.0, 3.0, 3.0][..]));
        quantization.draw(&mut [7.0; 9]);
        assert_eq!(quantization.centres(), Some(&[7.0, 3.0, 3.0][..]));
        quantization.draw(&mut [7.0, 7.0, 6.0, 1.0]);
        assert_eq!(quantization.centres(), Some(&[7.0, 6.0, 1.0][..]));
        assert!(!quantization.warm_start(&[1.0, f64::NAN, 2.0]));
        assert!(quantization.warm_start(&[1.0, 2.0, 4.0]));
        assert_eq!(quantization.centres(), Some(&[4.0, 2.0, 1.0][..]));
    }
}
