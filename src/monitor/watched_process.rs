//! The process of the first daemon, which is no child of its monitor.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// Process by its descriptor, which never names another one.
#[derive(Debug)]
pub(super) struct WatchedProcess(OwnedFd);

impl WatchedProcess {
    /// Returns this process; `None` on kernels before 5.3.
    pub(super) fn own() -> Option<Self> {
        pidfd_open(getpid(), PidfdFlags::empty()).ok().map(Self)
    }

    /// Ends the process, and waits until all its threads have ended: from then on it writes nothing. `false` if that is not certain.
    pub(super) fn end(&self) -> bool {
        // It fails for a process that has ended.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                polled => return polled.is_ok(),
            }
        }
    }
}

#[cfg(test)]
impl WatchedProcess {
    pub(super) fn of(child: &std::process::Child) -> Self {
        let pid = rustix::process::Pid::from_child(child);
        Self(pidfd_open(pid, PidfdFlags::empty()).expect("the child is there"))
    }
}
