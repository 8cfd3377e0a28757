//! The devices: RAM, and models of flash.

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::{
    device::TestDevice,
    filesystem::{Blocks, Cache},
    model::{Model, ModelRequest},
    scratch::Scratch,
    workspace::Programs,
};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgedMedium {
    /// A loop device over a file in RAM.
    Ram,
    /// The model of an SD card.
    Sd,
    /// The model of an eMMC.
    Emmc,
    /// The model of a SATA SSD, with erase blocks of 4 MiB for a small volume.
    SsdM,
}

impl AgedMedium {
    /// Returns the name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ram => "RAM",
            Self::Sd => "SD card",
            Self::Emmc => "eMMC",
            Self::SsdM => "SSD-M",
        }
    }

    pub(super) fn is_model(self) -> bool {
        self != Self::Ram
    }

    /// Returns the segment size of SFS that matches the erase blocks; RAM has none.
    pub(super) fn segment_size(self) -> Option<&'static str> {
        match self {
            Self::Ram => None,
            Self::Sd | Self::SsdM => Some("4MiB"),
            Self::Emmc => Some("8MiB"),
        }
    }

    /// Returns the treatment of blocks by a new filesystem. Below a loop device in RAM a discard frees memory that the
    /// next write has to allocate again, a cost that flash does not have.
    pub(super) fn blocks(self) -> Blocks {
        if self.is_model() { Blocks::Discard } else { Blocks::Keep }
    }

    /// Returns the cache mode of mounts: on a model, with the filesystem's own default of discards.
    pub(super) fn cache(self) -> Cache {
        if self.is_model() { Cache::Writeback } else { Cache::WritebackKeep }
    }

    /// Makes a device of `len` bytes. A model begins in virtual time, with all blocks written once.
    pub(super) fn make(
        self,
        lab: Option<&Programs>,
        len: u64,
        scratch: &Scratch,
    ) -> Result<AgedDevice> {
        let (profile, erase_block) = match self {
            Self::Ram => {
                return TestDevice::allocated(&scratch.dir.join("image"), len).map(AgedDevice::Ram);
            }
            Self::Sd => ("sd", None),
            Self::Emmc => ("emmc", None),
            Self::SsdM => ("ssd-m", Some("4M")),
        };
        let request = ModelRequest { profile, erase_block, len, filled: true };
        let lab = lab.context("sfs-lab was not built")?;
        Model::start(lab, &request, "model", scratch).map(AgedDevice::Model)
    }
}

/// A device of some medium, removed when dropped.
pub(super) enum AgedDevice {
    Ram(TestDevice),
    Model(Model),
}

impl AgedDevice {
    /// Returns the block device.
    pub(super) fn device(&self) -> &TestDevice {
        match self {
            Self::Ram(device) => device,
            Self::Model(model) => model.device(),
        }
    }

    /// Calls `work` while requests take as long as on the device.
    pub(super) fn in_real_time<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Self::Model(model) = self else { return work() };
        model.set_real_time(true)?;
        let result = work();
        model.set_real_time(false)?;
        result
    }
}
