//! Leaving the terminal, and telling the user's process how it went.
//!
//! Owns: the pipe between the process that the user started and the one that stays.
//! Promises: the first returns only when the second has said that the mount answers, or why not;
//! what the user should know of it reaches him.
//! Never: forks when there are threads.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use nix::unistd;
use sfs_system::output;

use crate::exit_error::ExitError;
use crate::unsafe_calls::{ForkSide, split};

/// The status that says that all is well.
const READY: u8 = 0;

/// Says to the process that waits how it went. Does so once.
pub(crate) struct ReadyPipe(Option<File>);

impl ReadyPipe {
    /// Nobody waits.
    pub(crate) fn foreground() -> Self {
        Self(None)
    }

    /// The mount answers. The user is told the warning, if there is one.
    pub(crate) fn ready(&mut self, warning: Option<&str>) {
        let text = warning.unwrap_or_default();
        match self.0.take() {
            Some(mut pipe) => {
                let mut message = vec![READY];
                message.extend_from_slice(text.as_bytes());
                let _ = pipe.write_all(&message);
            }
            None => warn(text),
        }
    }

    /// It has failed; gives the failure back if nobody waits for it.
    pub(crate) fn failed(&mut self, failure: ExitError) -> Option<ExitError> {
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

/// Splits in two. In the process that stays it gives the ready; in the other it waits, and gives
/// how it went.
pub(crate) fn detach() -> Result<ReadyPipe, Result<(), ExitError>> {
    let system = |error: &dyn std::fmt::Display| {
        Err(ExitError::system(format_args!("cannot start the daemon: {error}")))
    };
    let (from, to) = unistd::pipe().map_err(|error| system(&error))?;
    match split().map_err(|error| system(&error))? {
        ForkSide::Parent => {
            drop(to);
            Err(wait(File::from(from)))
        }
        ForkSide::Child => {
            drop(from);
            leave_terminal();
            Ok(ReadyPipe(Some(File::from(to))))
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

/// Tells the user `text`, if there is any.
pub(crate) fn warn(text: &str) {
    if !text.is_empty() {
        output::complain(format_args!("sfs-mount: {text}"));
    }
}

/// A session of its own, no working directory that would be busy, no terminal.
fn leave_terminal() {
    let _ = unistd::setsid();
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = unistd::dup2_stdin(&null);
        let _ = unistd::dup2_stdout(&null);
        let _ = unistd::dup2_stderr(&null);
    }
}
