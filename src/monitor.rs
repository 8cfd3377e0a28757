//! The monitor: a second process that keeps the privileges which the sandboxed daemon gives up.
//!
//! Landlock forbids the daemon to unmount and to look at other processes, and no limit of a process can be undone. So the daemon forks
//! before it reads the volume, and [`Monitor`] asks the other process for the few acts that are left ([`acts`]). The monitor reads
//! nothing from the volume, but for the installed program if that is the root filesystem, and opens neither the device nor `/dev/fuse`.
//! It trusts no request: it unmounts only the mount that it was told of before the daemon limited itself, starts only the program of
//! the mount ([`program`]), and tells no more of other processes than the acts state. It ends with the daemon, unless the mount
//! survives that ([`supervisor`]).
//!
//! An unmount may take long, so questions have a socket and a thread of their own, and acts that may wait for the daemon have threads
//! beside the one that sees its end ([`replies`]). Without a sandbox the daemon does the acts itself.

mod acts;
mod deaths;
mod messages;
mod private_root;
mod program;
mod program_memory;
mod replies;
mod server;
mod supervisor;
mod trial;
mod trusted_file;
mod upgrade;
mod watched_process;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::mount::MntFlags;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sfs_system::mountinfo::{DeviceNumber, MountTable};

use crate::exit_error::ExitError;
use crate::ready_pipe::ReadyPipe;
use crate::unsafe_calls::{ForkSide, split};
use acts::PrivilegedActs;
pub(crate) use acts::SHUTDOWN_FLAG_MAX;
use messages::{MonitorReply, MonitorRequest, REQUESTS_MAX};
pub(crate) use private_root::PrivateRoot;
pub(crate) use program::{HeldMount, NotHandedOver, StartSpec, Successor, TakeOver};
pub(crate) use program_memory::check_starting_from_memory;
pub(crate) use upgrade::UpgradeOutcome;
use watched_process::WatchedProcess;

/// Longest wait for the start or the end of a program. A program on a filesystem that does not answer, or an unmount that waits, takes
/// longer.
const PROGRAM_WAIT_MAX: Duration = Duration::from_secs(30);

/// Reason why the monitor is not asked.
const STILL_BUSY: &str = "earlier requests to the monitor of this mount are not answered yet";

/// Place of the acts that need privileges.
#[derive(Debug)]
pub(crate) enum Monitor {
    /// This process.
    InProcess(Box<PrivilegedActs>),
    /// A process of its own.
    Process {
        /// Socket for the mount.
        mount: Mutex<MountSocket>,
        /// Socket for questions about processes.
        questions: Mutex<OwnedFd>,
    },
}

impl Default for Monitor {
    /// Returns a monitor in this process.
    fn default() -> Self {
        Self::InProcess(Box::default())
    }
}

impl Monitor {
    /// Returns a monitor in this process, that starts a program by `spec`.
    pub(crate) fn in_process(spec: StartSpec) -> Self {
        Self::InProcess(Box::new(PrivilegedActs::starting(spec)))
    }

    /// Forks the process of the monitor, in which the call does not return. It lives in `root` if there is one, with the programs that
    /// it starts. That process is no writer of `pipe`, whose reader waits for the last one.
    pub(crate) fn start(
        pipe: &mut ReadyPipe,
        spec: StartSpec,
        root: Option<PrivateRoot>,
    ) -> io::Result<Self> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let sockets = || socketpair(kind.0, kind.1, kind.2, None);
        let (mount, questions) = (sockets()?, sockets()?);
        let daemon = WatchedProcess::own();
        match split()? {
            ForkSide::Parent => Ok(Self::Process {
                mount: MountSocket::new(mount.0).into(),
                questions: questions.0.into(),
            }),
            ForkSide::Child => {
                drop((mount.0, questions.0));
                pipe.abandon();
                server::run((mount.1, questions.1), (spec, root), daemon)
            }
        }
    }

    /// Names the mount that [`Monitor::detach`] unmounts. Only the first call has an effect. `table` was opened before the mount, as
    /// no descriptor may be left now.
    pub(crate) fn note_mount(
        &self,
        dir: &Path,
        number: DeviceNumber,
        table: &Arc<MountTable>,
    ) -> io::Result<()> {
        match self {
            Self::InProcess(acts) => acts.note_mount(dir.to_owned(), number, table.clone()),
            Self::Process { mount, .. } => {
                match mount.lock().ask(&MonitorRequest::mounted(dir, number), None)?.0 {
                    MonitorReply::Done => {}
                    MonitorReply::Failed { line, .. } => return Err(io::Error::other(line)),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
        Ok(())
    }

    /// Unmounts, unless the mount is gone or another filesystem is mounted on top of it. Does nothing before
    /// [`Monitor::note_mount`].
    pub(crate) fn detach(&self, flags: MntFlags) -> Result<(), ExitError> {
        let (lazy, force) =
            (flags.contains(MntFlags::MNT_DETACH), flags.contains(MntFlags::MNT_FORCE));
        match self {
            Self::InProcess(acts) => acts.detach(flags),
            Self::Process { mount, .. } => {
                match mount.lock().ask(&MonitorRequest::Detach { lazy, force }, None) {
                    Ok((MonitorReply::Done, _)) => Ok(()),
                    Ok((MonitorReply::Failed { status, line }, _)) => {
                        Err(ExitError::with_status(status, line))
                    }
                    Ok(_) => Err(unanswered(&io::ErrorKind::InvalidData.into())),
                    Err(error) => Err(unanswered(&error)),
                }
            }
        }
    }

    /// Starts a program that takes the mount over. Returns the socket to it. A program that was started before is ended.
    pub(crate) fn start_program(&self, which: Successor) -> io::Result<OwnedFd> {
        match self {
            Self::InProcess(acts) => acts.start_program(which, acts.starter.begin_trial()),
            Self::Process { mount, .. } => {
                let own = which == Successor::Own;
                let request = MonitorRequest::StartProgram { own };
                match mount.lock().ask(&request, Some(PROGRAM_WAIT_MAX))? {
                    (MonitorReply::Done, Some(link)) => Ok(link),
                    (MonitorReply::Failed { line, .. }, _) => Err(io::Error::other(line)),
                    _ => Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
    }

    /// Ends the program of [`Monitor::start_program`], and waits for its end.
    ///
    /// # Errors
    ///
    /// It is not known whether the program has ended.
    pub(crate) fn stop_program(&self) -> io::Result<()> {
        match self {
            Self::InProcess(acts) => {
                acts.starter.end_trial();
            }
            Self::Process { mount, .. } => {
                match mount.lock().ask(&MonitorRequest::StopProgram, Some(PROGRAM_WAIT_MAX))? {
                    (MonitorReply::Done, _) => {}
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
        Ok(())
    }

    /// Returns the connection to the monitor of a program that has died.
    pub(crate) fn adopt(mount: OwnedFd, questions: OwnedFd) -> Self {
        Self::Process { mount: MountSocket::new(mount).into(), questions: questions.into() }
    }

    /// Has the monitor start this program again when this process dies, and give it `state` and `descriptors`.
    pub(crate) fn hold(&self, state: Vec<u8>, descriptors: &[OwnedFd]) -> io::Result<()> {
        let Self::Process { mount, .. } = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut mount = mount.lock();
        let mut ask = |request, descriptor: Option<BorrowedFd<'_>>| match mount
            .ask_with(&request, descriptor, Some(PROGRAM_WAIT_MAX))?
            .0
        {
            MonitorReply::Done => Ok(()),
            MonitorReply::Failed { line, .. } => Err(io::Error::other(line)),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        };
        ask(MonitorRequest::Hold { state }, None)?;
        for descriptor in descriptors {
            ask(MonitorRequest::Keep, Some(descriptor.as_fd()))?;
        }
        ask(MonitorRequest::Watch, None)
    }

    /// Has the monitor start the program of the last [`Monitor::start_program`], which was of version `to`, when this process ends, and
    /// tell `client` the outcome. This process must end at once.
    pub(crate) fn upgrade(
        &self,
        to: String,
        pause_max: Duration,
        client: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let Self::Process { mount, .. } = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let from = env!("CARGO_PKG_VERSION").into();
        let pause_max_secs = pause_max.as_secs();
        let request = MonitorRequest::Upgrade { from, to, pause_max_secs };
        match mount.lock().ask_with(&request, Some(client), Some(PROGRAM_WAIT_MAX))?.0 {
            MonitorReply::Done => Ok(()),
            MonitorReply::Failed { line, .. } => Err(io::Error::other(line)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Keeps the monitor from starting this program again.
    pub(crate) fn release(&self) {
        if let Self::Process { mount, .. } = self {
            let _ = mount.lock().ask(&MonitorRequest::Release, Some(PROGRAM_WAIT_MAX));
        }
    }

    /// Starts the program that reaches the object store of the mount, and ends the one that was started before. Returns the socket to
    /// the new one.
    pub(crate) fn start_store(&self) -> io::Result<OwnedFd> {
        match self {
            Self::InProcess(acts) => acts.starter.start_store(),
            // An unmount may wait for the store, so this is no request about the mount.
            Self::Process { questions, .. } => {
                let socket = questions.lock();
                messages::send(&socket, &MonitorRequest::StartStore, None)?;
                match messages::receive(&socket)?.ok_or(io::ErrorKind::UnexpectedEof)? {
                    (MonitorReply::Done, Some(link)) => Ok(link),
                    (MonitorReply::Failed { line, .. }, _) => Err(io::Error::other(line)),
                    _ => Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
    }

    /// Returns the effective capabilities of the process, or thread, `pid`; `None` if it is in another user namespace, or cannot be
    /// looked at.
    pub(crate) fn capabilities(&self, pid: u32) -> Option<u64> {
        match self {
            Self::InProcess(acts) => acts.capabilities(pid),
            Self::Process { questions, .. } => {
                match ask(&questions.lock(), &MonitorRequest::Capabilities { pid }) {
                    Ok(MonitorReply::Capabilities(capabilities)) => capabilities,
                    _ => None,
                }
            }
        }
    }

    /// Returns the flag of a shutdown, at most [`SHUTDOWN_FLAG_MAX`], from `address` of process `pid`.
    ///
    /// # Errors
    ///
    /// The number of an error: `EINVAL` for a larger number.
    pub(crate) fn shutdown_flag(&self, pid: u32, address: u64) -> Result<u32, i32> {
        match self {
            Self::InProcess(_) => acts::shutdown_flag(pid, address),
            Self::Process { questions, .. } => {
                match ask(&questions.lock(), &MonitorRequest::ShutdownFlag { pid, address }) {
                    Ok(MonitorReply::ShutdownFlag(flag)) => flag,
                    _ => Err(libc::EPERM),
                }
            }
        }
    }
}

/// Returns the refusal of an act for which the monitor gave no reply.
fn unanswered(error: &io::Error) -> ExitError {
    if error.kind() == io::ErrorKind::ResourceBusy {
        return ExitError::system(format_args!("{error}; use umount(8)"));
    }
    ExitError::system(format_args!(
        "the monitor of this mount does not answer: {error}; use umount(8)"
    ))
}

/// Socket for requests about the mount.
#[derive(Debug)]
pub(crate) struct MountSocket {
    socket: OwnedFd,
    /// Number of replies that were not waited for.
    owed: usize,
}

impl MountSocket {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, owed: 0 }
    }

    /// Sends a request to the monitor, and waits for the reply: for at most `wait_max`, if that is given.
    fn ask(
        &mut self,
        request: &MonitorRequest,
        wait_max: Option<Duration>,
    ) -> io::Result<(MonitorReply, Option<OwnedFd>)> {
        self.ask_with(request, None, wait_max)
    }

    /// Asks as [`MountSocket::ask`] does, and gives the monitor a descriptor.
    fn ask_with(
        &mut self,
        request: &MonitorRequest,
        descriptor: Option<BorrowedFd<'_>>,
        wait_max: Option<Duration>,
    ) -> io::Result<(MonitorReply, Option<OwnedFd>)> {
        while self.owed > 0 && wait_until_readable(&self.socket, Some(Instant::now())).is_ok() {
            self.receive()?;
        }
        if self.owed >= REQUESTS_MAX {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, STILL_BUSY));
        }
        let end = wait_max.map(|wait_max| Instant::now() + wait_max);
        messages::send(&self.socket, request, descriptor)?;
        self.owed += 1;
        loop {
            wait_until_readable(&self.socket, end)?;
            let reply = self.receive()?;
            if self.owed == 0 {
                return Ok(reply);
            }
        }
    }

    /// Receives the next reply.
    fn receive(&mut self) -> io::Result<(MonitorReply, Option<OwnedFd>)> {
        let reply = messages::receive(&self.socket)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.owed -= 1;
        Ok(reply)
    }
}

/// Waits for a packet, or the end of the other side; `TimedOut` at `end`.
fn wait_until_readable(socket: &OwnedFd, end: Option<Instant>) -> io::Result<()> {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => {}
            polled => return polled.map(drop).map_err(io::Error::from),
        }
    }
}

/// Sends a request to the monitor, and waits for the reply.
fn ask(socket: &OwnedFd, request: &MonitorRequest) -> io::Result<MonitorReply> {
    messages::send(socket, request, None)?;
    let reply = messages::receive(socket)?.map(|(reply, _)| reply);
    reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply that comes late is not taken for that to the next request.
    #[test]
    fn a_late_reply_belongs_to_its_request() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("sockets");
        let mut socket = MountSocket::new(ours);
        let soon = Some(Duration::from_millis(10));
        let late = socket.ask(&MonitorRequest::StopProgram, soon).map(drop);
        assert_eq!(late.expect_err("nobody answers").kind(), io::ErrorKind::TimedOut);
        messages::send(&theirs, &MonitorReply::Done, None).expect("sent");
        let failed = MonitorReply::Failed { status: 1, line: "the second".into() };
        messages::send(&theirs, &failed, None).expect("sent");
        let (reply, _) = socket.ask(&MonitorRequest::StopProgram, None).expect("a reply");
        assert!(matches!(reply, MonitorReply::Failed { .. }), "{reply:?}");
        // The monitor takes no more than it holds.
        let refusals = (0..=REQUESTS_MAX).map(|_| {
            let asked = socket.ask(&MonitorRequest::StopProgram, Some(Duration::ZERO)).map(drop);
            asked.expect_err("nobody answers").kind()
        });
        let (last, before) = (io::ErrorKind::ResourceBusy, io::ErrorKind::TimedOut);
        let expected: Vec<_> = [before; REQUESTS_MAX].into_iter().chain([last]).collect();
        assert_eq!(refusals.collect::<Vec<_>>(), expected);
        // Replies that come late make room.
        for _ in 0..REQUESTS_MAX {
            messages::send(&theirs, &MonitorReply::Done, None).expect("sent");
        }
        let after = socket.ask(&MonitorRequest::StopProgram, soon).map(drop);
        assert_eq!(after.expect_err("nobody answers").kind(), before);
    }
}
