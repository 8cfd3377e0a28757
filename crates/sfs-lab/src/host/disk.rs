//! A model that another process exports as a disk.
//!
//! The exporting process ends when the [`Disk`] is dropped. This process only uses the disk,
//! because a process that waits for its own requests cannot be killed.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use super::command;
use crate::block_trace::BlockTrace;
use crate::exported::{CONTROL, ExportedStatus};

/// Time after which a model that was told to end is told again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which it is killed. The model may be writing its record.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// Interval between two looks at the process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The profile and the size of a model to export.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskRequest {
    /// Name of the profile, as in `sfs-lab ssd --profile`.
    pub profile: &'static str,
    /// Size in bytes.
    pub size: u64,
}

/// This process has received a signal to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// A running disk under a loop device.
pub struct Disk {
    child: Child,
    folder: TempDir,
    device: PathBuf,
    /// Standard output of the process; the pipe has to stay open until the process has ended.
    output: BufReader<ChildStdout>,
    interrupted: Arc<AtomicBool>,
    signals: Vec<SigId>,
}

impl Disk {
    /// Starts `sfs-lab ssd`, which records the requests. `lab` is the path of the program
    /// `sfs-lab`.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, or ends before the disk is ready.
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
            // Ctrl-C must not end the disk, because this process has to unmount first.
            .process_group(0)
            .spawn()
            .with_context(|| lab.display().to_string())?;
        let output = BufReader::new(child.stdout.take().context("the output of the disk process")?);
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
            bail!("sfs-lab ssd ended before its disk was ready");
        }
        disk.device = line.trim().into();
        Ok(disk)
    }

    /// Returns an error once this process has received a signal to end, so that the caller unmounts
    /// and returns.
    pub fn check(&self) -> Result<()> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Returns the path of the block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Returns a folder for mount points that belongs to this disk alone.
    pub fn folder(&self) -> &Path {
        self.folder.path()
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
        self.folder.path().join("ssd").join(CONTROL)
    }

    /// Reads the counters of the model.
    pub fn status(&self) -> Result<ExportedStatus> {
        let path = self.control();
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Ends the disk. Returns the requests that it served.
    pub fn finish(mut self) -> Result<BlockTrace> {
        self.end()?;
        BlockTrace::open(&self.folder.path().join("record.csv"))
    }

    /// Ends the process. If the disk stays in use, a second signal makes the process give it up.
    fn end(&mut self) -> Result<()> {
        for patience in [PATIENCE, LAST_PATIENCE] {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            command::run(Command::new("kill").arg(self.child.id().to_string()))?;
            let began = Instant::now();
            while began.elapsed() < patience && self.child.try_wait()?.is_none() {
                thread::sleep(POLL_INTERVAL);
            }
        }
        if self.child.try_wait()?.is_none() {
            self.child.kill()?;
            self.child.wait()?;
            bail!("the model on {} had to be killed", self.device.display());
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
