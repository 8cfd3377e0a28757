//! The process of the monitor.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::mount::MntFlags;
use nix::sys::signal::{SigSet, Signal};
use rustix::thread::{CapabilitySet, set_name};
use sfs_system::mountinfo::DeviceNumber;

use super::acts::{PrivilegedActs, shutdown_flag};
use super::messages::{self, MonitorReply, MonitorRequest};
use super::private_root::PrivateRoot;
use super::program::{StartSpec, Successor};
use super::replies::Replies;
use super::supervisor::Supervisor;
use super::watched_process::WatchedProcess;
use crate::exit_error::ExitError;
use crate::ready_pipe;
use crate::sandbox::capabilities;

/// Refusal of a program that would not find the mount from a root directory of its own.
const APART: &str = "the daemon of a root filesystem that does not survive is that of the initramfs; make the initramfs anew (update-initramfs -u) and restart";

/// Serves the daemon at the other ends of the sockets until it has ended. Does not return.
pub(super) fn run(
    (mount, questions): (OwnedFd, OwnedFd),
    (spec, root): (StartSpec, Option<PrivateRoot>),
    daemon: Option<WatchedProcess>,
) -> ! {
    // The name tells the process apart from the daemon.
    let _ = set_name(c"sfs-monitor");
    // The daemon unmounts on these signals, and then needs the monitor.
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    let _ = signals.into_iter().collect::<SigSet>().thread_block();
    ready_pipe::leave_terminal();
    // Unmounting, a mount point in a directory of a user, and the processes of all users.
    let mut needed =
        CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE;
    if root.is_some() {
        needed |= CapabilitySet::SYS_CHROOT;
    }
    // A program that it starts, which is root's, gets back what is left in the bounding set: it mounts, as this one did.
    let _ = capabilities::keep_only_here(needed);
    let acts = match PrivilegedActs::starting_in(spec, root) {
        Ok(acts) => Arc::new(acts),
        Err(error) => {
            refuse(&mount, ExitError::system(error));
            process::exit(0);
        }
    };
    let mut supervisor = Supervisor::new(daemon);
    let mut sockets = Some((mount, questions));
    while let Some((mount, questions)) = sockets {
        serve(mount, questions, &acts, &mut supervisor);
        sockets = supervisor.next_program(&acts);
    }
    process::exit(0);
}

/// Serves one program until it has closed its end of the socket, or cannot be served any more.
fn serve(
    mount: OwnedFd,
    questions: OwnedFd,
    acts: &Arc<PrivilegedActs>,
    supervisor: &mut Supervisor,
) {
    let of_answers = acts.clone();
    let answering = thread::Builder::new().spawn(move || answer(&questions, &of_answers));
    match answering.and_then(|_| Replies::start(&mount)) {
        Ok(replies) => serve_mount(&mount, acts, supervisor, replies),
        // The program is started again.
        Err(_) if supervisor.is_watching() => {}
        Err(error) => refuse(&mount, ExitError::system(error)),
    }
}

/// Refuses the first request about the mount: the mount is not made then.
fn refuse(socket: &OwnedFd, failure: ExitError) {
    if let Ok(Some(_)) = messages::receive::<MonitorRequest>(socket) {
        let _ = messages::send(socket, &MonitorReply::failed(&failure), None);
    }
}

/// Names the mount that this process unmounts, if it sees the mount.
fn note_mount(acts: &PrivilegedActs, dir: PathBuf, number: DeviceNumber) -> Result<(), ExitError> {
    let table = acts.mounts().map_err(ExitError::system)?;
    let found = table.at(&dir).map_err(ExitError::system)?;
    if found.is_none_or(|mount| mount.number != number) {
        let dir = dir.display();
        return Err(ExitError::system(format_args!("{dir}: the monitor does not see the mount")));
    }
    acts.note_mount(dir, number, table);
    Ok(())
}

/// Serves requests about the mount, until the program has closed its end of the socket, or makes no sense any more.
fn serve_mount(
    socket: &OwnedFd,
    acts: &Arc<PrivilegedActs>,
    supervisor: &mut Supervisor,
    mut replies: Replies,
) {
    while let Ok(Some((request, descriptor))) = messages::receive(socket)
        && serve_request(request, descriptor, (acts, supervisor, &mut replies))
    {}
    // A mount that survives may have to wait for the next program.
    if !supervisor.is_watching() {
        supervisor.release();
        replies.finish();
    }
}

/// Serves one request about the mount. `false` if it makes no sense, or the program does not wait for replies.
fn serve_request(
    request: MonitorRequest,
    descriptor: Option<OwnedFd>,
    (acts, supervisor, replies): (&Arc<PrivilegedActs>, &mut Supervisor, &mut Replies),
) -> bool {
    let done = match request {
        MonitorRequest::Mounted { dir, major, minor } => {
            note_mount(acts, messages::path(dir), DeviceNumber { major, minor })
        }
        MonitorRequest::Detach { lazy, force } => {
            let of_thread = acts.clone();
            let detach = move || of_thread.detach(flags(lazy, force)).map(|()| None);
            return replies.give_later(acts.under_way(), detach);
        }
        // A program that takes over would not find the mount.
        MonitorRequest::StartProgram { .. } if acts.is_apart() && !supervisor.is_watching() => {
            Err(ExitError::system(APART))
        }
        MonitorRequest::StartProgram { own } => {
            let which = if own { Successor::Own } else { Successor::Installed };
            let (of_thread, trial) = (acts.clone(), acts.starter.begin_trial());
            let start =
                move || of_thread.start_program(which, trial).map(Some).map_err(ExitError::system);
            return replies.give_trial(acts.under_way(), start);
        }
        MonitorRequest::StopProgram => {
            acts.starter.end_trial();
            replies.end_trial();
            Ok(())
        }
        MonitorRequest::Hold { state } => {
            supervisor.hold(state);
            Ok(())
        }
        MonitorRequest::Keep => supervisor.keep(descriptor),
        MonitorRequest::Watch => supervisor.watch(),
        MonitorRequest::Release => {
            supervisor.release();
            Ok(())
        }
        MonitorRequest::Upgrade { from, to, pause_max_secs } => {
            let pause_max = Duration::from_secs(pause_max_secs);
            supervisor.plan_upgrade(acts, ((from, to), pause_max), descriptor)
        }
        MonitorRequest::Capabilities { .. }
        | MonitorRequest::ShutdownFlag { .. }
        | MonitorRequest::StartStore => return false,
    };
    replies.give(done)
}

fn flags(lazy: bool, force: bool) -> MntFlags {
    let mut flags = MntFlags::empty();
    flags.set(MntFlags::MNT_DETACH, lazy);
    flags.set(MntFlags::MNT_FORCE, force);
    flags
}

/// Answers questions about processes, and starts the program that reaches the object store.
fn answer(socket: &OwnedFd, acts: &PrivilegedActs) {
    while let Ok(Some((request, _))) = messages::receive(socket) {
        let reply = match request {
            MonitorRequest::Capabilities { pid } => {
                MonitorReply::Capabilities(acts.capabilities(pid))
            }
            MonitorRequest::ShutdownFlag { pid, address } => {
                MonitorReply::ShutdownFlag(shutdown_flag(pid, address))
            }
            MonitorRequest::StartStore => match acts.starter.start_store() {
                Ok(link) => {
                    if messages::send(socket, &MonitorReply::Done, Some(link.as_fd())).is_err() {
                        return;
                    }
                    continue;
                }
                Err(error) => MonitorReply::failed(&ExitError::system(error)),
            },
            _ => return,
        };
        if messages::send(socket, &reply, None).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    /// Regression: a daemon that had sent what makes no sense was taken for dead, and another one was started beside it.
    #[test]
    fn a_daemon_that_makes_no_sense_is_ended_first() {
        let mut daemon = Command::new("sleep").arg("60").spawn().expect("a program");
        let mut supervisor = Supervisor::new(Some(WatchedProcess::of(&daemon)));
        supervisor.watch().expect("it can be watched");
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("sockets");
        send(&theirs, b"no JSON", SendFlags::empty()).expect("sent");
        let acts = Arc::new(PrivilegedActs::default());
        let replies = Replies::start(&ours).expect("a thread");
        serve_mount(&ours, &acts, &mut supervisor, replies);
        assert!(daemon.try_wait().expect("a child").is_none(), "it lives");
        assert!(supervisor.end_first());
        assert!(daemon.try_wait().expect("a child").is_some(), "it does not write any more");
    }

    #[test]
    fn a_mount_is_refused_that_cannot_be_served() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("sockets");
        messages::send(&theirs, &MonitorRequest::StopProgram, None).expect("sent");
        refuse(&ours, ExitError::system("no thread"));
        let reply = messages::receive(&theirs).expect("a packet").expect("a reply").0;
        assert!(matches!(reply, MonitorReply::Failed { line, .. } if line.contains("no thread")));
    }

    #[test]
    fn a_daemon_that_cannot_be_watched_is_told() {
        let mut supervisor = Supervisor::new(None);
        supervisor.watch().expect_err("its end could not be seen");
        supervisor.keep(None).expect_err("the descriptor is missing");
    }
}
