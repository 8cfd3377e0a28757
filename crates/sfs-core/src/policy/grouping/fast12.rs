//! SFS as the paper has it (FAST 2012): blocks of similar hotness go to the same group.
//!
//! A segment writing draws the groups anew from the hotness of the Sealed segments, by
//! [`Quantization`]. The hotness of a block is computed before its write: write count over the time
//! since the previous write. The paper leaves the moment open. If the hotness were computed after
//! the write, every new block would be hot.

use super::quantization::{Partition, Quantization};
use super::{Candidate, GroupingPolicy};
use crate::format::{Group, UsageEntry};
use crate::policy::hotness::{holds_data, hotness, segment_hotness};
use crate::policy::{GROUPS_MAX, SavedState};

/// The scale on which hotness is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distance {
    /// The difference, as in the paper.
    #[default]
    Linear,
    /// The difference of the logarithms.
    Log,
}

/// Least hotness on the logarithmic scale: less than one write in the whole range of the clock.
const HOTNESS_MIN: f64 = 1e-10;

/// The SFS policy of the paper, and its variants: groups by hotness.
#[derive(Clone, Debug)]
pub struct Fast12 {
    distance: Distance,
    quantization: Quantization,
    /// Hotness of each Sealed segment; scratch memory of `begin`.
    values: Vec<f64>,
}

impl Fast12 {
    /// Number of groups in the paper: hot, warm, cold, read-only.
    pub const GROUPS: u8 = 4;

    /// Returns the policy for a volume of `segments`; `begin` ignores all segments beyond that
    /// number.
    pub fn new(distance: Distance, partition: Partition, groups: u8, segments: u32) -> Self {
        Self {
            distance,
            quantization: Quantization::new(partition, groups),
            values: Vec::with_capacity(segments as usize),
        }
    }

    fn scale(&self, hotness: f64) -> f64 {
        match self.distance {
            Distance::Linear => hotness,
            Distance::Log => hotness.max(HOTNESS_MIN).log2(),
        }
    }
}

impl SavedState for Fast12 {
    const STATE_LEN_MAX: usize = GROUPS_MAX as usize * size_of::<f64>();
}

impl GroupingPolicy for Fast12 {
    fn name(&self) -> &'static str {
        match (self.distance, self.quantization.partition()) {
            (Distance::Linear, Partition::Iterative) => "sfs-fast12",
            (Distance::Log, _) => "sfs-log",
            (Distance::Linear, Partition::EqualWidth) => "sfs-equal-width",
            (Distance::Linear, Partition::EqualCount) => "sfs-equal-count",
        }
    }

    fn group_count(&self) -> u8 {
        self.quantization.group_count()
    }

    fn begin(&mut self, segments: &[UsageEntry], _segment_blocks: u32, now: u32) {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        let hotnesses = segments.iter().filter(|segment| holds_data(segment));
        let hotnesses = hotnesses.map(|segment| self.scale(segment_hotness(segment, now)));
        values.extend(hotnesses.take(values.capacity()));
        self.quantization.draw(&mut values);
        self.values = values;
    }

    fn group(&self, candidate: &Candidate, now: u32) -> Group {
        let hotness = match candidate.history {
            Some(history) => hotness(history.write_count().into(), history.modified, now),
            None => hotness(candidate.file_write_count, candidate.file_modified, now),
        };
        self.quantization.group(self.scale(hotness))
    }

    fn centres(&self) -> &[f64] {
        self.quantization.centres().unwrap_or(&[])
    }

    fn save(&self, state: &mut Vec<u8>) {
        for centre in self.quantization.centres().unwrap_or_default() {
            state.extend_from_slice(&centre.to_le_bytes());
        }
    }

    fn restore(&mut self, state: &[u8]) {
        let (centres, []) = state.as_chunks() else { return };
        if centres.len() <= usize::from(GROUPS_MAX) {
            let mut numbers = [0.0; GROUPS_MAX as usize];
            for (number, bytes) in numbers.iter_mut().zip(centres) {
                *number = f64::from_le_bytes(*bytes);
            }
            self.quantization.warm_start(&numbers[..centres.len()]);
        }
    }
}
