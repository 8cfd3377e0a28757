//! The write cache: sectors that the drive has acknowledged and not yet written to the platters.
//!
//! Neighbouring and overlapping writes become one extent. The drive writes pieces of extents to the
//! platters when its mechanics would be idle, when the cache is full, and all of them for a flush.

use std::collections::BTreeMap;

/// Acknowledged sectors by their first sector; extents neither overlap nor touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteCache {
    /// Number of sectors of each extent, and the time at which its first sectors arrived. Later ones of an extent
    /// that grows arrive while the drive writes the first ones.
    extents: BTreeMap<u64, (u64, u64)>,
    sectors: u64,
}

/// A run of sectors in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// Time at which the first sectors arrived, in nanoseconds.
    pub(crate) arrived_ns: u64,
}

impl WriteCache {
    /// Returns the number of sectors.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Iterates over the extents in the order of their sectors.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.extents.iter().map(|(&first, &(count, arrived_ns))| Extent {
            first,
            count,
            arrived_ns,
        })
    }

    /// Returns whether all sectors of a run are in the cache.
    pub(crate) fn contains(&self, first: u64, count: u64) -> bool {
        let before = self.extents.range(..=first).next_back();
        before.is_some_and(|(&start, &(len, _))| first + count <= start + len)
    }

    /// Adds a run of sectors.
    pub(crate) fn add(&mut self, first: u64, count: u64, arrived_ns: u64) {
        let (mut start, mut end, mut arrived_ns) = (first, first + count, arrived_ns);
        let touching: Vec<u64> = self
            .extents
            .range(..=end)
            .rev()
            .take_while(|(other, (len, _))| *other + len >= start)
            .map(|(&other, _)| other)
            .collect();
        for other in touching {
            let (len, other_ns) = self.extents.remove(&other).expect("the extent was found");
            self.sectors -= len;
            start = start.min(other);
            end = end.max(other + len);
            arrived_ns = arrived_ns.min(other_ns);
        }
        self.extents.insert(start, (end - start, arrived_ns));
        self.sectors += end - start;
    }

    /// Removes the first `count` sectors of the extent that begins at `first`.
    pub(crate) fn take(&mut self, first: u64, count: u64) {
        let (len, arrived_ns) = self.extents.remove(&first).expect("an extent of the cache");
        self.sectors -= count;
        if len > count {
            self.extents.insert(first + count, (len - count, arrived_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(cache: &WriteCache) -> Vec<(u64, u64, u64)> {
        cache.extents().map(|extent| (extent.first, extent.count, extent.arrived_ns)).collect()
    }

    #[test]
    fn touching_and_overlapping_runs_become_one() {
        let mut cache = WriteCache::default();
        cache.add(10, 5, 1);
        cache.add(30, 5, 2);
        cache.add(20, 5, 3);
        assert_eq!(shown(&cache), [(10, 5, 1), (20, 5, 3), (30, 5, 2)]);
        cache.add(15, 5, 4);
        assert_eq!(shown(&cache), [(10, 15, 1), (30, 5, 2)]);
        cache.add(12, 2, 5);
        cache.add(24, 7, 6);
        assert_eq!(shown(&cache), [(10, 25, 1)]);
        assert_eq!(cache.sectors(), 25);
        assert!(cache.contains(10, 25) && !cache.contains(9, 2) && !cache.contains(34, 2));
        cache.take(10, 20);
        assert_eq!((shown(&cache), cache.sectors()), (vec![(30, 5, 1)], 5));
        cache.take(30, 5);
        assert!(cache.is_empty());
    }
}
