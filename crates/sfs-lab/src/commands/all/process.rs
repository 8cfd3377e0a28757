//! One experiment as a process: the lines that it writes to standard error, and the signals that end it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use sfs_mkfs::output;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Interval between two looks at the process, and at the signals that have arrived.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How an experiment ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ending {
    /// It made its tables and figures, but for what its messages say.
    Made,
    /// With its last line on standard error.
    Failed(String),
}

/// The signals that tell this process to end.
pub(super) struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Keeps the signals from ending this process.
    pub(super) fn catch() -> Result<Signals> {
        let arrived = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(number, arrived.clone(), number as usize)?;
        }
        Ok(Signals(arrived))
    }

    /// Returns the name of the last signal that arrived.
    pub(super) fn arrived(&self) -> Option<&'static str> {
        match self.0.load(Ordering::Relaxed) as i32 {
            0 => None,
            SIGINT => Some("SIGINT"),
            SIGTERM => Some("SIGTERM"),
            _ => Some("SIGHUP"),
        }
    }
}

/// Runs an experiment, and hands on what it writes. Once a signal arrives it is told by SIGTERM, and ends in its own way: a shell
/// may have started all of this with SIGINT ignored. Returns how it ended, and its lines on standard error: what it left out, and why.
pub(super) fn run(command: &mut Command, signals: &Signals) -> Result<(Ending, Vec<String>)> {
    // A process group of its own: Ctrl-C reaches the experiment once, from here.
    let mut child = command.stderr(Stdio::piped()).process_group(0).spawn().context("sfs-lab")?;
    let lines = BufReader::new(child.stderr.take().context("the experiment's standard error")?);
    let printed = thread::spawn(move || {
        let handed_on = lines.lines().map_while(Result::ok).inspect(|line| {
            output::complain(format_args!("{line}"));
        });
        handed_on.collect::<Vec<String>>()
    });
    let status = ended(&mut child, signals)?;
    let printed = printed.join().expect("a thread that reads lines does not panic");
    Ok((ending(status, &printed), printed))
}

/// Waits for the end of the process.
fn ended(child: &mut Child, signals: &Signals) -> Result<ExitStatus> {
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if signals.arrived().is_some() && !is_told {
            kill_process(Pid::from_child(child), Signal::TERM)?;
            is_told = true;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn ending(status: ExitStatus, printed: &[String]) -> Ending {
    if status.success() {
        return Ending::Made;
    }
    let last = printed.iter().rev().find(|line| !line.trim().is_empty());
    Ending::Failed(last.map_or_else(|| status.to_string(), |line| line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_script(script: &str) -> (Ending, Vec<String>) {
        let signals = Signals(Arc::new(AtomicUsize::new(0)));
        run(Command::new("sh").args(["-c", script]), &signals).expect("a shell")
    }

    #[test]
    fn messages_and_the_last_line_of_a_failure_are_kept() {
        let (ending, messages) = run_script("echo table; echo 'skipped: f2fs' >&2");
        assert_eq!((ending, messages), (Ending::Made, vec!["skipped: f2fs".to_owned()]));
        let (ending, messages) = run_script("echo first >&2; echo 'no room' >&2; exit 3");
        assert_eq!((ending, messages.len()), (Ending::Failed("no room".into()), 2));
        let (ending, _) = run_script("kill -9 $$");
        assert_eq!(ending, Ending::Failed("signal: 9 (SIGKILL)".into()));
    }

    #[test]
    fn a_signal_is_sent_to_the_experiment_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let ready = folder.path().join("ready");
        let arrived = Arc::new(AtomicUsize::new(0));
        let (signals, waiting) = (Signals(arrived.clone()), ready.clone());
        let sender = thread::spawn(move || {
            while !waiting.exists() {
                thread::sleep(Duration::from_millis(10));
            }
            arrived.store(SIGINT as usize, Ordering::Relaxed);
        });
        let script = "trap 'echo told >&2; sleep 0.3; exit 1' TERM; touch \"$0\"; while :; do sleep 0.05; done";
        let mut command = Command::new("sh");
        let (ending, messages) =
            run(command.args(["-c", script]).arg(&ready), &signals).expect("a shell");
        sender.join().expect("no panic");
        assert_eq!((ending, messages), (Ending::Failed("told".into()), vec!["told".to_owned()]));
    }
}
