//! The devices below the filesystems: RAM, and models of flash and of a hard drive.

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::{
    device::TestDevice,
    filesystem::{Blocks, Cache},
    model::{Model, ModelKind, ModelRequest},
    scratch::Scratch,
    workspace::Programs,
};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Medium {
    /// A loop device over a file in RAM.
    Ram,
    /// The model of a SATA SSD, with erase blocks of 4 MiB for a small volume.
    SsdM,
    /// The model of an SD card.
    Sd,
    /// The model of an eMMC.
    Emmc,
    /// The model of a hard drive.
    Hdd,
}

impl Medium {
    /// Returns the name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ram => "RAM",
            Self::SsdM => "SSD-M",
            Self::Sd => "SD card",
            Self::Emmc => "eMMC",
            Self::Hdd => "hard drive",
        }
    }

    /// Returns the segment size of SFS that matches the erase blocks, if there are some.
    pub(super) fn segment_size(self) -> &'static str {
        match self {
            Self::Ram | Self::SsdM | Self::Sd | Self::Hdd => "4MiB",
            Self::Emmc => "8MiB",
        }
    }

    /// Describes the device in the caption of a table.
    pub(super) fn describe(self, len: u64, scratch: &Scratch) -> String {
        let mib = len >> 20;
        match self {
            Self::Ram => format!("a loop device of {mib} MiB {}", scratch.place()),
            _ => format!("a model of {mib} MiB"),
        }
    }

    /// Returns `true` for a card, whose requests take so long that few of them are measured.
    pub(super) fn is_card(self) -> bool {
        matches!(self, Self::Sd | Self::Emmc)
    }

    pub(super) fn is_model(self) -> bool {
        self != Self::Ram
    }

    fn is_flash(self) -> bool {
        self.is_model() && self != Self::Hdd
    }

    /// Returns the treatment of blocks by a new filesystem. A hard drive knows no discards. Below a loop device in RAM a
    /// discard frees memory that the next write has to allocate again, a cost that flash does not
    /// have.
    pub(super) fn blocks(self) -> Blocks {
        if self.is_flash() { Blocks::Discard } else { Blocks::Keep }
    }

    /// Returns the cache mode of mounts: on a model of flash, with the filesystem's own default of discards.
    pub(super) fn cache(self) -> Cache {
        if self.is_flash() { Cache::Writeback } else { Cache::WritebackKeep }
    }

    /// Makes a device of `len` bytes. A model is run by `lab`, and begins in virtual time, flash with all blocks written once.
    pub(super) fn make(
        self,
        lab: Option<&Programs>,
        name: &str,
        len: u64,
        scratch: &Scratch,
    ) -> Result<MediumDevice> {
        let flash = |erase_block| ModelKind::Flash { erase_block, filled: true };
        let (profile, kind) = match self {
            Self::Ram => {
                let image = scratch.dir.join(format!("{name}.img"));
                return TestDevice::allocated(&image, len).map(MediumDevice::Ram);
            }
            Self::SsdM => ("ssd-m", flash(Some("4M"))),
            Self::Sd => ("sd", flash(None)),
            Self::Emmc => ("emmc", flash(None)),
            Self::Hdd => ("deskstar", ModelKind::HardDrive),
        };
        let request = ModelRequest { kind, profile, len };
        let name = format!("{name}-model");
        let lab = lab.context("sfs-lab was not built")?;
        Model::start(lab, &request, &name, scratch).map(MediumDevice::Model)
    }
}

/// A device of some medium, removed when dropped.
pub(super) enum MediumDevice {
    Ram(TestDevice),
    Model(Model),
}

impl MediumDevice {
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
        // In real time the unmount would take minutes to write the dirty data to a card.
        model.set_real_time(false)?;
        result
    }
}
