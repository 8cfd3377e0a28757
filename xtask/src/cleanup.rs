//! Cleanup of mounts, loop devices and files.
//!
//! A guard undoes its effect when it is dropped. On Ctrl-C all guards are undone, the newest first.
//! No guard is undone twice.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::Mutex,
    thread,
    time::Duration,
};

use anyhow::Result;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{machine, run::Cmd};

/// Effect on the machine, by the way to undo it.
#[derive(Debug)]
pub(crate) enum Undo {
    /// Unmount this directory if something is mounted there.
    Unmount(PathBuf),
    /// Detach the file from this loop device.
    Detach(PathBuf),
    /// Remove this file, or this directory with its content.
    Remove(PathBuf),
    /// Send SIGTERM to this process, and wait for its end.
    End(u32),
}

/// Undoes an effect when dropped.
#[derive(Debug)]
pub(crate) struct Guard(u64);

struct UndoList {
    id_next: u64,
    undos: Vec<(u64, Undo)>,
}

static PENDING: Mutex<UndoList> = Mutex::new(UndoList { id_next: 0, undos: Vec::new() });

const UNMOUNT_TRIES: u32 = 20;
const END_TRIES: u32 = 120;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(250);

impl Undo {
    /// Returns the guard that undoes this effect.
    pub(crate) fn later(self) -> Guard {
        let mut pending = PENDING.lock().expect("no code panics while it holds the list");
        pending.id_next += 1;
        let id = pending.id_next;
        pending.undos.push((id, self));
        Guard(id)
    }

    fn perform(&self) {
        match self {
            Self::Unmount(dir) => unmount(dir),
            Self::Detach(device) => complain(Cmd::new("losetup").arg("-d").arg(device).read()),
            Self::End(pid) => end(*pid),
            Self::Remove(path) if path.is_dir() => complain(fs::remove_dir_all(path)),
            Self::Remove(path) => complain(fs::remove_file(path)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let undo = {
            let mut pending = PENDING.lock().expect("no code panics while it holds the list");
            let at = pending.undos.iter().position(|(id, _)| *id == self.0);
            at.map(|at| pending.undos.remove(at).1)
        };
        if let Some(undo) = undo {
            undo.perform();
        }
    }
}

/// Installs the handler that undoes all effects on Ctrl-C, as far as possible, and ends the
/// process.
pub(crate) fn on_signal() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("stopped: undoing mounts and loop devices");
            // The lock stays taken, so that no new effect begins while the process ends.
            let mut pending = PENDING.lock().expect("no code panics while it holds the list");
            while let Some((_, undo)) = pending.undos.pop() {
                undo.perform();
            }
            process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Returns whether a filesystem is mounted at `dir`.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|at| Path::new(at) == dir)
}

fn end(pid: u32) {
    complain(Cmd::new("kill").arg(pid.to_string()).read());
    for _ in 0..END_TRIES {
        if !is_alive(pid) {
            return;
        }
        thread::sleep(UNMOUNT_PAUSE);
    }
    eprintln!("process {pid} is still running");
}

/// Returns whether a process runs. A zombie has ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn unmount(dir: &Path) {
    for _ in 0..UNMOUNT_TRIES {
        if !is_mounted(dir) {
            return;
        }
        if unmount_once(dir).is_ok() {
            continue;
        }
        thread::sleep(UNMOUNT_PAUSE);
    }
    eprintln!("{} stays busy: unmounting it lazily", dir.display());
    complain(Cmd::new("umount").arg("-l").arg(dir).read());
}

/// Tries once to unmount: by `umount`, or by `fusermount3` for an ordinary user.
pub(crate) fn unmount_once(dir: &Path) -> Result<()> {
    let cmd =
        if machine::is_root() { Cmd::new("umount") } else { Cmd::new("fusermount3").arg("-u") };
    cmd.arg(dir).read().map(drop)
}

fn complain<T, E: std::fmt::Display>(result: Result<T, E>) {
    if let Err(error) = result {
        eprintln!("cleaning up: {error:#}");
    }
}
