//! The answer to a client that waits for an upgrade which has ended the daemon that was asked.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::json_line;
use super::messages::ControlReply;
use crate::exit_error::ExitError;
use crate::handover::giving::UpgradeReport;
use crate::monitor::UpgradeOutcome;

/// Longest wait for the client.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Tells `client` the outcome of an upgrade.
pub(crate) fn answer_upgrade(client: OwnedFd, outcome: UpgradeOutcome) {
    let UpgradeOutcome { from, to, pause, refusal, is_served } = outcome;
    let reply = match refusal {
        None => {
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            ControlReply::Upgraded(UpgradeReport { from, to, pause_ms })
        }
        Some(refusal) => {
            let now = match is_served {
                true => format!("sfs {from} serves on"),
                false => "no program serves the mount any more".into(),
            };
            ExitError::with_status(refusal.status, format_args!("{refusal}; {now}")).into()
        }
    };
    // A client that has gone away asks for nothing.
    let _ = json_line::send(&UnixStream::from(client), &reply, Instant::now() + CLIENT_WAIT_MAX);
}
