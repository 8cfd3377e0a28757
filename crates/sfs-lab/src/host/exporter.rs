//! A process of `sfs-lab` that exports models as block devices.
//!
//! The process ends when the [`Exporter`] is dropped. This process only uses the devices, because a process that waits
//! for its own requests cannot be killed.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
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

/// Time after which a process that was told to end is told again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which it is killed. The process may be writing its record.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// Interval between two looks at the process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Largest size of a control file in bytes.
const CONTROL_MAX: usize = 1 << 16;

/// Directory of the models in the folder of an exporter.
const MODELS: &str = "models";

/// This process has received a signal to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The running process.
pub(super) struct Exporter {
    child: Child,
    folder: TempDir,
    devices: Vec<PathBuf>,
    /// Standard output of the process; the pipe has to stay open until the process has ended.
    output: BufReader<ChildStdout>,
    interrupted: Arc<AtomicBool>,
    signals: Vec<SigId>,
}

impl Exporter {
    /// Starts `sfs-lab` with the arguments that `arguments` returns for the folder of the exporter, and waits until the
    /// `count` block devices are ready. `lab` is the path of the program.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, or ends before the devices are ready.
    pub(super) fn start(
        lab: &Path,
        count: usize,
        arguments: impl FnOnce(&Path) -> Vec<OsString>,
    ) -> Result<Exporter> {
        let folder = tempfile::Builder::new().prefix("sfs-lab-").tempdir()?;
        let models = folder.path().join(MODELS);
        fs::create_dir(&models)?;
        let arguments = arguments(folder.path());
        let mut child = Command::new(lab)
            .args(&arguments)
            .arg(&models)
            .stdout(Stdio::piped())
            // Ctrl-C must not end the models, because this process has to unmount first.
            .process_group(0)
            .spawn()
            .with_context(|| lab.display().to_string())?;
        let output = BufReader::new(child.stdout.take().context("the output of the models")?);
        let mut exporter = Exporter {
            child,
            folder,
            devices: Vec::new(),
            output,
            interrupted: Arc::default(),
            signals: Vec::new(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let id = signal_hook::flag::register(signal, exporter.interrupted.clone())?;
            exporter.signals.push(id);
        }
        for _ in 0..count {
            let mut line = String::new();
            exporter.output.read_line(&mut line)?;
            if line.is_empty() {
                exporter.child.wait()?;
                bail!("{} {arguments:?} ended before its devices were ready", lab.display());
            }
            exporter.devices.push(line.trim().into());
        }
        Ok(exporter)
    }

    /// Returns an error once this process has received a signal to end, so that the caller unmounts
    /// and returns.
    pub(super) fn check(&self) -> Result<()> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Returns the path of a block device, in the order in which the process prints them.
    pub(super) fn device(&self, no: usize) -> &Path {
        &self.devices[no]
    }

    /// Returns a folder for mount points and records that belongs to this process alone.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the directory of the models.
    pub(super) fn models(&self) -> PathBuf {
        self.folder().join(MODELS)
    }

    /// Returns the contents of a control file. They come from one read: between two the counters may change, and the
    /// parts would not fit.
    pub(super) fn read_control(path: &Path) -> Result<Vec<u8>> {
        let shown = || path.display().to_string();
        let mut text = vec![0; CONTROL_MAX];
        let len = File::open(path).and_then(|mut file| file.read(&mut text)).with_context(shown)?;
        text.truncate(len);
        Ok(text)
    }

    /// Ends the process. If a device stays in use, a second signal makes the process give it up.
    pub(super) fn end(&mut self) -> Result<()> {
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
            bail!("the models on {:?} had to be killed", self.devices);
        }
        Ok(())
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.end();
        for id in self.signals.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
