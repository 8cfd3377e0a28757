//! A model of a device with the interface through which `sfs-mkfs` measures a device.

use anyhow::{Context, Result};
use sfs_device::DeviceError;
use sfs_mkfs::measure::{Budget, Probe, Region};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdConfig};

use crate::random::WorkloadRng;

const BLOCK_BYTES: u64 = 4096;

/// Time limit of a measurement: a day, because virtual time costs nothing.
pub const BUDGET: Budget = Budget { total_ns: 86_400_000_000_000, ..Budget::DEFAULT };

/// A flash model that serves writes in virtual time.
pub struct ModelProbe {
    ssd: Ssd,
    now_ns: u64,
    /// Largest change of the time that a request is said to take, in percent, and its source.
    noise: Option<(u32, WorkloadRng)>,
}

impl ModelProbe {
    /// Returns an erased model, and the region of all its blocks.
    ///
    /// # Errors
    ///
    /// If the model cannot be built.
    pub fn new(config: &SsdConfig) -> Result<(ModelProbe, Region)> {
        let ssd = Ssd::new(config).context("the model has too few spare blocks")?;
        Ok(ModelProbe::of(ssd))
    }

    /// Returns a model in its present state, and the region of all its blocks.
    pub fn of(ssd: Ssd) -> (ModelProbe, Region) {
        let region = Region { block_count: ssd.capacity() / BLOCK_BYTES, partition_start: 0 };
        let now_ns = ssd.idle_ns();
        (ModelProbe { ssd, now_ns, noise: None }, region)
    }

    /// Adds or subtracts up to `percent` of the time of each request that follows, by the seed.
    pub fn add_noise(&mut self, percent: u32, seed: u64) {
        self.noise = Some((percent, WorkloadRng::new(seed)));
    }

    /// Returns the virtual time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

impl Probe for ModelProbe {
    fn write(&mut self, address: u64, count: u64) -> Result<u64, DeviceError> {
        let request =
            HostRequest::new(RequestKind::Write, address * BLOCK_BYTES, count * BLOCK_BYTES);
        let began_ns = self.now_ns;
        self.now_ns = self.ssd.serve(&request, began_ns).ended_ns;
        let took_ns = self.now_ns - began_ns;
        Ok(match &mut self.noise {
            None => took_ns,
            Some((percent, random)) => {
                let added = random.below(2 * *percent + 1);
                took_ns * u64::from(100 - *percent + added) / 100
            }
        })
    }
}
