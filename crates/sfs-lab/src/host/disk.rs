//! A model of a flash device that another process exports as a disk.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::exporter::Exporter;
use crate::block_trace::BlockTrace;
use crate::exported::{CONTROL, ExportedStatus};

/// File with the recorded requests in the folder of a disk.
const RECORD: &str = "record.csv";

/// The profile and the size of a model to export.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskRequest {
    /// Name of the profile, as in `sfs-lab ssd --profile`.
    pub profile: &'static str,
    /// Size in bytes.
    pub size: u64,
}

/// A running disk under a loop device.
pub struct Disk(Exporter);

impl Disk {
    /// Starts `sfs-lab ssd`, which records the requests. `lab` is the path of the program
    /// `sfs-lab`.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, or ends before the disk is ready.
    pub fn start(lab: &Path, request: &DiskRequest) -> Result<Disk> {
        let exporter = Exporter::start(lab, 1, |folder| {
            let size = request.size.to_string();
            let arguments = ["ssd", "--profile", request.profile, "--size", &size, "--record"];
            let record = folder.join(RECORD).into_os_string();
            arguments.into_iter().map(Into::into).chain([record]).collect()
        })?;
        Ok(Disk(exporter))
    }

    /// Returns an error once this process has received a signal to end, so that the caller unmounts
    /// and returns.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Returns the path of the block device.
    pub fn device(&self) -> &Path {
        self.0.device(0)
    }

    /// Returns a folder for mount points that belongs to this disk alone.
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// Chooses real time, in which requests take as long as on the modelled device, or virtual
    /// time.
    pub fn set_real_time(&self, real_time: bool) -> Result<()> {
        self.command(if real_time { "real" } else { "virtual" })
    }

    /// Writes a command to the control file, such as a fault.
    ///
    /// # Errors
    ///
    /// If the text is no command.
    pub fn command(&self, text: &str) -> Result<()> {
        let path = self.control();
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    fn control(&self) -> PathBuf {
        self.0.models().join(CONTROL)
    }

    /// Reads the counters of the model.
    pub fn status(&self) -> Result<ExportedStatus> {
        Ok(serde_json::from_slice(&Exporter::read_control(&self.control())?)?)
    }

    /// Ends the disk. Returns the requests that it served.
    pub fn finish(mut self) -> Result<BlockTrace> {
        self.0.end()?;
        BlockTrace::open(&self.0.folder().join(RECORD))
    }
}
