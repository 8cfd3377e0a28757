//! perf(1), told when to begin and when to end.
//!
//! Owns the process and the pipes to it. Promises that nothing of what prepares a row is looked at.

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

/// Looking, as long as it lives.
pub(super) struct Perf {
    child: Child,
    orders: File,
    answers: BufReader<File>,
    pub(super) dir: PathBuf,
}

impl Perf {
    /// Begins; `arguments` are perf's, given a directory that goes with this.
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
        // Opened both ways, so that neither side waits for the other.
        let open = |path: &Path| File::options().read(true).write(true).open(path);
        let answers = BufReader::new(open(&answers)?);
        let mut perf = Self { child, orders: open(&orders)?, answers, dir };
        perf.order("enable")?;
        Ok(perf)
    }

    /// Tells perf, and waits until it has obeyed.
    fn order(&mut self, order: &str) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("perf has ended: {status}");
        }
        writeln!(self.orders, "{order}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.contains("ack"), "perf said: {answer}");
        Ok(())
    }

    /// Ends; what perf writes is there.
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
