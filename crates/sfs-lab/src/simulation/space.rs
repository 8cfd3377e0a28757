//! How large the volume is.
//!
//! Owns: the sizes, and how they follow from what is asked for.
//! Promises: blocks over all blocks is the utilization asked for, within half a segment.
//! Never: counts the reserve as space for blocks, nor as missing from the utilization.

use anyhow::{Result, bail};

/// Sizes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Space {
    /// Blocks that users have.
    pub blocks: u32,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Segments of the volume.
    pub segments: u32,
    /// Segments that the cleaner keeps clean.
    pub reserve: u32,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct SpaceRequest {
    /// Users' blocks over all blocks, 0..1.
    pub utilization: f64,
    /// Segments that users' blocks fill, about.
    pub live_segments: u32,
    /// Blocks of a segment, if the number of users' blocks may be chosen.
    pub segment_blocks: u32,
    /// Part of the segments that is kept clean.
    pub reserve: f64,
    /// Users' blocks, if they are given.
    pub blocks: Option<u32>,
}

impl SpaceRequest {
    /// A volume like this.
    pub fn space(&self) -> Result<Space> {
        if !(0.01..=0.97).contains(&self.utilization) {
            bail!("the utilization is 0.01 to 0.97");
        }
        if self.live_segments < 16 || self.segment_blocks < 1 {
            bail!("16 live segments of one block at least");
        }
        let (segments, segment_blocks) = match self.blocks {
            None => {
                let segments = f64::from(self.live_segments) / self.utilization;
                (segments.round() as u32, self.segment_blocks)
            }
            Some(blocks) => self.around(blocks),
        };
        let blocks = self.blocks.unwrap_or_else(|| {
            (f64::from(segments) * f64::from(segment_blocks) * self.utilization).round() as u32
        });
        let reserve = ((f64::from(segments) * self.reserve).round() as u32).max(2);
        Ok(Space { blocks, segment_blocks, segments, reserve })
    }

    /// Segments, and blocks of each, around this many blocks: of the sizes near the one asked for,
    /// that which wastes least of the last segment.
    fn around(&self, blocks: u32) -> (u32, u32) {
        let all = f64::from(blocks) / self.utilization;
        let size = f64::from(blocks) / f64::from(self.live_segments);
        let (low, high) = ((size * 0.95).ceil() as u32, (size * 1.05).floor() as u32);
        let waste = |size: u32| {
            let segments = all / f64::from(size);
            (segments - segments.round()).abs() / segments
        };
        let best = (low.max(1)..=high.max(low).max(1))
            .min_by(|a, b| waste(*a).total_cmp(&waste(*b)))
            .unwrap_or(1);
        ((all / f64::from(best)).round() as u32, best)
    }
}

impl Space {
    /// Utilization of what the reserve leaves.
    pub fn utilization_within_reserve(&self) -> f64 {
        f64::from(self.blocks)
            / (f64::from(self.segments - self.reserve) * f64::from(self.segment_blocks))
    }
}
