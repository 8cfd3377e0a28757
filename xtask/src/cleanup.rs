//! Cleanup of mounts, loop devices and files.
//!
//! A guard undoes its effect when it is dropped. On Ctrl-C all guards are undone, the newest first.
//! No guard is undone twice.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Child},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
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
    /// Write this text to the file.
    Write(PathBuf, &'static str),
    /// Send SIGTERM to this process, and wait for its end.
    End(u32),
    /// Send SIGINT to this process, and wait for its end: PostgreSQL then closes its connections itself.
    Interrupt(u32),
}

/// Undoes an effect when dropped.
#[derive(Debug)]
pub(crate) struct Guard(u64);

struct UndoList {
    id_next: u64,
    undos: Vec<(u64, Undo)>,
}

/// Whether a signal has asked for the end of this program.
static STOPPING: AtomicBool = AtomicBool::new(false);

static PENDING: Mutex<UndoList> = Mutex::new(UndoList { id_next: 0, undos: Vec::new() });

const UNMOUNT_TRIES: u32 = 20;
const END_TRIES: u32 = 120;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
const UNMOUNT_PAUSE: Duration = Duration::from_millis(250);

impl Undo {
    /// Returns the guard that undoes this effect.
    pub(crate) fn later(self) -> Guard {
        let mut pending = PENDING.lock().expect("no code panics while it holds the list");
        pending.add(self)
    }

    fn perform(&self) {
        match self {
            Self::Unmount(dir) => unmount(dir),
            Self::Detach(device) => complain(Cmd::new("losetup").arg("-d").arg(device).read()),
            Self::Write(path, text) => complain(fs::write(path, text)),
            Self::End(pid) => end(*pid, "TERM"),
            Self::Interrupt(pid) => end(*pid, "INT"),
            Self::Remove(path) if path.is_dir() => complain(fs::remove_dir_all(path)),
            Self::Remove(path) => complain(fs::remove_file(path)),
        }
    }
}

impl Guard {
    /// Forgets the effect, which no longer exists.
    pub(crate) fn cancel(self) {
        if is_stopping() {
            return;
        }
        let mut pending = PENDING.lock().expect("no code panics while it holds the list");
        pending.undos.retain(|(id, _)| *id != self.0);
    }
}

/// Starts a process in the background, and returns it with the guard that ends the process. Refuses after a signal has
/// asked for the end of this program, so that no process is left behind.
pub(crate) fn spawn_guarded(cmd: Cmd, undo: fn(u32) -> Undo) -> Result<(Child, Guard)> {
    loop {
        ensure!(!is_stopping(), "`{cmd}` is not started: a signal has ended this program");
        // Waiting for the lock could take forever after a signal.
        let Ok(mut pending) = PENDING.try_lock() else {
            thread::sleep(LOCK_PAUSE);
            continue;
        };
        let child = cmd.spawn_apart()?;
        let guard = pending.add(undo(child.id()));
        return Ok((child, guard));
    }
}

impl UndoList {
    fn add(&mut self, undo: Undo) -> Guard {
        self.id_next += 1;
        self.undos.push((self.id_next, undo));
        Guard(self.id_next)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The handler of the signal undoes all, and must not wait for a file that this thread would close
        // later.
        if is_stopping() {
            return;
        }
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
            STOPPING.store(true, Ordering::Relaxed);
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

/// Returns whether a signal has asked for the end of this program, so that loads of this process have to end.
pub(crate) fn is_stopping() -> bool {
    STOPPING.load(Ordering::Relaxed)
}

/// Waits for the end of this program if a signal has asked for it: effects are still being undone.
pub(crate) fn wait_if_stopping() {
    while is_stopping() {
        thread::park();
    }
}

/// Returns whether a filesystem is mounted at `dir`.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|at| Path::new(at) == dir)
}

fn end(pid: u32, signal: &str) {
    if !is_alive(pid) {
        return;
    }
    complain(Cmd::new("kill").args(["-s", signal]).arg(pid.to_string()).read());
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
