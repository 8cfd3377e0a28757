//! The mount that this process has made, and unmounting it.
//!
//! Another filesystem may be mounted on top of this mount, or in its place once this mount is gone.
//! [`OwnMount::detach`] therefore has the [`Monitor`] compare the device number at the mount point before
//! it unmounts. A signal thread unmounts on SIGTERM, SIGINT and SIGHUP.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::mount::MntFlags;
use nix::sys::stat;
use rustix::fs::{Mode, OFlags, open};
use sfs_system::mountinfo::{DeviceNumber, MountRecord, MountTable};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit_error::ExitError;
use crate::handover::turn::Turn;
use crate::monitor::Monitor;
use crate::mount;

/// The mount of this process. Clones share their state.
#[derive(Clone)]
pub(super) struct OwnMount {
    number: DeviceNumber,
    table: Arc<MountTable>,
    /// Unmounts.
    monitor: Arc<Monitor>,
    /// Path of the device, for the log.
    name: String,
    is_lost: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl OwnMount {
    /// Finds the mount that was just made at `dir`. `table` was opened before, as no descriptor may be left now.
    pub(super) fn at(
        dir: &Path,
        table: MountTable,
        monitor: Arc<Monitor>,
        name: String,
    ) -> Result<Self, ExitError> {
        let found = table.at(dir).and_then(|mount| mount.ok_or(ErrorKind::NotFound.into()));
        found.and_then(|mount| Self::of(&mount, table, monitor, name)).map_err(|error| {
            let _ = mount::detach(dir, MntFlags::MNT_DETACH);
            no_table(&error)
        })
    }

    /// Returns `mount`, and names it to the monitor.
    pub(super) fn of(
        mount: &MountRecord,
        table: MountTable,
        monitor: Arc<Monitor>,
        name: String,
    ) -> io::Result<Self> {
        let (table, number) = (Arc::new(table), mount.number);
        monitor.note_mount(&mount.dir, number, &table)?;
        Ok(Self::noted(number, table, monitor, name))
    }

    /// Returns a mount that `monitor` knows.
    pub(super) fn noted(
        number: DeviceNumber,
        table: Arc<MountTable>,
        monitor: Arc<Monitor>,
        name: String,
    ) -> Self {
        let (is_lost, is_over) = (Arc::default(), Arc::default());
        Self { number, table, monitor, name, is_lost, is_over }
    }

    pub(super) fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Returns whether files of this mount have the device number `dev`.
    pub(super) fn has(&self, dev: u64) -> bool {
        let DeviceNumber { major, minor } = self.number;
        (u64::from(major), u64::from(minor)) == (stat::major(dev), stat::minor(dev))
    }

    /// Returns the table of mounts.
    pub(super) fn table(&self) -> Arc<MountTable> {
        self.table.clone()
    }

    /// Unmounts, unless the mount is gone or another filesystem is mounted on top of it.
    pub(super) fn detach(&self, flags: MntFlags) -> Result<(), ExitError> {
        // The kernel may give the number of a mount that is over to another one.
        if self.is_over.load(Ordering::Relaxed) { Ok(()) } else { self.monitor.detach(flags) }
    }

    /// Unmounts by force after a loss of requests: a missing mount is better than a mount that
    /// hangs.
    pub(super) fn lose(&self, error: &std::io::Error) {
        let name = &self.name;
        tracing::error!("{name}: requests of the kernel do not arrive any more: {error}");
        self.is_lost.store(true, Ordering::Relaxed);
        let _ = self.detach(MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
    }

    /// Notes that the session of this mount has ended.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Starts the thread that unmounts when one of `signals` arrives. A mount that is in use is
    /// detached, and ends with its last use. `begin` is called first.
    pub(super) fn unmount_on(
        &self,
        mut signals: Signals,
        turn: Arc<Turn>,
        begin: impl Fn() + Send + 'static,
    ) -> Result<(), ExitError> {
        let own = self.clone();
        let wait = move || {
            for _ in signals.forever() {
                begin();
                let gone = turn.unmount(|| {
                    own.detach(MntFlags::empty()).or_else(|_| own.detach(MntFlags::MNT_DETACH))
                });
                if let Err(failure) = gone {
                    tracing::error!("{}: {failure}", own.name);
                }
            }
        };
        let thread = std::thread::Builder::new().name("sfs-signals".into()).spawn(wait);
        thread
            .map(drop)
            .map_err(|error| ExitError::system(format_args!("cannot start a thread: {error}")))
    }
}

/// Opens the table of mounts. Must be called before the mount.
pub(super) fn table() -> Result<MountTable, ExitError> {
    MountTable::open().map_err(|error| no_table(&error))
}

/// Opens the root directory of the mount that was just made at `dir`, without asking its daemon for anything. The mount is in use
/// until the value is dropped.
pub(super) fn root(dir: &Path) -> Result<File, ExitError> {
    // Options of the standard library leave O_PATH out where the C library is musl.
    let opened = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    opened
        .map(File::from)
        .map_err(|error| ExitError::system(format_args!("{}: {error}", dir.display())))
}

pub(super) fn no_table(error: &std::io::Error) -> ExitError {
    ExitError::system(format_args!("/proc/self/mountinfo: {error}"))
}

/// Catches SIGTERM, SIGINT and SIGHUP from now on, for [`OwnMount::unmount_on`].
pub(super) fn signals() -> Result<Signals, ExitError> {
    Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| ExitError::system(format_args!("cannot catch signals: {error}")))
}

/// Mount that does not answer yet. Dropping it unmounts.
pub(super) struct UnannouncedMount(Option<OwnMount>);

impl UnannouncedMount {
    pub(super) fn new(own: OwnMount) -> Self {
        Self(Some(own))
    }

    /// Keeps the mount, as it answers now.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for UnannouncedMount {
    fn drop(&mut self) {
        if let Some(own) = &self.0 {
            let _ = own.detach(MntFlags::MNT_DETACH);
        }
    }
}
