//! The sizes of a simulated volume, and their choice for a wanted utilization.
//!
//! The number of users' blocks over the number of all blocks, the reserve included, equals the
//! wanted utilization within half a segment.

use anyhow::{Result, bail};

/// Smallest number of users' blocks.
const BLOCKS_MIN: u32 = 16;

/// Largest number of blocks of a volume; each takes some 20 bytes of memory.
const SLOTS_MAX: u64 = 1 << 30;

/// Sizes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct VolumeSize {
    /// Number of users' blocks.
    pub blocks: u32,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Number of segments, the reserve included.
    pub segments: u32,
    /// Number of segments that the cleaner keeps clean.
    pub reserve_segments: u32,
}

/// Parameters of a volume to simulate.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSizeRequest {
    /// Number of users' blocks over number of all blocks, 0.01..=0.97.
    pub utilization: f64,
    /// Approximate number of segments that users' blocks fill, at least 16.
    pub live_segments: u32,
    /// Number of blocks in a segment; ignored if `blocks` is given.
    pub segment_blocks: u32,
    /// Part of the segments, 0..1, that is kept clean; at least two segments are kept clean.
    pub reserve: f64,
    /// Number of users' blocks, if it is given.
    pub blocks: Option<u32>,
}

impl VolumeSizeRequest {
    /// Returns the sizes.
    ///
    /// # Errors
    ///
    /// If the utilization or the number of live segments is out of range.
    pub fn sizes(&self) -> Result<VolumeSize> {
        if !(0.01..=0.97).contains(&self.utilization) {
            bail!("the utilization must be 0.01 to 0.97");
        }
        if !(0.0..1.0).contains(&self.reserve) {
            bail!("the reserve must be at least 0 and below 1");
        }
        if self.live_segments < 16 || self.segment_blocks < 1 {
            bail!("a volume needs at least 16 live segments of at least one block");
        }
        if u64::from(self.live_segments) * u64::from(self.segment_blocks) > SLOTS_MAX {
            bail!("a volume of more than {SLOTS_MAX} blocks is too large to simulate");
        }
        let (segments, segment_blocks) = match self.blocks {
            None => {
                let segments = f64::from(self.live_segments) / self.utilization;
                (segments.round() as u32, self.segment_blocks)
            }
            Some(blocks) => self.segments_around(blocks),
        };
        let blocks = self.blocks.unwrap_or_else(|| {
            (f64::from(segments) * f64::from(segment_blocks) * self.utilization).round() as u32
        });
        let reserve_segments = ((f64::from(segments) * self.reserve).round() as u32).max(2);
        Ok(VolumeSize { blocks, segment_blocks, segments, reserve_segments })
    }

    /// Returns the number of segments, and of blocks in each, for a number of users' blocks. Of the
    /// segment sizes near the wanted one, takes the size that wastes least of the last segment.
    fn segments_around(&self, blocks: u32) -> (u32, u32) {
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

impl VolumeSize {
    /// Returns an error if a simulation cannot have these sizes: too few blocks for a workload, a reserve without
    /// other segments, or more slots than memory should hold.
    pub(super) fn check(&self) -> Result<()> {
        if self.blocks < BLOCKS_MIN {
            bail!("a volume needs at least {BLOCKS_MIN} users' blocks");
        }
        if self.segment_blocks < 1 || self.reserve_segments >= self.segments {
            bail!("a volume needs segments of at least one block beside its reserve");
        }
        if u64::from(self.segments) * u64::from(self.segment_blocks) > SLOTS_MAX {
            bail!("a volume of more than {SLOTS_MAX} blocks is too large to simulate");
        }
        Ok(())
    }

    /// Returns the utilization of the segments outside the reserve.
    pub fn utilization_within_reserve(&self) -> f64 {
        f64::from(self.blocks)
            / (f64::from(self.segments - self.reserve_segments) * f64::from(self.segment_blocks))
    }
}
