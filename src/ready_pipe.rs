//! Starting the daemon: leaving the terminal, and a pipe to the process that the user started.
//!
//! [`detach`] forks. The first process returns only when the second process has reported through the
//! [`ReadyPipe`] that the mount answers, or why it does not. Warnings for the user go the same way, and
//! before them the progress of steps that take long. The fork happens before there are threads.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};

use nix::fcntl::OFlag;
use nix::unistd;
use sfs_system::output;

use crate::exit_error::ExitError;
use crate::unsafe_calls::{ForkSide, split};

/// First byte of the report that the mount answers.
const READY: u8 = 0;

/// First byte of a line about the progress, which comes before the report.
const PROGRESS: u8 = 255;

/// Sender of one report to the waiting process.
pub(crate) struct ReadyPipe {
    /// Pipe to the process that waits, if there is one.
    pipe: Option<File>,
    /// Line about the progress, for a sender without a waiting process.
    line: ProgressLine,
}

impl ReadyPipe {
    /// Makes a sender without a waiting process.
    pub(crate) fn foreground() -> Self {
        Self { pipe: None, line: ProgressLine::new() }
    }

    /// Makes a sender to the process at the other end of `pipe`.
    fn to_starter(pipe: File) -> Self {
        Self { pipe: Some(pipe), line: ProgressLine::new() }
    }

    /// Closes this process's end, without a report: another process has one, too.
    pub(crate) fn abandon(&mut self) {
        self.pipe = None;
    }

    /// Shows the user `text` about the progress. Must be called before the report.
    pub(crate) fn report_progress(&mut self, text: &str) {
        match &mut self.pipe {
            Some(pipe) => {
                let mut message = vec![PROGRESS];
                message.extend(text.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
                message.push(b'\n');
                let _ = pipe.write_all(&message);
            }
            None => self.line.show(text),
        }
    }

    /// Removes the text about the progress from the terminal of this process.
    pub(crate) fn end_progress(&mut self) {
        self.line.clear();
    }

    /// Reports that the mount answers, with warnings for the user, one line each.
    pub(crate) fn report_ready(&mut self, warnings: &[String]) {
        let text = warnings.join("\n");
        match self.pipe.take() {
            Some(mut pipe) => {
                let mut message = vec![READY];
                message.extend_from_slice(text.as_bytes());
                let _ = pipe.write_all(&message);
            }
            None => warn(&text),
        }
    }

    /// Reports a failure. Returns the failure if no process waits.
    pub(crate) fn report_failure(&mut self, failure: ExitError) -> Option<ExitError> {
        match self.pipe.take() {
            Some(mut pipe) => {
                let mut message = vec![failure.status];
                message.extend_from_slice(failure.to_string().as_bytes());
                let _ = pipe.write_all(&message);
                None
            }
            None => Some(failure),
        }
    }
}

/// Process in which [`detach`] has returned.
pub(crate) enum Detached {
    /// Process that the user started; the mount answers.
    Starter,
    /// Process that serves the mount.
    Daemon(ReadyPipe),
}

/// Forks. In the process that the user started, the call returns after the report of the other
/// process, with the reported error if there is one.
pub(crate) fn detach() -> Result<Detached, ExitError> {
    let system = |error: &dyn std::fmt::Display| {
        ExitError::system(format_args!("cannot start the daemon: {error}"))
    };
    // Programs that the daemon starts do not keep it open.
    let (from, to) = unistd::pipe2(OFlag::O_CLOEXEC).map_err(|error| system(&error))?;
    match split().map_err(|error| system(&error))? {
        ForkSide::Parent => {
            drop(to);
            wait(File::from(from), &mut ProgressLine::new()).map(|()| Detached::Starter)
        }
        ForkSide::Child => {
            drop(from);
            leave_terminal();
            Ok(Detached::Daemon(ReadyPipe::to_starter(File::from(to))))
        }
    }
}

/// Waits for the report, and shows the progress until then.
fn wait(pipe: impl Read, line: &mut ProgressLine) -> Result<(), ExitError> {
    let (mut pipe, mut message) = (BufReader::new(pipe), Vec::new());
    while pipe.fill_buf().is_ok_and(|bytes| bytes.first() == Some(&PROGRESS)) {
        let mut text = Vec::new();
        if pipe.read_until(b'\n', &mut text).is_err() {
            break;
        }
        line.show(String::from_utf8_lossy(&text[1..]).trim_end());
    }
    line.clear();
    let read = pipe.read_to_end(&mut message);
    match (read, message.split_first()) {
        (Ok(_), Some((&READY, text))) => {
            warn(&String::from_utf8_lossy(text));
            Ok(())
        }
        (Ok(_), Some((&status, text))) => {
            Err(ExitError::with_status(status, String::from_utf8_lossy(text)))
        }
        _ => Err(ExitError::system("the daemon ended before the mount answered")),
    }
}

/// Line about the progress on standard error: overwritten on a terminal, printed once elsewhere.
struct ProgressLine {
    is_terminal: bool,
    is_shown: bool,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), is_shown: false }
    }

    fn show(&mut self, text: &str) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\rsfs-mount: {text}\x1b[K");
        } else if !self.is_shown {
            warn(text);
        }
        self.is_shown = true;
    }

    /// Removes the line from a terminal.
    fn clear(&self) {
        if self.is_terminal && self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Prints each line of `text` for the user.
pub(crate) fn warn(text: &str) {
    text.lines().for_each(|line| output::complain(format_args!("sfs-mount: {line}")));
}

/// Leaves the terminal and the session, and the working directory, which would stay busy.
pub(crate) fn leave_terminal() {
    let _ = unistd::setsid();
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = unistd::dup2_stdin(&null);
        let _ = unistd::dup2_stdout(&null);
        let _ = unistd::dup2_stderr(&null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outcome of a wait for the messages of `send`, and whether a line about the
    /// progress was shown.
    fn sent(send: impl FnOnce(&mut ReadyPipe)) -> (Result<(), ExitError>, bool) {
        let (from, to) = unistd::pipe().expect("a pipe");
        let mut pipe = ReadyPipe::to_starter(File::from(to));
        send(&mut pipe);
        drop(pipe);
        let mut line = ProgressLine { is_terminal: true, is_shown: false };
        let waited = wait(File::from(from), &mut line);
        (waited, line.is_shown)
    }

    #[test]
    fn progress_comes_before_the_report() {
        assert_eq!(sent(|pipe| pipe.report_ready(&[])), (Ok(()), false));
        let ready = sent(|pipe| {
            pipe.report_progress("a\nb: 3%");
            pipe.report_progress("a b: 4%");
            pipe.report_ready(&[]);
        });
        assert_eq!(ready, (Ok(()), true));
        let failure = ExitError::mount("the device has no volume");
        let failed = sent(|pipe| {
            pipe.report_progress("a: 3%");
            assert_eq!(pipe.report_failure(failure.clone()), None);
        });
        assert_eq!(failed, (Err(failure), true));
        let (ended, _) = sent(|pipe| pipe.report_progress("a: 3%"));
        assert!(ended.is_err_and(|error| error.to_string().contains("the daemon ended")));
    }
}
