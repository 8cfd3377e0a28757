//! Wear of the device, for its owner.

use sfs_device::BLOCK_SIZE;

use super::Volume;
use crate::format::{ErrorKind, UsageEntry};
use crate::request::{Erases, Wear};

impl Volume {
    /// Returns the wear of the device since the volume was made, this mount included.
    pub fn wear(&self) -> Wear {
        let erases = erases_of(self.metadata.read().usage.entries());
        Wear {
            ledger: self.wear.ledger(),
            device_bytes: self.wear.device_bytes(),
            volume_bytes: self.layout().block_count * BLOCK_SIZE as u64,
            erases,
        }
    }

    /// Returns the erase cycles of each segment.
    pub fn segment_erases(&self) -> Vec<u16> {
        self.metadata.read().usage.entries().iter().map(|entry| entry.erases).collect()
    }

    /// Notes that writing a MiB took `micros` microseconds, as the mean over a long stretch. The first measurements of a volume
    /// are what later ones are compared with; a long row of far slower ones counts as an error of the device.
    pub fn note_write_speed(&self, micros: u32) {
        if self.wear.note_write_speed(micros) {
            self.health.note_error(ErrorKind::SlowWrite, 0);
        }
    }
}

fn erases_of(entries: &[UsageEntry]) -> Erases {
    let mut erases = Erases { segments: entries.len() as u32, ..Erases::default() };
    for (segment, entry) in (0..).zip(entries) {
        erases.total += u64::from(entry.erases);
        if entry.erases > erases.max {
            (erases.max, erases.max_segment) = (entry.erases, segment);
        }
    }
    erases
}
