//! Eras of the chunks on a volume, and the chunks that later eras have overruled.
//!
//! A mount continues the log at the sequence number where the log ends. Chunks that the log has
//! lost after that point may still be whole. The later era begins at or below the number of such
//! chunks, which shows that these chunks never took effect.

use std::collections::BTreeSet;

use sfs_core::format::LogEra;

use crate::read::chunk;
use crate::read::volume::VolumeReader;

/// Known eras of all chunks.
#[derive(Default)]
pub(crate) struct EraTable {
    /// Known eras, ascending, each with the lowest first sequence number of the later ones.
    eras: Vec<(LogEra, u64)>,
}

impl EraTable {
    /// Reads the eras of the chunks in all segments but the `placed` ones.
    pub(crate) fn read(volume: &VolumeReader<'_>, placed: &BTreeSet<u32>) -> Self {
        let segments = (0..volume.layout().segment_count).filter(|at| !placed.contains(at));
        let eras = segments.flat_map(|at| chunk::chunks_with_eras(volume, at)).map(|(_, era)| era);
        Self::new(eras.filter(|era| era.is_known()).collect())
    }

    fn new(eras: BTreeSet<LogEra>) -> Self {
        let mut lowest = u64::MAX;
        let with_lowest = |era: LogEra| {
            let of_later = lowest;
            lowest = lowest.min(era.first_sequence);
            (era, of_later)
        };
        let mut eras: Vec<(LogEra, u64)> = eras.into_iter().rev().map(with_lowest).collect();
        eras.reverse();
        Self { eras }
    }

    /// Returns whether a later era has overruled the chunk with this `era` and `sequence` number. A
    /// chunk of an unknown era is never overruled.
    pub(crate) fn is_overruled(&self, era: LogEra, sequence: u64) -> bool {
        let position = self.eras.binary_search_by_key(&era, |(era, _)| *era);
        position.is_ok_and(|index| self.eras[index].1 <= sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_after_the_beginning_of_a_later_era_is_overruled() {
        let era = |mount, first| LogEra::of_mount(mount, first);
        // The second era has lost its log from 30 on; the third from 50 on, without a new number.
        let (first, second, third, fourth) = (era(1, 1), era(2, 20), era(3, 30), era(3, 50));
        let table = EraTable::new([first, second, third, fourth].into_iter().collect());
        assert!(!table.is_overruled(first, 19));
        assert!(table.is_overruled(first, 20));
        assert!(!table.is_overruled(second, 29));
        assert!(table.is_overruled(second, 30));
        assert!(!table.is_overruled(third, 49));
        assert!(table.is_overruled(third, 50));
        assert!(!table.is_overruled(fourth, 1 << 60));
        assert!(!table.is_overruled(LogEra::UNKNOWN, 40));
    }
}
