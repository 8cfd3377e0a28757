//! Instructions and system calls of the daemon during a row, counted by perf(1).
//!
//! The preparation of a row is not counted.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::perf::Perf;

/// Events of perf, in the order of [`Counts`].
const EVENTS: [&str; 3] = ["instructions:u", "instructions:k", "raw_syscalls:sys_enter"];

/// Instructions and system calls of some processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of instructions in user space; `None` if the machine does not count them, as on many
    /// virtual machines.
    pub user: Option<u64>,
    /// Number of instructions in the kernel on behalf of the processes, interrupts in between
    /// included; `None` as for `user`.
    pub kernel: Option<u64>,
    /// Number of system calls.
    pub calls: u64,
}

/// Counting in progress, stopped when dropped.
pub(super) struct Counter(Perf);

impl Counter {
    /// Starts counting.
    pub(super) fn begin(pids: &[u32]) -> Result<Self> {
        ensure!(!pids.is_empty(), "--count needs the processes of the filesystem: add --pid");
        let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let perf = Perf::begin(|dir| {
            let report = dir.join("report").display().to_string();
            let events = EVENTS.join(",");
            let stat = ["stat", "--field-separator", ";", "--event", &events, "--pid", &pids];
            [&stat[..], &["--output", &report]].concat().into_iter().map(str::to_owned).collect()
        })?;
        Ok(Self(perf))
    }

    /// Stops counting, and returns the counts.
    pub(super) fn end(mut self) -> Result<Counts> {
        self.0.end()?;
        let report = fs::read_to_string(self.0.dir.join("report"))?;
        read(&report).with_context(|| format!("perf report: {report}"))
    }
}

/// Parses the report of perf: `123;;instructions:u;...`.
fn read(report: &str) -> Result<Counts> {
    let count = |event: &str| -> Result<Option<u64>> {
        let line = report.lines().find(|line| line.split(';').nth(2) == Some(event));
        match line.and_then(|line| line.split(';').next()) {
            // None of the processes ran.
            Some("<not counted>") => Ok(Some(0)),
            Some("<not supported>") => Ok(None),
            count => {
                let count = count.and_then(|count| count.parse().ok());
                count.map(Some).with_context(|| format!("no count of {event}"))
            }
        }
    };
    let [user, kernel, calls] = EVENTS.map(count);
    Ok(Counts { user: user?, kernel: kernel?, calls: calls?.context("no count of system calls")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_perf_are_parsed() {
        let report = "# started on\n\n12;;instructions:u;9;100.00;0.5;insn per cycle\n\
                      34;;instructions:k;9;100.00;;\n5;;raw_syscalls:sys_enter;9;100.00;;\n";
        let counts = Counts { user: Some(12), kernel: Some(34), calls: 5 };
        assert_eq!(read(report).unwrap(), counts);
        let idle = report.replace("12;", "<not counted>;");
        assert_eq!(read(&idle).unwrap().user, Some(0));
        let without = report.replace("34;", "<not supported>;");
        assert_eq!(read(&without).unwrap(), Counts { kernel: None, ..counts });
        assert!(read(&report.replace("5;", "<not supported>;")).is_err());
        assert!(read("").is_err());
    }
}
