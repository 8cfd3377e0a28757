//! Which data object holds each region.

use std::collections::BTreeMap;

use crate::name::{Epoch, ObjectName};
use crate::wire::{Decoder, Encoder};

/// Data objects by their region. A region without one is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionMap(BTreeMap<u64, (Epoch, u64)>);

impl RegionMap {
    pub(crate) fn get(&self, region: u64) -> Option<ObjectName> {
        self.0.get(&region).map(|(epoch, number)| ObjectName::Data(*epoch, *number))
    }

    pub(crate) fn has(&self, region: u64) -> bool {
        self.0.contains_key(&region)
    }

    /// Notes the object of a region; returns the one before.
    pub(crate) fn set(&mut self, region: u64, (epoch, number): (Epoch, u64)) -> Option<ObjectName> {
        let before = self.0.insert(region, (epoch, number));
        before.map(|(epoch, number)| ObjectName::Data(epoch, number))
    }

    /// Notes that a region is zero; returns the object before.
    pub(crate) fn remove(&mut self, region: u64) -> Option<ObjectName> {
        self.0.remove(&region).map(|(epoch, number)| ObjectName::Data(epoch, number))
    }

    /// Writes the map as runs: first region, number of regions, epoch and number of the first object. The objects of a run follow
    /// each other.
    pub(crate) fn encode(&self, to: &mut Encoder) {
        let mut runs: Vec<(u64, u64, Epoch, u64)> = Vec::new();
        for (region, (epoch, number)) in &self.0 {
            match runs.last_mut() {
                Some((first, count, of, begin))
                    if *first + *count == *region && of == epoch && *begin + *count == *number =>
                {
                    *count += 1;
                }
                _ => runs.push((*region, 1, *epoch, *number)),
            }
        }
        to.number(runs.len() as u64);
        for (first, count, epoch, number) in runs {
            [first, count, epoch.0, number].into_iter().for_each(|value| to.number(value));
        }
    }

    /// Reads a map of a volume of `regions` regions.
    pub(crate) fn decode(from: &mut Decoder<'_>, regions: u64) -> Option<Self> {
        let mut map = BTreeMap::new();
        for _ in 0..from.number()? {
            let (first, count) = (from.number()?, from.number()?);
            let (epoch, number) = (Epoch(from.number()?), from.number()?);
            let end = first.checked_add(count).filter(|end| *end <= regions)?;
            number.checked_add(count)?;
            map.extend(
                (first..end).zip(number..).map(|(region, number)| (region, (epoch, number))),
            );
        }
        Some(Self(map))
    }
}
