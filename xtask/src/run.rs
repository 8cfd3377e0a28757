//! Commands that run other programs.
//!
//! The error of a failed command contains the whole command and its stderr. No command goes through
//! a shell.

use std::{
    ffi::OsStr,
    fmt,
    fs::File,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// A command to run, displayed as it would be typed.
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

    /// Runs the command as another user.
    pub(crate) fn by_user(mut self, (uid, gid): (u32, u32)) -> Self {
        self.0.gid(gid).uid(uid);
        self
    }

    /// Gives the command a pipe as its standard input.
    pub(crate) fn piped_in(mut self) -> Self {
        self.0.stdin(Stdio::piped());
        self
    }

    /// Writes what the command prints to standard error into `file`.
    pub(crate) fn errors_to(mut self, file: File) -> Self {
        self.0.stderr(file);
        self
    }

    /// Runs the command with the output of this program; an exit code other than 0 is an error.
    pub(crate) fn run(mut self) -> Result<()> {
        let status = self.0.status().with_context(|| format!("cannot run `{self}`"))?;
        if !status.success() {
            bail!("`{self}`: {status}");
        }
        Ok(())
    }

    /// Runs the command and returns its output, whatever the exit code.
    pub(crate) fn output(mut self) -> Result<Output> {
        self.0.output().with_context(|| format!("cannot run `{self}`"))
    }

    /// Runs the command silently and returns its stdout; an exit code other than 0 is an error.
    pub(crate) fn read(mut self) -> Result<String> {
        let output = self.0.output().with_context(|| format!("cannot run `{self}`"))?;
        if !output.status.success() {
            let text = [&output.stdout[..], &output.stderr[..]].concat();
            bail!("`{self}`: {}\n{}", output.status, String::from_utf8_lossy(&text).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Runs the command, prints each line of stdout and passes it to `each`; returns whether the
    /// exit code was 0.
    pub(crate) fn lines(mut self, mut each: impl FnMut(&str)) -> Result<bool> {
        let shown = self.to_string();
        self.0.stdout(Stdio::piped());
        let mut child = self.0.spawn().with_context(|| format!("cannot run `{shown}`"))?;
        let stdout = child.stdout.take().context("stdout is not a pipe")?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            each(&line);
        }
        Ok(child.wait()?.success())
    }

    /// Starts the command in the background, with its output in a pipe and in a process group of its own, so
    /// that Ctrl-C does not end it before its users.
    pub(crate) fn spawn_apart(mut self) -> Result<Child> {
        self.0.process_group(0).stdout(Stdio::piped());
        self.spawn()
    }

    /// Starts the command in the background.
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
