//! What this process has mounted, and taking it away again.
//!
//! Owns: the signals that unmount; which mount is ours.
//! Promises: takes away no mount but its own, whatever has been mounted on top of it or in its place.
//! Never: waits for the kernel to answer.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::mount::MntFlags;
use nix::sys::stat;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::mountinfo::{DeviceNumber, Table};
use crate::{Failure, unmount};

/// A mount of ours.
#[derive(Clone)]
pub(super) struct Mounted {
    dir: PathBuf,
    number: DeviceNumber,
    table: Arc<Table>,
    /// The device's path.
    name: String,
    is_lost: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Mounted {
    /// What was just mounted at `dir`; `table` was opened before.
    pub(super) fn at(dir: &Path, table: Table, name: String) -> Result<Self, Failure> {
        match table.at(dir).and_then(|mount| mount.ok_or(ErrorKind::NotFound.into())) {
            Ok(mount) => Ok(Self {
                dir: mount.dir,
                number: mount.number,
                table: Arc::new(table),
                name,
                is_lost: Arc::default(),
                is_over: Arc::default(),
            }),
            Err(error) => {
                let _ = unmount::detach(dir, MntFlags::MNT_DETACH);
                Err(no_table(&error))
            }
        }
    }

    pub(super) fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Whether files there have the device number `dev`.
    pub(super) fn has(&self, dev: u64) -> bool {
        let DeviceNumber { major, minor } = self.number;
        (u64::from(major), u64::from(minor)) == (stat::major(dev), stat::minor(dev))
    }

    /// Whether it is what a path to its directory leads to.
    fn is_on_top(&self) -> bool {
        let found = || self.table.at(&self.dir).ok().flatten();
        // Once it is over its number may be another's.
        !self.is_over.load(Ordering::Relaxed)
            && found().is_some_and(|mount| mount.number == self.number)
    }

    /// Takes it out of the tree. Does nothing if it is not there, or something is mounted on top of it.
    pub(super) fn detach(&self, flags: MntFlags) -> Result<(), Failure> {
        if self.is_on_top() { unmount::detach(&self.dir, flags) } else { Ok(()) }
    }

    /// What is done when requests do not reach us any more: rather no mount than one that hangs.
    pub(super) fn lose(&self, error: &std::io::Error) {
        let name = &self.name;
        tracing::error!("{name}: the kernel's requests do not reach us any more: {error}");
        self.is_lost.store(true, Ordering::Relaxed);
        let _ = self.detach(MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
    }

    /// Its session has ended.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// When one of `signals` comes it is unmounted; when it is in use, it goes as soon as it is not.
    pub(super) fn unmount_on(&self, mut signals: Signals) -> Result<(), Failure> {
        let mounted = self.clone();
        let wait = move || {
            for _ in signals.forever() {
                let gone = mounted
                    .detach(MntFlags::empty())
                    .or_else(|_| mounted.detach(MntFlags::MNT_DETACH));
                if let Err(failure) = gone {
                    tracing::error!("{}: {failure}", mounted.name);
                }
            }
        };
        let thread = std::thread::Builder::new().name("sfs-signals".into()).spawn(wait);
        thread.map(drop).map_err(|error| Failure::system(format_args!("no thread: {error}")))
    }
}

/// The table of mounts, while it can be opened.
pub(super) fn table() -> Result<Table, Failure> {
    Table::open().map_err(|error| no_table(&error))
}

fn no_table(error: &std::io::Error) -> Failure {
    Failure::system(format_args!("/proc/self/mountinfo: {error}"))
}

/// SIGTERM, SIGINT and SIGHUP, which from now on wait for [`Mounted::unmount_on`].
pub(super) fn signals() -> Result<Signals, Failure> {
    Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Failure::system(format_args!("signals: {error}")))
}

/// A mount that nobody answers yet. It goes with this.
pub(super) struct Unanswered(Option<Mounted>);

impl Unanswered {
    pub(super) fn new(mounted: Mounted) -> Self {
        Self(Some(mounted))
    }

    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(mounted) = &self.0 {
            let _ = mounted.detach(MntFlags::MNT_DETACH);
        }
    }
}
