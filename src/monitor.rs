//! The monitor: a second process that keeps the privileges which the sandboxed daemon gives up.
//!
//! Landlock forbids the daemon to unmount and to look at other processes, and no limit of a process can be undone. So the daemon forks
//! before it reads the volume, and [`Monitor`] asks the other process for the few acts that are left ([`acts`]). The monitor reads
//! nothing from the volume, has neither the device nor `/dev/fuse` open, and trusts no request: it unmounts only the mount that it was
//! told of before the daemon limited itself, starts only the program of the mount ([`program`]), and tells no more of other processes
//! than the acts state. It ends with the daemon.
//!
//! An unmount may take long, so the two kinds of requests have a socket and a thread each. Without a sandbox the daemon does the acts
//! itself.

mod acts;
mod messages;
mod program;
mod server;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use nix::mount::MntFlags;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sfs_system::mountinfo::{DeviceNumber, MountTable};

use crate::exit_error::ExitError;
use crate::ready_pipe::ReadyPipe;
use crate::unsafe_calls::{ForkSide, split};
use acts::PrivilegedActs;
pub(crate) use acts::SHUTDOWN_FLAG_MAX;
use messages::{MonitorReply, MonitorRequest};
pub(crate) use program::TakeOver;
pub(crate) use program::{StartSpec, Successor};

/// Place of the acts that need privileges.
#[derive(Debug)]
pub(crate) enum Monitor {
    /// This process.
    InProcess(PrivilegedActs),
    /// A process of its own.
    Process {
        /// Socket for the mount.
        mount: Mutex<OwnedFd>,
        /// Socket for questions about processes.
        questions: Mutex<OwnedFd>,
    },
}

impl Default for Monitor {
    /// Returns a monitor in this process.
    fn default() -> Self {
        Self::InProcess(PrivilegedActs::default())
    }
}

impl Monitor {
    /// Returns a monitor in this process, that starts a program by `spec`.
    pub(crate) fn in_process(spec: StartSpec) -> Self {
        Self::InProcess(PrivilegedActs::starting(spec))
    }

    /// Forks the process of the monitor, in which the call does not return. That process is no writer of `pipe`, whose reader waits
    /// for the last one.
    pub(crate) fn start(pipe: &mut ReadyPipe, spec: StartSpec) -> io::Result<Self> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let sockets = || socketpair(kind.0, kind.1, kind.2, None);
        let (mount, questions) = (sockets()?, sockets()?);
        match split()? {
            ForkSide::Parent => {
                Ok(Self::Process { mount: mount.0.into(), questions: questions.0.into() })
            }
            ForkSide::Child => {
                drop((mount.0, questions.0));
                pipe.abandon();
                server::run(mount.1, questions.1, spec)
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
                match ask(&mount.lock(), &MonitorRequest::mounted(dir, number))? {
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
                match ask(&mount.lock(), &MonitorRequest::Detach { lazy, force }) {
                    Ok(MonitorReply::Done) => Ok(()),
                    Ok(MonitorReply::Failed { status, line }) => {
                        Err(ExitError::with_status(status, line))
                    }
                    Ok(_) => Err(gone(&io::ErrorKind::InvalidData.into())),
                    Err(error) => Err(gone(&error)),
                }
            }
        }
    }

    /// Starts a program that takes the mount over. Returns the socket to it. A program that was started before is ended.
    pub(crate) fn start_program(&self, which: Successor) -> io::Result<OwnedFd> {
        match self {
            Self::InProcess(acts) => acts.start_program(which),
            Self::Process { mount, .. } => {
                let socket = mount.lock();
                let own = which == Successor::Own;
                messages::send(&socket, &MonitorRequest::StartProgram { own }, None)?;
                match messages::receive(&socket)? {
                    Some((MonitorReply::Done, Some(link))) => Ok(link),
                    Some((MonitorReply::Failed { line, .. }, _)) => Err(io::Error::other(line)),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
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
            Self::InProcess(acts) => acts.stop_program(),
            Self::Process { mount, .. } => {
                match ask(&mount.lock(), &MonitorRequest::StopProgram)? {
                    MonitorReply::Done => {}
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
        Ok(())
    }

    /// Returns the effective capabilities of the process, or thread, `pid`; `None` if it is in another user namespace, or cannot be
    /// looked at.
    pub(crate) fn capabilities(&self, pid: u32) -> Option<u64> {
        match self {
            Self::InProcess(_) => acts::capabilities(pid),
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

fn gone(error: &io::Error) -> ExitError {
    ExitError::system(format_args!("the monitor of this mount has ended: {error}; use umount(8)"))
}

/// Sends a request to the monitor, and waits for the reply.
fn ask(socket: &OwnedFd, request: &MonitorRequest) -> io::Result<MonitorReply> {
    messages::send(socket, request, None)?;
    let reply = messages::receive(socket)?.map(|(reply, _)| reply);
    reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
