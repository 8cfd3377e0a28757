//! A flash model of `sfs-lab ssd` as a block device.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    cleanup::{Guard, Undo},
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

/// Properties of a model to start.
pub(crate) struct ModelRequest {
    /// Name of the profile, as `sfs-lab ssd` takes it.
    pub(crate) profile: &'static str,
    /// Size of the erase blocks, if it is not the profile's.
    pub(crate) erase_block: Option<&'static str>,
    /// Size of the device, in bytes.
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
        let cmd = programs.cmd("sfs-lab").args(["ssd", "--profile", request.profile]);
        let cmd = cmd.args(["--size", &request.len.to_string(), "--filled"]);
        let erase_block = request.erase_block.iter().flat_map(|size| ["--erase-block", size]);
        let mut child = cmd.args(erase_block).arg(&dir).spawn_apart()?;
        let guard = Some(Undo::End(child.id()).later());
        let mut output = BufReader::new(child.stdout.take().context("the output of the disk")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "sfs-lab ssd did not start");
        let device = TestDevice::of_others(Path::new(line.trim()));
        Ok(Self { device, control: dir.join("control"), child, guard, _output: output })
    }

    /// Returns the block device.
    pub(crate) fn device(&self) -> &TestDevice {
        &self.device
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
