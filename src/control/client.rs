//! The client's end of the control socket.
//!
//! [`ControlClient::connect`] finds the socket of a mount and checks that the mount's owner serves
//! it. Every wait has a deadline. The client does not access the mount itself, which may not
//! answer.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use sfs_system::mountinfo::{self, MountRecord};

use super::messages::{ControlReply, ControlRequest};
use super::{json_line, socket_path};

/// Maximum length of a reply, in bytes; an ordinary reply has a few KiB, and one with many long paths the most.
const REPLY_LEN_MAX: usize = 8 << 20;

/// Longest wait for a reply that needs no work.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Error of asking the daemon of a mount.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// There is no socket: the daemon could not make one, or uses another runtime directory.
    #[error("no control socket of its daemon was found; see the log of the mount")]
    Absent,
    /// The filesystem is not mounted any more, and another one has its number.
    #[error("it was unmounted")]
    Gone,
    /// The socket exists and no process listens: the daemon has died.
    #[error("its daemon has died; unmount it and mount it again")]
    Dead,
    /// The socket belongs to another user.
    #[error("permission denied: only root and the user who mounted it may query it")]
    Forbidden,
    /// The process that listens does not belong to the mount's owner.
    #[error("another user's process answers in place of its daemon")]
    WrongOwner,
    /// The daemon does not answer, or ends before the answer is complete.
    #[error("its daemon does not answer: {0}")]
    Silent(io::Error),
    /// The daemon's reply cannot be decoded: the daemon is of another version.
    #[error("its daemon is of another version of sfs")]
    OtherVersion,
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Absent,
            ErrorKind::ConnectionRefused => Self::Dead,
            ErrorKind::PermissionDenied => Self::Forbidden,
            ErrorKind::InvalidData => Self::OtherVersion,
            _ => Self::Silent(error),
        }
    }
}

/// Connection to a daemon.
pub(crate) struct ControlClient(UnixStream);

impl ControlClient {
    /// Connects to the daemon of `mount`.
    pub(crate) fn connect(mount: &MountRecord) -> Result<Self, ControlError> {
        let owner = mount.owner().ok_or(ControlError::Absent)?;
        let name = socket_path::name(mount.number);
        for directory in socket_path::directories(owner) {
            match reach(&directory.join(&name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
                Ok(stream) => {
                    check_present(mount)?;
                    return Self::of_owner(stream, owner);
                }
            }
        }
        Err(ControlError::Absent)
    }

    /// Returns whether the daemon of `mount` has certainly died.
    pub(crate) fn is_dead(mount: &MountRecord) -> bool {
        matches!(Self::connect(mount), Err(ControlError::Dead))
    }

    /// Checks the user of the process that listens. Otherwise a user could replace the socket by a
    /// link to another program's socket, and root would connect to that program.
    fn of_owner(stream: UnixStream, owner: u32) -> Result<Self, ControlError> {
        let peer = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?;
        if peer.uid() == owner { Ok(Self(stream)) } else { Err(ControlError::WrongOwner) }
    }

    /// Sends a request that is answered at once, and receives the reply.
    pub(crate) fn ask(&self, request: &ControlRequest) -> Result<ControlReply, ControlError> {
        self.ask_until(request, Instant::now() + ANSWER_WAIT_MAX)
    }

    /// Sends a request whose reply may take until `end`, and receives the reply.
    pub(crate) fn ask_until(
        &self,
        request: &ControlRequest,
        end: Instant,
    ) -> Result<ControlReply, ControlError> {
        json_line::send(&self.0, request, end)?;
        self.listen(end)
    }

    /// Returns the connection, for a reply that is followed by other bytes. The daemon sends these once it has got a
    /// byte from here.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.0
    }

    /// Receives the next reply, if it comes before `end`; [`ErrorKind::TimedOut`] otherwise.
    pub(crate) fn listen(&self, end: Instant) -> Result<ControlReply, ControlError> {
        Ok(json_line::receive(&self.0, REPLY_LEN_MAX, end)?)
    }
}

/// Connects without waiting, as the listening process may be stopped.
fn reach(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let end: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(end.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) => {}
        Err(Errno::EAGAIN) => return Err(ErrorKind::TimedOut.into()),
        Err(errno) => return Err(errno.into()),
    }
    let stream = UnixStream::from(end);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Checks, once the socket is reached, that its number is still that of `mount`: the kernel gives the number of an unmounted filesystem to
/// the next one, whose daemon would get the request. A mount that this process does not see is not known to be another one.
fn check_present(mount: &MountRecord) -> Result<(), ControlError> {
    match mountinfo::of_number(mount.number)? {
        Some(now) if !now.is_of_same_filesystem(mount) => Err(ControlError::Gone),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn only_the_owner_of_a_mount_is_trusted() {
        let (here, _there) = UnixStream::pair().expect("sockets");
        let own = geteuid().as_raw();
        let other = here.try_clone().expect("a copy");
        assert!(ControlClient::of_owner(here, own).is_ok());
        assert!(matches!(ControlClient::of_owner(other, own + 1), Err(ControlError::WrongOwner)));
    }

    #[test]
    fn connecting_does_not_wait_for_a_listener() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("socket");
        let trouble = |path| ControlError::from(reach(path).map(drop).expect_err("no listener"));
        assert!(matches!(trouble(&path), ControlError::Absent));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        // The kernel queues only a limited number of connections that the listener has not
        // accepted.
        let waiting: Vec<_> = (0..5000).map_while(|_| reach(&path).ok()).collect();
        assert!(!waiting.is_empty());
        assert!(matches!(trouble(&path), ControlError::Silent(_)));
        drop(listener);
        // A process that a concurrent test forks holds the socket open until it executes a program.
        let dies = |_| {
            std::thread::sleep(Duration::from_millis(10));
            matches!(trouble(&path), ControlError::Dead)
        };
        assert!((0..1000).any(dies));
    }
}
