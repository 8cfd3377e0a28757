//! Starting the daemon: leaving the terminal, and a pipe to the process that the user started.
//!
//! [`detach`] forks. The first process returns only when the second has reported through the [`ReadyPipe`] that the
//! mount answers, or why it does not; warnings for the user go the same way. The fork happens before there are
//! threads.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use nix::unistd;
use sfs_system::output;

use crate::exit_error::ExitError;
use crate::unsafe_calls::{ForkSide, split};

/// First byte of the report that the mount answers.
const READY: u8 = 0;

/// Sender of one report to the waiting process.
pub(crate) struct ReadyPipe(Option<File>);

impl ReadyPipe {
    /// Makes a sender without a waiting process.
    pub(crate) fn foreground() -> Self {
        Self(None)
    }

    /// Reports that the mount answers, with warnings for the user, one line each.
    pub(crate) fn report_ready(&mut self, warnings: &[String]) {
        let text = warnings.join("\n");
        match self.0.take() {
            Some(mut pipe) => {
                let mut message = vec![READY];
                message.extend_from_slice(text.as_bytes());
                let _ = pipe.write_all(&message);
            }
            None => warn(&text),
        }
    }

    /// Reports a failure. Returns it if no process waits.
    pub(crate) fn report_failure(&mut self, failure: ExitError) -> Option<ExitError> {
        match self.0.take() {
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
    /// Process that stays.
    Daemon(ReadyPipe),
}

/// Forks. In the process that the user started it returns after the report of the other, with the reported error if
/// there is one.
pub(crate) fn detach() -> Result<Detached, ExitError> {
    let system = |error: &dyn std::fmt::Display| {
        ExitError::system(format_args!("cannot start the daemon: {error}"))
    };
    let (from, to) = unistd::pipe().map_err(|error| system(&error))?;
    match split().map_err(|error| system(&error))? {
        ForkSide::Parent => {
            drop(to);
            wait(File::from(from)).map(|()| Detached::Starter)
        }
        ForkSide::Child => {
            drop(from);
            leave_terminal();
            Ok(Detached::Daemon(ReadyPipe(Some(File::from(to)))))
        }
    }
}

fn wait(mut pipe: File) -> Result<(), ExitError> {
    let mut message = Vec::new();
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

/// Prints each line of `text` for the user.
pub(crate) fn warn(text: &str) {
    text.lines().for_each(|line| output::complain(format_args!("sfs-mount: {line}")));
}

/// Leaves the terminal and the session, and the working directory, which would stay busy.
fn leave_terminal() {
    let _ = unistd::setsid();
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = unistd::dup2_stdin(&null);
        let _ = unistd::dup2_stdout(&null);
        let _ = unistd::dup2_stderr(&null);
    }
}
