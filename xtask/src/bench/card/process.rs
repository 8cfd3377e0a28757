//! Programs that run beside this one, and end with it.

use std::{
    fs::{self, File},
    io,
    path::Path,
    process::{Child, ExitStatus},
};

use anyhow::{Result, ensure};

use crate::{
    cleanup::{self, Guard, Undo},
    run::Cmd,
};

/// A running program, ended when dropped.
pub(super) struct Running {
    pub(super) child: Child,
    guard: Option<Guard>,
}

impl Running {
    /// Starts a program in a process group of its own; its output is a pipe.
    pub(super) fn start(cmd: Cmd) -> Result<Self> {
        Self::with_undo(cmd, Undo::End)
    }

    /// Starts a program that ends on SIGINT.
    pub(super) fn start_interruptible(cmd: Cmd) -> Result<Self> {
        Self::with_undo(cmd, Undo::Interrupt)
    }

    fn with_undo(cmd: Cmd, undo: fn(u32) -> Undo) -> Result<Self> {
        let (child, guard) = cleanup::spawn_guarded(cmd, undo)?;
        Ok(Self { child, guard: Some(guard) })
    }

    /// Waits until the program has ended by itself.
    pub(super) fn wait(mut self) -> Result<ExitStatus> {
        // Without a reader a pipe could fill up.
        if let Some(mut output) = self.child.stdout.take() {
            io::copy(&mut output, &mut io::sink())?;
        }
        // The guard must not signal the process ID once it is free.
        let status = self.child.wait()?;
        if let Some(guard) = self.guard.take() {
            guard.cancel();
        }
        Ok(status)
    }
}

/// Runs a program to its end. Its messages go into the file `errors`, and into the error if the program fails.
pub(super) fn finish(cmd: Cmd, errors: &Path) -> Result<()> {
    let shown = cmd.to_string();
    let running = Running::start(cmd.errors_to(File::create(errors)?))?;
    let status = running.wait()?;
    let text = fs::read_to_string(errors).unwrap_or_default();
    ensure!(status.success(), "`{shown}`: {status}\n{}", text.trim());
    Ok(())
}

impl Drop for Running {
    fn drop(&mut self) {
        // While the process is not waited for, its ID is not used again.
        if self.guard.take().is_some() {
            let _ = self.child.wait();
        }
    }
}
