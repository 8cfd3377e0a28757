//! The side of the daemon that serves.
//!
//! An attempt that fails before the new program may write leaves this daemon serving: the new program is ended first. After that the
//! handover is tried once more with the program of this daemon, which has opened the volume before.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::mount::MntFlags;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sfs_device::FileDevice;
use sfs_fuse::Pauser;
use sfs_system::mountinfo::{DeviceNumber, MountTable};

use super::link::{DESCRIPTORS_MAX, Link};
use super::messages::{PROTOCOL, ToNew, ToOld};
use super::state::{DescriptorUse, HandedDescriptors, HandedState, references};
use super::turn::Turn;
use crate::background::Waker;
use crate::bdi::BackingDevice;
use crate::exit_error::ExitError;
use crate::freeze::Freezer;
use crate::fuse::{LostWriteback, OpenHandles};
use crate::inspect::scrubber::Scrubber;
use crate::log_thread::LogWork;
use crate::monitor::{Monitor, Successor};
use crate::mounted_volume::MountedVolume;

/// Longest wait for a program to start.
const START_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest wait for the first write of the new program, and for its threads.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(120);

/// Refusal of a mount whose background step does not end.
const TOO_BUSY: &str = "a step of the background takes too long; try again later";

/// Refusal of a volume whose losses are known to this process alone.
const HAS_FAILED: &str = "has failed, and what programs have to learn of that is known here alone; see the log, unmount it and run sfs-fsck";

/// Handover of one mount by this daemon.
pub(crate) struct Giver {
    pub(crate) volume: Arc<MountedVolume>,
    pub(crate) device: Arc<FileDevice>,
    /// Path of the device, for messages.
    pub(crate) name: String,
    pub(crate) monitor: Arc<Monitor>,
    /// `None` if the transport cannot be handed over.
    pub(crate) pauser: Option<Pauser>,
    /// Reason for the transport.
    pub(crate) reason: String,
    pub(crate) waker: Arc<Waker>,
    pub(crate) log_work: Arc<LogWork>,
    pub(crate) freezer: Freezer,
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) bdi: Arc<BackingDevice>,
    pub(crate) handles: Arc<OpenHandles>,
    pub(crate) losses: Arc<LostWriteback>,
    pub(crate) is_write_protected: bool,
    /// `true` if the program that started this one waits for its end.
    pub(crate) foreground: bool,
    /// `true` if the monitor starts this program again when it dies.
    pub(crate) survives: bool,
    /// `true` for a volume in an object store.
    pub(crate) is_in_store: bool,
    /// `true` if the kernel sends requests again that were not answered.
    pub(crate) sends_again: bool,
    /// `true` once the last checkpoint has begun. Locked during a handover.
    pub(crate) is_over: Arc<Mutex<bool>>,
    pub(crate) turn: Arc<Turn>,
    pub(crate) number: DeviceNumber,
    /// The kernel's table of mounts.
    pub(crate) mounts: Arc<MountTable>,
    /// Descriptors of sockets for the metrics.
    pub(crate) metrics: Mutex<HandedDescriptors>,
}

/// Outcome of a handover that has succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UpgradeReport {
    /// Version of the program that served before.
    pub(crate) from: String,
    /// Version of the program that serves now.
    pub(crate) to: String,
    /// Time in which no request was answered, in milliseconds.
    pub(crate) pause_ms: u64,
}

/// How the mount goes on after a handover.
pub(crate) enum HandedOver {
    /// The new program serves.
    ToProgram(UpgradeReport),
    /// The monitor starts the new program once this process has ended, and tells the client.
    ByMonitor,
}

/// Failure of a handover.
pub(crate) enum Failure {
    /// This daemon serves on.
    Refused(ExitError),
    /// Another process with the program of this daemon serves on, and this process must end.
    Replaced(ExitError),
    /// No program serves any more: this process must end, so that requests get an error.
    Lost(ExitError),
}

impl From<ExitError> for Failure {
    fn from(refusal: ExitError) -> Self {
        Self::Refused(refusal)
    }
}

impl Giver {
    /// Hands the mount over to the installed program, for which `client` has asked. `control` is the control socket, with those that
    /// watch it. No request is answered for at most about `pause_max`, unless the handover succeeds. On success this process must
    /// end at once, and do nothing more.
    pub(crate) fn hand_over(
        &self,
        client: &UnixStream,
        control: HandedDescriptors,
        pause_max: Duration,
    ) -> Result<HandedOver, Failure> {
        let is_over = self.is_over.lock();
        if *is_over {
            return Err(self.refused("is being unmounted").into());
        }
        let turn = self.turn.of_handover();
        let pauser = self.check()?;
        let link = self.start(Successor::Installed).inspect_err(|_| self.stop());
        let (link, version) = link?;
        let outcome = match self.survives {
            true => self.leave_to_monitor((link, version), pause_max, client),
            false => self.hand_over_by(pauser, (link, version), control, pause_max),
        };
        match &outcome {
            Err(Failure::Refused(refusal)) => {
                tracing::warn!("{}: not upgraded: {refusal}", self.name);
            }
            // Nobody may write any more, the last checkpoint included.
            Ok(_) | Err(Failure::Replaced(_)) => std::mem::forget(is_over),
            Err(Failure::Lost(_)) => {
                std::mem::forget(is_over);
                self.stop();
                // A missing mount is better than one that hangs.
                let _ = self.monitor.detach(MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
            }
        }
        drop(turn);
        if !matches!(outcome, Err(Failure::Refused(_))) && self.turn.is_end_wanted() {
            // This process ends before the thread that was asked.
            let _ = self.monitor.detach(MntFlags::MNT_DETACH);
        }
        outcome
    }

    /// Returns how requests are paused, unless the mount cannot be handed over now.
    fn check(&self) -> Result<&Pauser, ExitError> {
        let refusal = if self.foreground {
            "is served in the foreground: whoever started sfs-mount would take its end for that of the mount; unmount it and \
             mount it again"
        } else if self.pauser.is_none() {
            "its requests come through io_uring or fuser, and these cannot go to another program; mount it with \
             --transport dev for upgrades, or unmount it and mount it again"
        } else if self.volume.now().superblock().features.has_cache() {
            "has a cache on an SSD, which another program cannot take over; unmount it and mount it again"
        } else if self.is_in_store {
            "is in an object store, with a local cache that another program cannot take over; unmount it and mount it again"
        } else if self.survives && !self.sends_again {
            "is mounted with -o survive, and this kernel does not send requests again, so calls under way would get an error; \
             unmount it and mount it again"
        } else if self.freezer.is_frozen() {
            "is frozen; thaw it first"
        } else if self.scrubber.is_running() {
            "a scrub is running; stop it first ('sfs-ctl scrub stop')"
        } else if self.has_failed() {
            HAS_FAILED
        } else {
            self.check_mount()?;
            return self.pauser.as_ref().ok_or_else(|| self.refused("cannot be paused"));
        };
        Err(self.refused(refusal))
    }

    /// Checks that the mount is there, and is not one that a remount has made read-only: to such a volume nothing may be written, and
    /// a program that takes it over from this one has to write before the first change. One that goes on by records need not.
    fn check_mount(&self) -> Result<(), ExitError> {
        let mount = self.mounts.of_number(self.number).map_err(|error| self.refused(error))?;
        match mount {
            None => Err(self.refused("is being unmounted")),
            Some(mount) if mount.is_read_only() && !self.survives && !self.volume.now().is_read_only() => Err(self
                .refused(
                    "was made read-only by a remount; make it writable ('mount -o remount,rw'), or unmount it and mount it again",
                )),
            Some(_) => Ok(()),
        }
    }

    fn has_failed(&self) -> bool {
        self.volume.now().has_failed() || self.volume.now().has_lost_data()
    }

    pub(super) fn refused(&self, reason: impl std::fmt::Display) -> ExitError {
        ExitError::mount(format_args!("{}: {reason}", self.name))
    }

    /// Starts a program, and checks its version. Returns the connection, and the version.
    fn start(&self, which: Successor) -> Result<(Link, String), ExitError> {
        let link = self.monitor.start_program(which).map_err(|error| {
            self.refused(format_args!("cannot start the installed sfs-mount: {error}"))
        })?;
        let link = Link::new(link);
        match link.receive(Instant::now() + START_WAIT_MAX) {
            Ok((ToOld::Hello { protocol: PROTOCOL, version }, _)) => Ok((link, version)),
            Ok((ToOld::Hello { version, .. }, _)) => Err(self.refused(format_args!(
                "version {version} cannot take over from version {}; unmount it and mount it again",
                env!("CARGO_PKG_VERSION")
            ))),
            Ok((ToOld::Failed { status, line }, _)) => Err(ExitError::with_status(status, line)),
            other => Err(self.silent(other.err())),
        }
    }

    fn silent(&self, error: Option<io::Error>) -> ExitError {
        let error = error.unwrap_or_else(|| io::ErrorKind::InvalidData.into());
        let what = match error.kind() {
            io::ErrorKind::TimedOut => "does not answer in time",
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => "has ended",
            io::ErrorKind::BrokenPipe => "has ended",
            _ => "does not speak the protocol of a handover",
        };
        self.refused(format_args!("the new program {what}"))
    }

    /// Ends the program that was started, if it has not ended. Before it may write nothing depends on that.
    fn stop(&self) {
        if let Err(error) = self.monitor.stop_program() {
            tracing::warn!("{}: the monitor does not end the new program: {error}", self.name);
        }
    }

    fn hand_over_by(
        &self,
        pauser: &Pauser,
        (link, version): (Link, String),
        control: HandedDescriptors,
        pause_max: Duration,
    ) -> Result<HandedOver, Failure> {
        let writes = !self.volume.now().is_read_only();
        if writes {
            // Most is written while requests are still served.
            let written = self.volume.now().write_for_handover();
            written.map_err(|error| self.refused(error)).inspect_err(|_| self.stop())?;
        }
        let begun = Instant::now();
        let (middle, end) = (begun + pause_max / 2, begun + pause_max);
        let Some(pause) = pauser.pause(pause_max / 2) else {
            self.stop();
            return Err(self.refused("a request takes too long; try again later").into());
        };
        let (step, log) = (self.waker.rest_by(middle), self.log_work.hold_by(middle));
        let is_quiet = step.is_some() && log.is_some();
        let prepared = if is_quiet { self.freeze() } else { Err(self.refused(TOO_BUSY)) };
        let state = prepared.and_then(|()| self.state(pauser, control));
        let ready = state.and_then(|state| self.offer(&link, &state, end).map(|()| state));
        let state = match ready.and_then(|state| self.check_end().map(|()| state)) {
            Ok(state) => state,
            Err(refusal) => {
                if is_quiet
                    && writes
                    && let Err(error) = self.volume.now().thaw()
                {
                    tracing::error!("{}: no checkpoint after the handover: {error}", self.name);
                }
                drop((log, step));
                if writes {
                    self.waker.note();
                }
                drop(pause);
                // Only now: the monitor may wait for an answer to an unmount. A program that may not write does not serve either.
                drop(link);
                self.stop();
                return Err(refusal.into());
            }
        };
        // From here on this process must not write, whatever happens.
        std::mem::forget((pause, log, step));
        if let Err(refusal) = self.commit(&link) {
            let version = self.hand_over_again(&state, &refusal).map_err(Failure::Lost)?;
            return Err(Failure::Replaced(ExitError::with_status(
                refusal.status,
                format_args!("{refusal}; sfs {version} serves on"),
            )));
        }
        let pause_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let from = env!("CARGO_PKG_VERSION").into();
        Ok(HandedOver::ToProgram(UpgradeReport { from, to: version, pause_ms }))
    }

    /// Writes a checkpoint that calls the volume unmounted, unless nothing may be written.
    fn freeze(&self) -> Result<(), ExitError> {
        if self.volume.now().is_read_only() {
            return Ok(());
        }
        self.volume.now().freeze_for_handover().map_err(|error| self.refused(error))?;
        if self.has_failed() { Err(self.refused(HAS_FAILED)) } else { Ok(()) }
    }

    /// Refuses a handover in favour of an unmount that waits.
    pub(super) fn check_end(&self) -> Result<(), ExitError> {
        match self.turn.is_end_wanted() {
            true => Err(self.refused("is being unmounted")),
            false => Ok(()),
        }
    }

    /// Returns the state and the descriptors to hand over. Nothing changes them any more.
    fn state(&self, pauser: &Pauser, control: HandedDescriptors) -> Result<Given, ExitError> {
        let failed = |error: io::Error| self.refused(error);
        let mut descriptors = control;
        let (device, writable) = self.device.descriptors();
        descriptors.add(DescriptorUse::Device, device.try_clone_to_owned().map_err(failed)?);
        if let Some(writable) = writable {
            let writable = writable.try_clone_to_owned().map_err(failed)?;
            descriptors.add(DescriptorUse::DeviceForWriting, writable);
        }
        for (usage, socket) in self.metrics.lock().iter() {
            descriptors.add(*usage, socket.try_clone().map_err(failed)?);
        }
        descriptors.add_channels(pauser.duplicates().map_err(failed)?);
        let uses: Vec<_> = descriptors.iter().map(|(usage, _)| *usage).collect();
        if uses.len() > DESCRIPTORS_MAX {
            return Err(self.refused("too many descriptors are open; mount with threads="));
        }
        let read_speed = self.bdi.read_speed().map(|speed| {
            let nanos = u64::try_from(speed.request.as_nanos()).unwrap_or(u64::MAX);
            (speed.bytes_per_second, nanos)
        });
        let state = HandedState {
            agreed: pauser.agreed().into(),
            reason: self.reason.clone(),
            is_write_protected: self.is_write_protected,
            is_read_only: self.volume.now().is_read_only(),
            reads_asynchronously: self.bdi.reads_asynchronously,
            read_speed,
            references: references(self.volume.now().references()),
            handles: self.handles.handed(),
            losses: self.losses.handed(),
            descriptors: uses,
        };
        Ok(Given { state: ToNew::State(Box::new(state)), descriptors })
    }

    /// Returns what the monitor has to hold of a mount that survives this process, before the first request. References and handles
    /// are in `records`.
    pub(crate) fn held(
        &self,
        control: Option<OwnedFd>,
        records: OwnedFd,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), ExitError> {
        let pauser = self.pauser.as_ref().ok_or_else(|| self.refused("has another transport"))?;
        let mut descriptors = HandedDescriptors::default();
        descriptors.add(DescriptorUse::Records, records);
        if let Some(control) = control {
            descriptors.add(DescriptorUse::Control, control);
        }
        let Given { state, descriptors } = self.state(pauser, descriptors)?;
        let state = serde_json::to_vec(&state).map_err(ExitError::system)?;
        Ok((state, descriptors.into_descriptors()))
    }

    /// Sends the state, and waits until the new program has opened the volume.
    fn offer(&self, link: &Link, given: &Given, end: Instant) -> Result<(), ExitError> {
        let descriptors: Vec<_> = given.descriptors.iter().map(|(_, fd)| fd.as_fd()).collect();
        let sent = link.send(&given.state, &descriptors, end);
        // A program that has failed says why, although it does not read any more.
        match (link.receive(end), sent) {
            (Ok((ToOld::Ready, _)), Ok(())) => Ok(()),
            (Ok((ToOld::Failed { status, line }, _)), _) => {
                Err(ExitError::with_status(status, line))
            }
            (_, Err(error)) => Err(self.silent(Some(error))),
            (answer, Ok(())) => Err(self.silent(answer.err())),
        }
    }

    /// Lets the new program write, waits until its threads have started, and lets it serve. On success it is the only one that serves.
    fn commit(&self, link: &Link) -> Result<(), ExitError> {
        let end = Instant::now() + COMMIT_WAIT_MAX;
        let failed = |error| self.silent(Some(error));
        link.send(&ToNew::Commit, &[], end).map_err(failed)?;
        match link.receive(end) {
            // Fails only if the program has ended: a few bytes go to an empty socket.
            Ok((ToOld::Started, _)) => link.send(&ToNew::Go, &[], end).map_err(failed),
            Ok((ToOld::Failed { status, line }, _)) => Err(ExitError::with_status(status, line)),
            answer => Err(self.silent(answer.err())),
        }
    }

    /// Hands over to the program of this daemon, after the new one has failed when it was allowed to write. Returns the
    /// version.
    fn hand_over_again(&self, given: &Given, refusal: &ExitError) -> Result<String, ExitError> {
        tracing::error!("{}: {refusal}; going back to the program before", self.name);
        self.monitor.stop_program().map_err(|error| {
            self.refused(format_args!("it is not known whether the new program writes: {error}"))
        })?;
        let (link, version) = self.start(Successor::Own)?;
        self.offer(&link, given, Instant::now() + COMMIT_WAIT_MAX)?;
        self.commit(&link)?;
        Ok(version)
    }
}

/// State to be sent, with its descriptors.
struct Given {
    state: ToNew,
    descriptors: HandedDescriptors,
}
