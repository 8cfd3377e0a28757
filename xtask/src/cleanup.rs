//! What has to be undone, whatever happens: mounts, loop devices, files.
//!
//! Owns the list. Promises to undo the newest first: when a guard is dropped, and on Ctrl-C.
//! Never undoes a thing twice.

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

/// How one thing is undone.
#[derive(Debug)]
pub(crate) enum Undo {
    /// Unmount this directory if something is mounted there.
    Unmount(PathBuf),
    /// Take the file away from this loop device.
    Detach(PathBuf),
    /// Remove this file, or this directory and what is in it.
    Remove(PathBuf),
}

/// Undoes when dropped.
#[derive(Debug)]
pub(crate) struct Guard(u64);

struct Pending {
    id_next: u64,
    undos: Vec<(u64, Undo)>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending { id_next: 0, undos: Vec::new() });

const UNMOUNT_TRIES: u32 = 20;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(250);

impl Undo {
    /// From now on, this will be undone.
    pub(crate) fn later(self) -> Guard {
        let mut pending = PENDING.lock().expect("nobody panics with the list in hand");
        pending.id_next += 1;
        let id = pending.id_next;
        pending.undos.push((id, self));
        Guard(id)
    }

    fn perform(&self) {
        match self {
            Self::Unmount(dir) => unmount(dir),
            Self::Detach(device) => complain(Cmd::new("losetup").arg("-d").arg(device).read()),
            Self::Remove(path) if path.is_dir() => complain(fs::remove_dir_all(path)),
            Self::Remove(path) => complain(fs::remove_file(path)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let undo = {
            let mut pending = PENDING.lock().expect("nobody panics with the list in hand");
            let at = pending.undos.iter().position(|(id, _)| *id == self.0);
            at.map(|at| pending.undos.remove(at).1)
        };
        if let Some(undo) = undo {
            undo.perform();
        }
    }
}

/// On Ctrl-C and its like everything is undone, best effort, and the process ends.
pub(crate) fn on_signal() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("stopped: undoing mounts and loop devices");
            // The lock is kept: nothing new is begun while the process ends.
            let mut pending = PENDING.lock().expect("nobody panics with the list in hand");
            while let Some((_, undo)) = pending.undos.pop() {
                undo.perform();
            }
            process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Is something mounted at `dir`?
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|at| Path::new(at) == dir)
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

/// One try, by the kernel's means: `umount`, or `fusermount3` for a normal user.
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
