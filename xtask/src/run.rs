//! Running other programs.
//!
//! Owns how a command is started, shown and judged. Promises that a failure names the whole command
//! and what it wrote to stderr. Never runs a shell.

use std::{
    ffi::OsStr,
    fmt,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// A command to be run; its display is what one would type.
#[derive(Debug)]
pub(crate) struct Cmd(Command);

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        Self(command)
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.0.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.0.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.0.current_dir(dir);
        self
    }

    /// Runs it with our own output; an exit code other than 0 is an error.
    pub(crate) fn run(mut self) -> Result<()> {
        let status = self.0.status().with_context(|| format!("cannot run `{self}`"))?;
        if !status.success() {
            bail!("`{self}`: {status}");
        }
        Ok(())
    }

    /// Runs it and keeps what it prints, whatever the exit code.
    pub(crate) fn output(mut self) -> Result<Output> {
        self.0.output().with_context(|| format!("cannot run `{self}`"))
    }

    /// Runs it silently and gives its stdout; an exit code other than 0 is an error.
    pub(crate) fn read(mut self) -> Result<String> {
        let output = self.0.output().with_context(|| format!("cannot run `{self}`"))?;
        if !output.status.success() {
            let said = [&output.stdout[..], &output.stderr[..]].concat();
            bail!("`{self}`: {}\n{}", output.status, String::from_utf8_lossy(&said).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Runs it, shows each line of stdout and passes it on; true if the exit code was 0.
    pub(crate) fn lines(mut self, mut each: impl FnMut(&str)) -> Result<bool> {
        let shown = self.to_string();
        self.0.stdout(Stdio::piped());
        let mut child = self.0.spawn().with_context(|| format!("cannot run `{shown}`"))?;
        let stdout = child.stdout.take().context("stdout was asked for")?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            each(&line);
        }
        Ok(child.wait()?.success())
    }

    /// Starts it in the background.
    pub(crate) fn spawn(mut self) -> Result<Child> {
        self.0.spawn().with_context(|| format!("cannot run `{self}`"))
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.get_program().display())?;
        self.0.get_args().try_for_each(|arg| write!(f, " {}", arg.display()))
    }
}
