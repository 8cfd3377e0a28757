//! A model of a device with the interface through which `sfs-mkfs` measures a device.

use anyhow::{Context, Result};
use sfs_device::DeviceError;
use sfs_mkfs::measure::{Budget, Probe, Region};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdConfig};

const BLOCK_BYTES: u64 = 4096;

/// Time limit of a measurement: a day, because virtual time costs nothing.
pub const BUDGET: Budget = Budget { total_ns: 86_400_000_000_000, ..Budget::DEFAULT };

/// A flash model that serves writes in virtual time.
pub struct ModelProbe {
    ssd: Ssd,
    now_ns: u64,
}

impl ModelProbe {
    /// Returns an erased model, and the region of all its blocks.
    ///
    /// # Errors
    ///
    /// If the model cannot be built.
    pub fn new(config: &SsdConfig) -> Result<(ModelProbe, Region)> {
        let ssd = Ssd::new(config).context("the model has too few spare blocks")?;
        let region = Region { block_count: ssd.capacity() / BLOCK_BYTES, partition_start: 0 };
        Ok((ModelProbe { ssd, now_ns: 0 }, region))
    }
}

impl Probe for ModelProbe {
    fn write(&mut self, address: u64, count: u64) -> Result<u64, DeviceError> {
        let request =
            HostRequest::new(RequestKind::Write, address * BLOCK_BYTES, count * BLOCK_BYTES);
        let began_ns = self.now_ns;
        self.now_ns = self.ssd.serve(&request, began_ns).ended_ns;
        Ok(self.now_ns - began_ns)
    }
}
