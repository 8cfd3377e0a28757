//! Wear that a volume must not forget: that of the last durable checkpoint.

use sfs_core::Volume;
use sfs_core::format::WearBytes;

/// Lower bounds of the wear ledger and of the erase cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WearFloor {
    totals: WearBytes,
    device_bytes: u64,
    recovered_chunks: u64,
    /// Erase cycles of each segment.
    erases: Vec<u16>,
}

impl WearFloor {
    /// Returns the present wear of `volume`.
    pub fn of(volume: &Volume) -> Self {
        let wear = volume.wear();
        Self {
            totals: wear.ledger.totals,
            device_bytes: wear.device_bytes,
            recovered_chunks: wear.ledger.recovered_chunks,
            erases: volume.segment_erases(),
        }
    }

    /// Returns this floor without the segments that `now` has not: a volume that has shrunk and grows has new ones there.
    #[must_use]
    pub fn of_segments(mut self, now: &Self) -> Self {
        self.erases.truncate(now.erases.len());
        self
    }

    /// Raises the erase cycles to those of `other`: after a sync, roll-forward finds all segments that were taken into use.
    pub fn raise_erases(&mut self, other: &Self) {
        self.erases.clone_from(&other.erases);
    }

    /// Returns a description of the first count that `found` has less of than this floor; `None` if there is none.
    pub fn missing_in(&self, found: &Self) -> Option<String> {
        let counts = |wear: &Self| {
            let WearBytes { user, cleaning, metadata, defragmentation } = wear.totals;
            [
                ("bytes of users", user),
                ("bytes of cleaning", cleaning),
                ("bytes of metadata", metadata),
                ("bytes of defragmentation", defragmentation),
                ("bytes written", wear.device_bytes),
                ("recovered chunks", wear.recovered_chunks),
            ]
        };
        let mut totals = counts(self).into_iter().zip(counts(found));
        let less = totals.find(|((_, floor), (_, found))| found < floor);
        if let Some(((name, floor), (_, found))) = less {
            return Some(format!("{found} instead of {floor} {name}"));
        }
        let mut segments = (0..).zip(self.erases.iter().zip(&found.erases));
        let less = segments.find(|(_, (floor, found))| found < floor);
        less.map(|(segment, (floor, found))| {
            format!("{found} instead of {floor} erase cycles of segment {segment}")
        })
    }
}
