//! What the daemon executes for the load: instructions and system calls, counted by perf(1).
//!
//! Owns the counting process and how it is told to begin and to end. Promises that nothing of what
//! prepares a row is counted.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

/// In the order of [`Counts`].
const EVENTS: [&str; 3] = ["instructions:u", "instructions:k", "raw_syscalls:sys_enter"];

/// What some processes have executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of their own.
    pub user: u64,
    /// Instructions of the kernel on their behalf, interrupts included that come meanwhile.
    pub kernel: u64,
    /// System calls.
    pub calls: u64,
}

/// Counting, as long as it lives.
pub(super) struct Counter {
    perf: Child,
    orders: File,
    answers: BufReader<File>,
    dir: PathBuf,
}

impl Counter {
    /// Begins.
    pub(super) fn begin(pids: &[u32]) -> Result<Self> {
        ensure!(!pids.is_empty(), "there is no process whose instructions could be counted");
        let dir = std::env::temp_dir().join(format!("fuse-load-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("{}", dir.display()))?;
        let pipe = |name: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            Ok(path)
        };
        let (orders, answers) = (pipe("orders")?, pipe("answers")?);
        let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let perf = Command::new("perf")
            .args(["stat", "--delay", "-1", "--field-separator", ";", "--event"])
            .args([&EVENTS.join(","), "--pid", &pids, "--output"])
            .arg(dir.join("report"))
            .arg(format!("--control=fifo:{},{}", orders.display(), answers.display()))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("perf is missing: apt-get install linux-perf")?;
        // Opened both ways, so that neither side waits for the other.
        let open = |path: &Path| File::options().read(true).write(true).open(path);
        let answers = BufReader::new(open(&answers)?);
        let mut counter = Self { perf, orders: open(&orders)?, answers, dir };
        counter.order("enable")?;
        Ok(counter)
    }

    /// Tells perf, and waits until it has obeyed.
    fn order(&mut self, order: &str) -> Result<()> {
        if let Some(status) = self.perf.try_wait()? {
            bail!("perf has ended: {status}");
        }
        writeln!(self.orders, "{order}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.contains("ack"), "perf said: {answer}");
        Ok(())
    }

    /// Ends, and gives what was counted.
    pub(super) fn end(mut self) -> Result<Counts> {
        self.order("disable")?;
        kill_process(Pid::from_child(&self.perf), Signal::INT)?;
        self.perf.wait()?;
        let report = fs::read_to_string(self.dir.join("report"))?;
        read(&report).with_context(|| format!("perf counted: {report}"))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = self.perf.kill();
        let _ = self.perf.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Out of perf's report: `123;;instructions:u;...`.
fn read(report: &str) -> Result<Counts> {
    let count = |event: &str| -> Result<u64> {
        let line = report.lines().find(|line| line.split(';').nth(2) == Some(event));
        match line.and_then(|line| line.split(';').next()) {
            // Nobody ran.
            Some("<not counted>") => Ok(0),
            count => {
                count.and_then(|count| count.parse().ok()).with_context(|| format!("no {event}"))
            }
        }
    };
    let [user, kernel, calls] = EVENTS.map(count);
    Ok(Counts { user: user?, kernel: kernel?, calls: calls? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let report = "# started on\n\n12;;instructions:u;9;100.00;0.5;insn per cycle\n\
                      34;;instructions:k;9;100.00;;\n5;;raw_syscalls:sys_enter;9;100.00;;\n";
        assert_eq!(read(report).unwrap(), Counts { user: 12, kernel: 34, calls: 5 });
        let idle = report.replace("12;", "<not counted>;");
        assert_eq!(read(&idle).unwrap().user, 0);
        let without = report.replace("34;", "<not supported>;");
        assert!(read(&without).is_err());
    }
}
