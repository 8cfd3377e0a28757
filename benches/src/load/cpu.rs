//! CPU time of the client, the daemon and the kernel workers of a mount.
//!
//! The client is this process. The daemon is every thread of the given processes. The time of a
//! kernel worker is counted if the worker's name, at the end of the row, ends with the name of the
//! given loop device or of the mount's write-back. The time of a worker that has another name by
//! then is missing, so the sum for a kernel filesystem is too low rather than too high.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};

/// CPU times at one moment.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    client: Duration,
    daemon: Duration,
    /// Time of each kernel worker by thread ID, and `true` if the worker belongs to the mount.
    workers: FxHashMap<u32, (Duration, bool)>,
}

/// CPU time spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// Time of the load generator.
    pub client: Duration,
    /// Time of the filesystem's process.
    pub daemon: Duration,
    /// Time of kernel workers, as far as they can be attributed.
    pub workers: Duration,
}

/// Processes and kernel workers whose time is counted.
pub struct Watch {
    /// Processes of the filesystem.
    pub pids: Vec<u32>,
    /// Endings of the names of kernel workers: `loop3`, `flush-7:3`, `jbd2/loop3-8`.
    pub workers: Vec<String>,
    /// `true` if the instructions of the processes are counted.
    pub counts: bool,
    /// File for samples of all processors, if they are to be taken.
    pub profile: Option<PathBuf>,
}

impl Watch {
    /// Reads all clocks.
    pub fn read(&self) -> Result<Clocks> {
        let client = clock_gettime(ClockId::ProcessCPUTime);
        let client = Duration::new(client.tv_sec as u64, client.tv_nsec as u32);
        let mut daemon = Duration::ZERO;
        for pid in &self.pids {
            for task in fs::read_dir(format!("/proc/{pid}/task")).context("the daemon has ended")? {
                daemon += on_cpu(&format!("{}", task?.path().display())).unwrap_or_default();
            }
        }
        Ok(Clocks { client, daemon, workers: self.workers_now()? })
    }

    fn workers_now(&self) -> Result<FxHashMap<u32, (Duration, bool)>> {
        let mut workers = FxHashMap::default();
        if self.workers.is_empty() {
            return Ok(workers);
        }
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
                continue;
            };
            let Ok(name) = fs::read_to_string(path.join("comm")) else { continue };
            if !(name.starts_with("kworker/") || name.starts_with("jbd2/")) {
                continue;
            }
            let ours = self.workers.iter().any(|end| name.trim_end().ends_with(end.as_str()));
            let time = on_cpu(&path.display().to_string()).unwrap_or_default();
            workers.insert(pid, (time, ours));
        }
        Ok(workers)
    }
}

impl Clocks {
    /// Returns the time spent since `before`.
    pub fn since(&self, before: &Self) -> Cpu {
        let workers = self.workers.iter().filter(|(_, (_, ours))| *ours).map(|(pid, (now, _))| {
            let then = before.workers.get(pid).map_or(Duration::ZERO, |(time, _)| *time);
            now.saturating_sub(then)
        });
        Cpu {
            client: self.client.saturating_sub(before.client),
            daemon: self.daemon.saturating_sub(before.daemon),
            workers: workers.sum(),
        }
    }
}

/// Returns a thread's time on a CPU, from `schedstat` in nanoseconds or else from `stat` in ticks.
fn on_cpu(task: &str) -> Option<Duration> {
    if let Ok(text) = fs::read_to_string(format!("{task}/schedstat")) {
        return text.split(' ').next()?.parse().ok().map(Duration::from_nanos);
    }
    let text = fs::read_to_string(format!("{task}/stat")).ok()?;
    // The name, in parentheses, may contain blanks; user and system time are fields 14 and 15.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let hz = rustix::param::clock_ticks_per_second();
    Some(Duration::from_nanos(ticks * 1_000_000_000 / hz))
}
