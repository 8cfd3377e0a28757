//! A model that is exported by a process of its own.
//!
//! Owns: the process, its directory, its record.
//! Promises: the process ends with the value.
//! Never: is in the process that uses the disk: one that waits for itself cannot be ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::block_trace::BlockTrace;
use crate::exported::{CONTROL, Status};

/// Which model is exported.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskRequest {
    /// Profile, as `sfs-lab ssd` knows it.
    pub profile: &'static str,
    /// Bytes.
    pub size: u64,
}

/// A disk under a loop device.
pub struct Disk {
    child: Child,
    folder: TempDir,
    device: PathBuf,
    /// What it says; the pipe has to stay open until it has ended.
    output: BufReader<ChildStdout>,
    interrupted: Arc<AtomicBool>,
    signals: Vec<SigId>,
}

impl Disk {
    /// Starts `sfs-lab ssd` (`lab`), with a record.
    ///
    /// # Errors
    ///
    /// What it said when it did not come up.
    pub fn start(lab: &Path, request: &DiskRequest) -> Result<Disk> {
        let folder = tempfile::Builder::new().prefix("sfs-lab-").tempdir()?;
        let dir = folder.path().join("ssd");
        fs::create_dir(&dir)?;
        let mut child = Command::new(lab)
            .args(["ssd", "--profile", request.profile, "--size", &request.size.to_string()])
            .arg("--record")
            .arg(folder.path().join("record.csv"))
            .arg(&dir)
            .stdout(Stdio::piped())
            // Ctrl-C is for us: the disk goes after what is mounted on it.
            .process_group(0)
            .spawn()
            .with_context(|| lab.display().to_string())?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let mut line = String::new();
        let mut disk = Disk {
            child,
            folder,
            device: PathBuf::new(),
            output,
            interrupted: Arc::default(),
            signals: Vec::new(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let id = signal_hook::flag::register(signal, disk.interrupted.clone())?;
            disk.signals.push(id);
        }
        disk.output.read_line(&mut line)?;
        if line.is_empty() {
            disk.child.wait()?;
            bail!("sfs-lab ssd did not come up");
        }
        disk.device = line.trim().into();
        Ok(disk)
    }

    /// An error once this process was told to end: everything is undone on the way out.
    pub fn check(&self) -> Result<()> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => bail!("interrupted"),
            false => Ok(()),
        }
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// A folder of this disk alone, for mount points.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the model counts now.
    pub fn status(&self) -> Result<Status> {
        let path = self.folder.path().join("ssd").join(CONTROL);
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Ends it, and returns what it was asked.
    pub fn finish(mut self) -> Result<BlockTrace> {
        self.end()?;
        BlockTrace::open(&self.folder.path().join("record.csv"))
    }

    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            super::run(Command::new("kill").arg(self.child.id().to_string()))?;
            self.child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.end();
        for id in self.signals.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
