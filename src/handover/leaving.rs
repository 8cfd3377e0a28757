//! The side of a daemon that its monitor holds: for an upgrade it ends, and the monitor starts the new program as after any death.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::giving::{Failure, Giver, HandedOver};
use super::link::Link;

impl Giver {
    /// Leaves the upgrade to the monitor, which starts the program that was tried by `link` after the end of this process.
    pub(super) fn leave_to_monitor(
        &self,
        (link, version): (Link, String),
        pause_max: Duration,
        client: &UnixStream,
    ) -> Result<HandedOver, Failure> {
        // It has shown that it starts, and must not wait for a state.
        drop(link);
        self.monitor.stop_program().map_err(|error| {
            self.refused(format_args!("the monitor does not end the new program: {error}"))
        })?;
        if !self.volume.now().is_read_only() && !self.waker.is_resting() {
            // The less is left to be executed again, the shorter is the pause.
            self.volume.now().write_for_handover().map_err(|error| self.refused(error))?;
        }
        self.check_end()?;
        let planned = self.monitor.upgrade(version, pause_max, client.as_fd());
        planned.map_err(|error| self.refused(error))?;
        Ok(HandedOver::ByMonitor)
    }
}
