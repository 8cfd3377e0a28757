//! A model of `sfs-lab ssd` or `sfs-lab hdd` as a block device.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout},
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::{
    cleanup::{self, Guard, Undo},
    device::TestDevice,
    machine,
    scratch::Scratch,
    workspace::Programs,
};

/// A running model, ended when dropped.
pub(crate) struct Model {
    device: TestDevice,
    control: PathBuf,
    child: Child,
    guard: Option<Guard>,
    /// Standard output of the process; the pipe has to stay open until the process has ended.
    _output: BufReader<ChildStdout>,
}

/// Needed part of the control file.
#[derive(Deserialize)]
struct ModelStatus {
    counters: ModelCounters,
}

/// Counters of a model.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct ModelCounters {
    pub(crate) host_bytes_written: u64,
    /// Number of flash pages of 4 KiB programmed, for the host or internally.
    pub(crate) flash_pages_programmed: u64,
    /// Number of erase blocks erased.
    pub(crate) erases: u64,
}

/// Kind of a model.
#[derive(Clone, Copy)]
pub(crate) enum ModelKind {
    Flash {
        /// Size of the erase blocks, if it is not the profile's.
        erase_block: Option<&'static str>,
        /// Whether every page was written before.
        filled: bool,
    },
    HardDrive,
}

impl ModelKind {
    /// Returns the command of `sfs-lab` that exports such a model, and its options.
    fn arguments(self) -> Vec<&'static str> {
        let Self::Flash { erase_block, filled } = self else { return vec!["hdd"] };
        let erase_block = erase_block.into_iter().flat_map(|size| ["--erase-block", size]);
        ["ssd"].into_iter().chain(filled.then_some("--filled")).chain(erase_block).collect()
    }
}

/// Properties of a model to start.
pub(crate) struct ModelRequest {
    pub(crate) kind: ModelKind,
    /// Name of the profile, as the command for the kind takes it.
    pub(crate) profile: &'static str,
    /// Size of the device, in bytes; a hard drive is rounded up to whole cylinders.
    pub(crate) len: u64,
}

impl Model {
    /// Starts the model, in virtual time. Its directory in `scratch` is called `name`.
    pub(crate) fn start(
        programs: &Programs,
        request: &ModelRequest,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Self> {
        machine::need_fuse()?;
        machine::need_loop()?;
        let dir = scratch.directory(name)?;
        let cmd = programs.cmd("sfs-lab").args(request.kind.arguments());
        let cmd = cmd.args(["--profile", request.profile, "--size", &request.len.to_string()]);
        let cmd = cmd.arg(&dir);
        let (mut child, guard) = cleanup::spawn_guarded(cmd, Undo::End)?;
        let guard = Some(guard);
        let mut output = BufReader::new(child.stdout.take().context("the output of the disk")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the model did not start");
        let device = TestDevice::of_others(Path::new(line.trim()));
        Ok(Self { device, control: dir.join("control"), child, guard, _output: output })
    }

    /// Returns the block device.
    pub(crate) fn device(&self) -> &TestDevice {
        &self.device
    }

    /// Reads the counters since the last reset.
    pub(crate) fn counters(&self) -> Result<ModelCounters> {
        let text = fs::read_to_string(&self.control);
        let text = text.with_context(|| format!("{}", self.control.display()))?;
        Ok(serde_json::from_str::<ModelStatus>(&text)?.counters)
    }

    /// Sets all counters to zero.
    pub(crate) fn reset_counters(&self) -> Result<()> {
        fs::write(&self.control, "reset").with_context(|| format!("{}", self.control.display()))
    }

    /// Returns the guard that goes back to virtual time.
    pub(crate) fn virtual_time_later(&self) -> Guard {
        Undo::Write(self.control.clone(), "virtual").later()
    }

    /// Chooses whether requests take as long as on the device.
    pub(crate) fn set_real_time(&self, real_time: bool) -> Result<()> {
        let word = if real_time { "real" } else { "virtual" };
        fs::write(&self.control, word).with_context(|| format!("{}", self.control.display()))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.guard.take());
        let _ = self.child.wait();
    }
}
