//! Messages between the daemon and its monitor: one value as JSON in each packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sfs_system::mountinfo::DeviceNumber;

use crate::exit_error::ExitError;

/// Largest number of bytes of a message: a path of `PATH_MAX` bytes, with up to four characters for each.
const LEN_MAX: usize = 32 << 10;

/// Largest number of requests about the mount without a reply.
pub(super) const REQUESTS_MAX: usize = 4;

/// Request of the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum MonitorRequest {
    /// Names the mount that later requests are about.
    Mounted {
        /// Bytes of the path of the mount point.
        dir: Vec<u8>,
        major: u32,
        minor: u32,
    },
    /// Asks for an unmount.
    Detach { lazy: bool, force: bool },
    /// Asks to start a program that takes the mount over.
    StartProgram {
        /// `true` for the program of the mount, and not the one that is installed now.
        own: bool,
    },
    /// Asks to end that program.
    StopProgram,
    /// Gives the state of a mount that survives its daemon: bytes of its JSON. Its descriptors follow, one with each `Keep`.
    Hold { state: Vec<u8> },
    /// Gives a descriptor.
    Keep,
    /// Asks to start the program again, from now on, when it dies.
    Watch,
    /// The program ends now, and is not to be started again.
    Release,
    /// The program ends now, and the one of the last `StartProgram` is to be started in its place. Comes with the socket of the client
    /// that waits.
    Upgrade { from: String, to: String, pause_max_secs: u64 },
    /// Asks to start the program that reaches the object store of the mount, and to end the one that was started before.
    StartStore,
    /// Asks for the capabilities of a process.
    Capabilities { pid: u32 },
    /// Asks for the argument of a shutdown.
    ShutdownFlag { pid: u32, address: u64 },
}

impl MonitorRequest {
    pub(super) fn mounted(dir: &Path, number: DeviceNumber) -> Self {
        let dir = dir.as_os_str().as_bytes().to_vec();
        Self::Mounted { dir, major: number.major, minor: number.minor }
    }
}

/// Returns the path with these bytes.
pub(super) fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
}

/// Reply of the monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum MonitorReply {
    Done,
    /// Failed, with the exit status and the line of an [`ExitError`](crate::ExitError).
    Failed {
        status: u8,
        line: String,
    },
    Capabilities(Option<u64>),
    ShutdownFlag(Result<u32, i32>),
}

impl MonitorReply {
    pub(super) fn failed(failure: &ExitError) -> Self {
        Self::Failed { status: failure.status, line: failure.to_string() }
    }
}

/// Sends `value`, with `descriptor`. The other side reads each packet, so a full socket is only a short wait.
pub(super) fn send(
    socket: &OwnedFd,
    value: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        match sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(io::Error::from),
        }
    }
}

/// Waits for a value, with its descriptor if it has one; `None` when the other side has closed its end.
pub(super) fn receive<T: DeserializeOwned>(
    socket: &OwnedFd,
) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut bytes = vec![0; LEN_MAX];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
        let len = match received {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(received) if received.bytes == 0 => return Ok(None),
            Ok(received) => received.bytes,
        };
        let mut descriptor = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                descriptor = descriptors.next();
            }
        }
        let sent = bytes.get(..len).ok_or(io::ErrorKind::InvalidData)?;
        let value = serde_json::from_slice(sent)?;
        return Ok(Some((value, descriptor)));
    }
}
