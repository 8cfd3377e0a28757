//! Which data object holds each region.

use std::collections::BTreeMap;

use crate::name::{Epoch, ObjectName};
use crate::wire::{Decoder, Encoder};

/// Data objects by their region, as runs by their first region. A region without one is zero.
///
/// Memory grows with the number of runs, and so with the bytes of a manifest, whatever its bytes are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionMap(BTreeMap<u64, Run>);

/// Regions that follow each other, whose objects do so as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    count: u64,
    epoch: Epoch,
    /// Number of the first object.
    number: u64,
}

impl Run {
    /// Returns whether `next` goes on where this run, which begins at `first`, ends.
    fn is_followed_by(&self, first: u64, at: u64, next: &Self) -> bool {
        first + self.count == at
            && self.epoch == next.epoch
            && self.number + self.count == next.number
    }
}

impl RegionMap {
    /// Returns the run that has a region, and its first region.
    fn run_of(&self, region: u64) -> Option<(u64, Run)> {
        let (first, run) = self.0.range(..=region).next_back()?;
        (region < first + run.count).then_some((*first, *run))
    }

    /// Returns the number of regions that have an object.
    pub(crate) fn region_count(&self) -> u64 {
        self.0.values().map(|run| run.count).sum()
    }

    pub(crate) fn get(&self, region: u64) -> Option<ObjectName> {
        let (first, run) = self.run_of(region)?;
        Some(ObjectName::Data(run.epoch, run.number + (region - first)))
    }

    pub(crate) fn has(&self, region: u64) -> bool {
        self.run_of(region).is_some()
    }

    /// Notes the object of a region; returns the one before.
    pub(crate) fn set(&mut self, region: u64, (epoch, number): (Epoch, u64)) -> Option<ObjectName> {
        let before = self.remove(region);
        let (mut at, mut run) = (region, Run { count: 1, epoch, number });
        if let Some((first, earlier)) = self.0.range(..region).next_back().map(copied)
            && earlier.is_followed_by(first, region, &run)
        {
            (at, run) = (first, Run { count: earlier.count + 1, ..earlier });
        }
        if let Some(later) = self.0.get(&(region + 1)).copied()
            && run.is_followed_by(at, region + 1, &later)
        {
            self.0.remove(&(region + 1));
            run.count += later.count;
        }
        self.0.insert(at, run);
        before
    }

    /// Notes that a region is zero; returns the object before.
    pub(crate) fn remove(&mut self, region: u64) -> Option<ObjectName> {
        let before = self.get(region)?;
        let (first, run) = self.run_of(region)?;
        self.0.remove(&first);
        let (left, right) = (region - first, first + run.count - region - 1);
        if left > 0 {
            self.0.insert(first, Run { count: left, ..run });
        }
        if right > 0 {
            let number = run.number + left + 1;
            self.0.insert(region + 1, Run { count: right, number, ..run });
        }
        Some(before)
    }

    /// Writes the map as runs: first region, number of regions, epoch and number of the first object.
    pub(crate) fn encode(&self, to: &mut Encoder) {
        to.number(self.0.len() as u64);
        for (first, run) in &self.0 {
            [*first, run.count, run.epoch.0, run.number]
                .into_iter()
                .for_each(|value| to.number(value));
        }
    }

    /// Reads a map of a volume of `regions` regions. Runs are in order.
    pub(crate) fn decode(from: &mut Decoder<'_>, regions: u64) -> Option<Self> {
        let mut map = BTreeMap::new();
        let mut begin = 0;
        for _ in 0..from.number()? {
            let (first, count) = (from.number()?, from.number()?);
            let (epoch, number) = (Epoch(from.number()?), from.number()?);
            let end = first.checked_add(count).filter(|end| *end <= regions)?;
            number.checked_add(count)?;
            if first < begin || count == 0 {
                return None;
            }
            begin = end;
            map.insert(first, Run { count, epoch, number });
        }
        Some(Self(map))
    }
}

fn copied((first, run): (&u64, &Run)) -> (u64, Run) {
    (*first, *run)
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;

    fn read(map: &RegionMap, regions: u64) -> Option<RegionMap> {
        let mut bytes = Encoder::default();
        map.encode(&mut bytes);
        RegionMap::decode(&mut Decoder(&bytes.0), regions)
    }

    #[test]
    fn a_map_of_runs_is_a_map_of_regions() {
        const REGIONS: u64 = 12;
        let (mut map, mut expected) = (RegionMap::default(), BTreeMap::new());
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        for step in 0..20_000u64 {
            let random = hasher.hash_one(step);
            let (region, choice) = (random % REGIONS, random >> 8);
            let name = |(epoch, number)| ObjectName::Data(epoch, number);
            if choice % 4 == 0 {
                assert_eq!(map.remove(region), expected.remove(&region).map(name));
            } else {
                let data = (Epoch(choice % 2), region + choice / 2 % 2);
                assert_eq!(map.set(region, data), expected.insert(region, data).map(name));
            }
            for region in 0..REGIONS {
                assert_eq!(map.get(region), expected.get(&region).copied().map(name));
                assert_eq!(map.has(region), expected.contains_key(&region));
            }
            assert_eq!(read(&map, REGIONS).as_ref(), Some(&map));
            let runs = map.0.iter().zip(map.0.iter().skip(1));
            let mut merged =
                runs.map(|((first, run), (at, next))| run.is_followed_by(*first, *at, next));
            assert!(!merged.any(|is_followed| is_followed), "step {step}: {map:?}");
        }
    }

    #[test]
    fn runs_that_nobody_writes_are_refused() {
        let runs = |runs: &[[u64; 4]]| {
            let mut bytes = Encoder::default();
            bytes.number(runs.len() as u64);
            runs.iter().flatten().for_each(|value| bytes.number(*value));
            RegionMap::decode(&mut Decoder(&bytes.0), 10)
        };
        assert!(runs(&[[0, 4, 1, 1], [4, 6, 1, 9]]).is_some());
        for wrong in [
            &[[0, 4, 1, 1], [3, 1, 1, 9]][..],
            &[[4, 4, 1, 1], [0, 1, 1, 9]],
            &[[0, 0, 1, 1]],
            &[[0, 11, 1, 1]],
            &[[u64::MAX, 2, 1, 1]],
            &[[0, 2, 1, u64::MAX]],
        ] {
            assert_eq!(runs(wrong), None, "{wrong:?}");
        }
    }
}
