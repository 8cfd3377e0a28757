//! One request to the daemon of a mount, with its errors as a line for the user.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use sfs_system::mountinfo::MountRecord;

use super::client::{ControlClient, ControlError};
use super::messages::{ControlReply, ControlRequest};
use crate::exit_error::ExitError;

/// Longest wait for a daemon that has work to do.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Sends `request` to the daemon of `mount`, and returns its reply, if it is no failure.
pub(crate) fn ask(
    mount: &MountRecord,
    request: &ControlRequest,
) -> Result<ControlReply, ExitError> {
    ask_within(mount, request, WAIT_MAX)
}

/// Does the same, and waits for the reply at most for `wait`.
pub(crate) fn ask_within(
    mount: &MountRecord,
    request: &ControlRequest,
    wait: Duration,
) -> Result<ControlReply, ExitError> {
    let ask_once = || ControlClient::connect(mount)?.ask_until(request, Instant::now() + wait);
    let has_ended = |error: &ControlError| match error {
        ControlError::Silent(cause) => cause.kind() == ErrorKind::UnexpectedEof,
        _ => false,
    };
    let reply = match ask_once() {
        // The daemon may have handed the mount over: another one answers. An upgrade is not repeated.
        Err(error) if has_ended(&error) && !matches!(request, ControlRequest::Upgrade { .. }) => {
            ask_once()
        }
        reply => reply,
    };
    match reply {
        Ok(ControlReply::Failed { status, line }) => Err(ExitError::of_daemon(status, &line)),
        Ok(reply) => Ok(reply),
        Err(error) => Err(ExitError::mount(format_args!("{}: {error}", mount.dir.display()))),
    }
}

/// Returns the error of a reply that answers another request.
pub(crate) fn unknown_reply(mount: &MountRecord) -> ExitError {
    ExitError::mount(format_args!("{}: its daemon sent an unknown reply", mount.dir.display()))
}
