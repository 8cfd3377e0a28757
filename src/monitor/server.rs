//! The process of the monitor.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;

use nix::mount::MntFlags;
use nix::sys::signal::{SigSet, Signal};
use rustix::thread::{CapabilitySet, set_name};
use sfs_system::mountinfo::{DeviceNumber, MountTable};

use super::acts::{PrivilegedActs, shutdown_flag};
use super::messages::{self, MonitorReply, MonitorRequest};
use super::program::{StartSpec, Successor};
use super::supervisor::Supervisor;
use crate::exit_error::ExitError;
use crate::ready_pipe;
use crate::sandbox::capabilities;

/// Serves the daemon at the other ends of the sockets until it has ended. Does not return.
pub(super) fn run(mount: OwnedFd, questions: OwnedFd, spec: StartSpec) -> ! {
    // The name tells the process apart from the daemon.
    let _ = set_name(c"sfs-monitor");
    // The daemon unmounts on these signals, and then needs the monitor.
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    let _ = signals.into_iter().collect::<SigSet>().thread_block();
    ready_pipe::leave_terminal();
    // Unmounting, a mount point in a directory of a user, and the processes of all users.
    let needed =
        CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE;
    // A program that it starts, which is root's, gets back what is left in the bounding set: it mounts, as this one did.
    let _ = capabilities::keep_only_here(needed);
    let acts = Arc::new(PrivilegedActs::starting(spec));
    let mut supervisor = Supervisor::default();
    let mut sockets = Some((mount, questions));
    while let Some((mount, questions)) = sockets {
        sockets = match serve(mount, questions, &acts, &mut supervisor) {
            true => supervisor.next_program(&acts),
            false => None,
        };
    }
    process::exit(0);
}

/// Serves one program to its end. Returns `false` if that is not possible.
fn serve(
    mount: OwnedFd,
    questions: OwnedFd,
    acts: &Arc<PrivilegedActs>,
    supervisor: &mut Supervisor,
) -> bool {
    let of_answers = acts.clone();
    let answering = thread::Builder::new().spawn(move || answer(&questions, &of_answers));
    if answering.is_ok() {
        serve_mount(&mount, acts, supervisor);
    }
    answering.is_ok()
}

/// Names the mount that this process unmounts, if it sees the mount.
fn note_mount(acts: &PrivilegedActs, dir: PathBuf, number: DeviceNumber) -> Result<(), ExitError> {
    let table = MountTable::open().map_err(ExitError::system)?;
    let found = table.at(&dir).map_err(ExitError::system)?;
    if found.is_none_or(|mount| mount.number != number) {
        let dir = dir.display();
        return Err(ExitError::system(format_args!("{dir}: the monitor does not see the mount")));
    }
    acts.note_mount(dir, number, Arc::new(table));
    Ok(())
}

/// Serves requests about the mount.
fn serve_mount(socket: &OwnedFd, acts: &Arc<PrivilegedActs>, supervisor: &mut Supervisor) {
    while let Ok(Some((request, descriptor))) = messages::receive(socket) {
        let mut link = None;
        let done = match request {
            MonitorRequest::Mounted { dir, major, minor } => {
                note_mount(acts, messages::path(dir), DeviceNumber { major, minor })
            }
            MonitorRequest::Detach { lazy, force } => {
                if detach_aside(socket, acts, flags(lazy, force)).is_err() {
                    return;
                }
                continue;
            }
            MonitorRequest::StartProgram { own } => {
                let which = if own { Successor::Own } else { Successor::Installed };
                let started = acts.start_program(which).map(|socket| link = Some(socket));
                started.map_err(ExitError::system)
            }
            MonitorRequest::StopProgram => {
                acts.stop_program();
                Ok(())
            }
            MonitorRequest::Hold { state } => {
                supervisor.hold(state);
                Ok(())
            }
            MonitorRequest::Keep => {
                supervisor.keep(descriptor);
                Ok(())
            }
            MonitorRequest::Watch => {
                supervisor.watch();
                Ok(())
            }
            MonitorRequest::Release => {
                supervisor.release();
                Ok(())
            }
            MonitorRequest::Capabilities { .. } | MonitorRequest::ShutdownFlag { .. } => return,
        };
        let reply = reply_to(done);
        if messages::send(socket, &reply, link.as_ref().map(AsFd::as_fd)).is_err() {
            return;
        }
    }
}

fn reply_to(done: Result<(), ExitError>) -> MonitorReply {
    match done {
        Ok(()) => MonitorReply::Done,
        Err(failure) => MonitorReply::Failed { status: failure.status, line: failure.to_string() },
    }
}

/// Unmounts in a thread of its own, which replies: an unmount waits for the daemon, whose death this thread must see.
fn detach_aside(
    socket: &OwnedFd,
    acts: &Arc<PrivilegedActs>,
    flags: MntFlags,
) -> std::io::Result<()> {
    let (socket, acts) = (socket.try_clone()?, acts.clone());
    let detach = move || {
        let _ = messages::send(&socket, &reply_to(acts.detach(flags)), None);
    };
    thread::Builder::new().spawn(detach).map(drop)
}

fn flags(lazy: bool, force: bool) -> MntFlags {
    let mut flags = MntFlags::empty();
    flags.set(MntFlags::MNT_DETACH, lazy);
    flags.set(MntFlags::MNT_FORCE, force);
    flags
}

/// Answers questions about processes.
fn answer(socket: &OwnedFd, acts: &PrivilegedActs) {
    while let Ok(Some((request, _))) = messages::receive(socket) {
        let reply = match request {
            MonitorRequest::Capabilities { pid } => {
                MonitorReply::Capabilities(acts.capabilities(pid))
            }
            MonitorRequest::ShutdownFlag { pid, address } => {
                MonitorReply::ShutdownFlag(shutdown_flag(pid, address))
            }
            _ => return,
        };
        if messages::send(socket, &reply, None).is_err() {
            return;
        }
    }
}
