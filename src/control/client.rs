//! Asking the daemon of a mount.
//!
//! Owns: finding its socket, and one connection.
//! Promises: nothing is said to a process that is not the mount's owner's; every wait has an end.
//! Never: touches the mount itself, which may not answer.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use sfs_system::mountinfo::Mount;

use super::messages::{ControlReply, ControlRequest};
use super::{json_line, socket_path};

/// A reply has a few KiB.
const REPLY_LEN_MAX: usize = 1 << 20;

/// Longest wait for an answer that needs no work.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Why the daemon cannot be asked.
#[derive(Debug)]
pub(crate) enum ControlError {
    /// There is no socket: the daemon could make none, or runs under another runtime directory.
    Absent,
    /// There is one, and nobody listens: the daemon has died.
    Dead,
    /// It is another user's.
    Forbidden,
    /// Somebody listens who is not the mount's owner.
    Stranger,
    /// It does not answer, or ends while it does.
    Silent(io::Error),
    /// Its answer makes no sense: it is of another version.
    Foreign,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no control socket of its daemon is to be found"),
            Self::Dead => f.write_str("its daemon has died; unmount it and mount it again"),
            Self::Forbidden => f.write_str("only root and who mounted it may ask"),
            Self::Stranger => f.write_str("somebody else answers in its daemon's place"),
            Self::Silent(error) => write!(f, "its daemon does not answer: {error}"),
            Self::Foreign => f.write_str("its daemon is of another version of sfs"),
        }
    }
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Absent,
            ErrorKind::ConnectionRefused => Self::Dead,
            ErrorKind::PermissionDenied => Self::Forbidden,
            ErrorKind::InvalidData => Self::Foreign,
            _ => Self::Silent(error),
        }
    }
}

/// A connection to a daemon.
pub(crate) struct ControlClient(UnixStream);

impl ControlClient {
    /// Connects to the daemon of `mount`.
    pub(crate) fn connect(mount: &Mount) -> Result<Self, ControlError> {
        let owner = mount.owner().ok_or(ControlError::Absent)?;
        let name = socket_path::name(mount.number);
        for directory in socket_path::directories(owner) {
            match reach(&directory.join(&name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
                Ok(stream) => return Self::of_owner(stream, owner),
            }
        }
        Err(ControlError::Absent)
    }

    /// A user could have put a link to another program's socket in the place of his own, for root
    /// to talk to.
    fn of_owner(stream: UnixStream, owner: u32) -> Result<Self, ControlError> {
        let peer = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?;
        if peer.uid() == owner { Ok(Self(stream)) } else { Err(ControlError::Stranger) }
    }

    /// Asks for what is answered at once.
    pub(crate) fn ask(&self, request: &ControlRequest) -> Result<ControlReply, ControlError> {
        self.tell(request, Instant::now() + ANSWER_WAIT_MAX)
    }

    /// Asks for what may take until `end`.
    pub(crate) fn tell(
        &self,
        request: &ControlRequest,
        end: Instant,
    ) -> Result<ControlReply, ControlError> {
        json_line::send(&self.0, request, end)?;
        self.listen(end)
    }

    /// The next reply, if it comes before `end`; [`ErrorKind::TimedOut`] otherwise.
    pub(crate) fn listen(&self, end: Instant) -> Result<ControlReply, ControlError> {
        Ok(json_line::receive(&self.0, REPLY_LEN_MAX, end)?)
    }
}

/// Connects at once or not: a process that is stopped would let us wait.
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

#[cfg(test)]
mod tests {
    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn only_the_owner_is_talked_to() {
        let (here, _there) = UnixStream::pair().expect("sockets");
        let own = geteuid().as_raw();
        let other = here.try_clone().expect("a copy");
        assert!(ControlClient::of_owner(here, own).is_ok());
        assert!(matches!(ControlClient::of_owner(other, own + 1), Err(ControlError::Stranger)));
    }

    #[test]
    fn who_does_not_listen_is_not_waited_for() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("socket");
        let trouble = |path| ControlError::from(reach(path).map(drop).expect_err("nobody"));
        assert!(matches!(trouble(&path), ControlError::Absent));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        // It takes no more than so many that it never accepts.
        let waiting: Vec<_> = (0..5000).map_while(|_| reach(&path).ok()).collect();
        assert!(!waiting.is_empty());
        assert!(matches!(trouble(&path), ControlError::Silent(_)));
        drop(listener);
        // A process that a test beside this one forks holds the socket until it executes.
        let dies = |_| {
            std::thread::sleep(Duration::from_millis(10));
            matches!(trouble(&path), ControlError::Dead)
        };
        assert!((0..1000).any(dies));
    }
}
