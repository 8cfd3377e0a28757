//! Messages between the daemon and its monitor: one value as JSON in each packet.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send as send_packet};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sfs_system::mountinfo::DeviceNumber;

/// Largest number of bytes of a message: a path of `PATH_MAX` bytes, with up to four characters for each.
const LEN_MAX: usize = 32 << 10;

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

/// Sends `value`. The other side reads each packet, so a full socket is only a short wait.
pub(super) fn send(socket: &OwnedFd, value: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    loop {
        match send_packet(socket, &bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(io::Error::from),
        }
    }
}

/// Waits for a value; `None` when the other side has closed its end.
pub(super) fn receive<T: DeserializeOwned>(socket: &OwnedFd) -> io::Result<Option<T>> {
    let mut bytes = vec![0; LEN_MAX];
    loop {
        match recv(socket, &mut bytes, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok((_, 0)) => return Ok(None),
            Ok((_, len)) => {
                let sent = bytes.get(..len).ok_or(io::ErrorKind::InvalidData)?;
                return serde_json::from_slice(sent).map(Some).map_err(io::Error::from);
            }
        }
    }
}
