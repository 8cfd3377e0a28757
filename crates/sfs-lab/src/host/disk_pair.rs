//! The models of a hard drive and of a flash device that another process exports with one clock in virtual time.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};

use super::exporter::Exporter;
use crate::exported::{CONTROL, ExportedHddStatus, ExportedStatus};

/// The profiles and the sizes of the models.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRequest {
    /// Name of the flash device's profile, as in `sfs-lab pair --ssd`, and its size in bytes.
    pub ssd: (&'static str, u64),
    /// Name of the hard drive's profile, as in `sfs-lab pair --hdd`, and its size in bytes.
    pub hdd: (&'static str, u64),
}

/// One of the two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The hard drive.
    Hdd,
    /// The flash device.
    Ssd,
}

impl Medium {
    /// Both, the hard drive first.
    pub const ALL: [Medium; 2] = [Medium::Hdd, Medium::Ssd];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Medium::Hdd => "disk",
            Medium::Ssd => "SSD",
        }
    }

    /// Returns the name of the directory in which `sfs-lab pair` shows the device.
    fn directory(self) -> &'static str {
        match self {
            Medium::Hdd => "hdd",
            Medium::Ssd => "ssd",
        }
    }
}

/// Both running devices, each under a loop device.
pub struct DiskPair(Exporter);

impl DiskPair {
    /// Starts `sfs-lab pair`. `lab` is the path of the program `sfs-lab`.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, or ends before the devices are ready.
    pub fn start(lab: &Path, request: &PairRequest) -> Result<DiskPair> {
        let exporter = Exporter::start(lab, 2, |_| {
            let ((ssd, ssd_size), (hdd, hdd_size)) = (request.ssd, request.hdd);
            let (ssd_size, hdd_size) = (ssd_size.to_string(), hdd_size.to_string());
            let ssd = ["pair", "--ssd", ssd, "--ssd-size", &ssd_size];
            let hdd = ["--hdd", hdd, "--hdd-size", &hdd_size];
            ssd.into_iter().chain(hdd).map(Into::into).collect()
        })?;
        Ok(DiskPair(exporter))
    }

    /// Returns an error once this process has received a signal to end, so that the caller unmounts
    /// and returns.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Returns the path of a block device.
    pub fn device(&self, medium: Medium) -> &Path {
        // The order in which the command prints them.
        self.0.device(match medium {
            Medium::Ssd => 0,
            Medium::Hdd => 1,
        })
    }

    /// Returns a folder for mount points that belongs to this pair alone.
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// Flushes the block devices, and returns the time of the models' clock in nanoseconds.
    pub fn flushed_ns(&self) -> Result<u64> {
        for medium in Medium::ALL {
            let device = self.device(medium);
            let shown = || device.display().to_string();
            File::open(device).with_context(shown)?.sync_all().with_context(shown)?;
        }
        Ok(self.ssd()?.virtual_ns)
    }

    /// Reads the counters of the flash device.
    pub fn ssd(&self) -> Result<ExportedStatus> {
        Ok(serde_json::from_slice(&self.status(Medium::Ssd)?)?)
    }

    /// Reads the counters of the hard drive.
    pub fn hdd(&self) -> Result<ExportedHddStatus> {
        Ok(serde_json::from_slice(&self.status(Medium::Hdd)?)?)
    }

    fn status(&self, medium: Medium) -> Result<Vec<u8>> {
        Exporter::read_control(&self.0.models().join(medium.directory()).join(CONTROL))
    }
}
