//! The devices: models of cards and disks, or a real device.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Result, ensure};
use clap::ValueEnum;

use super::real::RealDevice;
use crate::{
    cleanup,
    device::TestDevice,
    model::{Model, ModelKind, ModelRequest},
    scratch::Scratch,
    workspace::Programs,
};

/// A model of `sfs-lab ssd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CardModel {
    /// The SD card of class 10.
    Sd,
    /// The eMMC of a single-board computer.
    Emmc,
    /// The SATA disk Samsung S470.
    SsdM,
    /// The SATA disk Intel X25-E.
    SsdH,
}

impl CardModel {
    /// Returns the name in tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Sd => "SD card",
            Self::Emmc => "eMMC",
            Self::SsdM => "SSD-M",
            Self::SsdH => "SSD-H",
        }
    }

    /// Returns the segment size of SFS, which `sfs-mkfs` reads from a real card; the disks do not report the
    /// size of their erase blocks.
    pub(super) fn segment_size(self) -> Option<&'static str> {
        match self {
            Self::Sd => Some("4MiB"),
            Self::Emmc => Some("8MiB"),
            Self::SsdM | Self::SsdH => None,
        }
    }

    /// Returns the size of an erase block, in MiB. Those of the disks are smaller than the real ones, as the
    /// volume is.
    fn erase_block_mib(self) -> u64 {
        match self {
            Self::Sd | Self::SsdM | Self::SsdH => 4,
            Self::Emmc => 8,
        }
    }

    /// Starts the model in virtual time.
    pub(super) fn start(
        self,
        lab: &Programs,
        len: u64,
        filled: bool,
        scratch: &Scratch,
    ) -> Result<Disk> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (profile, erase_block) = match self {
            Self::Sd => ("sd", None),
            Self::Emmc => ("emmc", None),
            Self::SsdM => ("ssd-m", Some("4M")),
            Self::SsdH => ("ssd-h", Some("4M")),
        };
        let kind = ModelKind::Flash { erase_block, filled };
        let request = ModelRequest { kind, profile, len };
        let model = Model::start(lab, &request, &format!("model-{number}"), scratch)?;
        Ok(Disk::Model { model, erase_block_len: self.erase_block_mib() << 20 })
    }
}

/// A disk of some kind.
pub(super) enum Disk {
    Model {
        model: Model,
        /// Size of an erase block, in bytes.
        erase_block_len: u64,
    },
    Real(RealDevice),
}

/// Counts since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wear {
    /// Number of bytes that were written to the device.
    pub(super) device_bytes: u64,
    /// The counts inside of a model.
    pub(super) flash: Option<FlashWear>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FlashWear {
    /// Number of pages of 4 KiB that were programmed.
    pub(super) pages: u64,
    /// Number of erase blocks that were erased.
    pub(super) erases: u64,
    /// Size of an erase block, in bytes.
    pub(super) erase_block_len: u64,
}

impl Disk {
    pub(super) fn device(&self) -> &TestDevice {
        match self {
            Self::Model { model, .. } => model.device(),
            Self::Real(real) => real.device(),
        }
    }

    /// Sets all counts to zero.
    pub(super) fn reset(&self) -> Result<()> {
        match self {
            Self::Model { model, .. } => model.reset_counters(),
            Self::Real(real) => real.reset(),
        }
    }

    pub(super) fn wear(&self) -> Result<Wear> {
        match self {
            Self::Model { model, erase_block_len } => {
                let counters = model.counters()?;
                let flash = FlashWear {
                    pages: counters.flash_pages_programmed,
                    erases: counters.erases,
                    erase_block_len: *erase_block_len,
                };
                Ok(Wear { device_bytes: counters.host_bytes_written, flash: Some(flash) })
            }
            Self::Real(real) => Ok(Wear { device_bytes: real.bytes_written()?, flash: None }),
        }
    }

    /// Calls `work` while requests take as long as on the device, if `real_time` is set.
    pub(super) fn at_pace<T>(
        &self,
        real_time: bool,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        // A guard taken after a signal would wait for ever, while open files keep the volume busy.
        ensure!(!cleanup::is_stopping(), "stopped");
        let Self::Model { model, .. } = self else { return work() };
        // After a signal the clean-up begins with this effect: in real time it would take minutes on a card.
        let guard = model.virtual_time_later();
        model.set_real_time(real_time)?;
        let result = work();
        drop(guard);
        result
    }
}

/// Returns the last part of a path.
pub(super) fn last_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
