//! perf(1) as a child process, started and stopped through pipes.
//!
//! The preparation of a row is not observed.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

/// A running perf, stopped when dropped.
pub(super) struct Perf {
    child: Child,
    orders: File,
    answers: BufReader<File>,
    pub(super) dir: PathBuf,
}

impl Perf {
    /// Starts perf. `arguments` returns perf's arguments; its own argument is a directory that is
    /// deleted with this value.
    pub(super) fn begin<S: AsRef<OsStr>>(arguments: impl FnOnce(&Path) -> Vec<S>) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("fuse-load-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("{}", dir.display()))?;
        let pipe = |name: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            Ok(path)
        };
        let (orders, answers) = (pipe("orders")?, pipe("answers")?);
        let child = Command::new("perf")
            .args(arguments(&dir))
            .args(["--delay", "-1"])
            .arg(format!("--control=fifo:{},{}", orders.display(), answers.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("perf is missing: apt-get install linux-perf")?;
        // Opened for reading and writing, so that neither side waits for the other.
        let open = |path: &Path| File::options().read(true).write(true).open(path);
        let answers = BufReader::new(open(&answers)?);
        let mut perf = Self { child, orders: open(&orders)?, answers, dir };
        perf.order("enable")?;
        Ok(perf)
    }

    /// Sends a command to perf, and waits for its acknowledgement.
    fn order(&mut self, order: &str) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("perf has ended: {status}");
        }
        writeln!(self.orders, "{order}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.contains("ack"), "unexpected answer of perf: {answer}");
        Ok(())
    }

    /// Stops perf; its output is complete afterwards.
    pub(super) fn end(&mut self) -> Result<()> {
        self.order("disable")?;
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
