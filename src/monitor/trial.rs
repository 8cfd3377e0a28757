//! Attempts to start a program that takes over from one that lives.

use std::io;
use std::process::{Child, ExitStatus};

/// Reason why a program was not started.
pub(super) const TRIAL_HAS_ENDED: &str = "the upgrade was given up before its program was started";

/// One attempt to start a program that takes over from one that lives. It ends when another one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trial(u64);

/// The attempts for one mount: one at a time, which may have a program.
#[derive(Debug, Default)]
pub(super) struct Trials {
    newest: Trial,
    program: Option<Child>,
}

impl Trials {
    /// Begins a trial, and ends the one before: its program, for whose end this waits, or its right to start one.
    pub(super) fn begin(&mut self) -> Trial {
        end(&mut self.program);
        self.newest.0 += 1;
        self.newest
    }

    /// Returns `Interrupted` if `trial` has ended.
    pub(super) fn check(&self, trial: Trial) -> io::Result<()> {
        if self.newest == trial {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, TRIAL_HAS_ENDED))
    }

    /// Makes `program` that of `trial`. Where that has ended, or `note_started` fails, the program is ended.
    pub(super) fn take(
        &mut self,
        trial: Trial,
        program: Child,
        note_started: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut program = Some(program);
        let noted = self.check(trial).and_then(|()| note_started());
        match noted {
            Ok(()) => self.program = program,
            Err(_) => drop(end(&mut program)),
        }
        noted
    }
}

/// Ends `program`, and waits for its end. Returns how it has ended: as it has by itself, if it had already.
pub(super) fn end(program: &mut Option<Child>) -> Option<ExitStatus> {
    let mut child = program.take()?;
    let _ = child.kill();
    child.wait().ok()
}

#[cfg(test)]
impl Trials {
    /// Returns whether the newest trial has a program.
    pub(super) fn has_program(&self) -> bool {
        self.program.is_some()
    }
}
