//! The side of the monitor, after the program of a mount has died: it hands over what it holds, and has nothing to pause.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::link::Link;
use super::messages::{PROTOCOL, ToNew, ToOld};
use super::state::DescriptorUse;
use crate::exit_error::ExitError;
use crate::monitor::HeldMount;

/// Longest wait for the new program: the recovery of a large volume takes a while.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Hands `held` over to the program at the other end of `link`. Returns once it serves.
pub(crate) fn hand_over(link: OwnedFd, held: HeldMount) -> Result<(), ExitError> {
    let link = Link::new(link);
    let end = Instant::now() + WAIT_MAX;
    let HeldMount { state, mut descriptors, monitor } = held;
    let Ok(ToNew::State(mut state)) = serde_json::from_slice(&state) else {
        return Err(ExitError::system("the daemon that has died has given no state"));
    };
    for (usage, socket) in
        [DescriptorUse::MonitorOfMount, DescriptorUse::MonitorOfProcesses].into_iter().zip(monitor)
    {
        state.descriptors.push(usage);
        descriptors.push(socket);
    }
    match receive(&link, end)? {
        ToOld::Hello { protocol: PROTOCOL, .. } => {}
        _ => return Err(ExitError::system("another program was started")),
    }
    let with: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    link.send(&ToNew::State(state), &with, end).map_err(ExitError::system)?;
    drop(with);
    // This process must not keep the program's ends of the sockets: it would not see its death.
    drop(descriptors);
    for answer in [ToNew::Commit, ToNew::Go] {
        receive(&link, end)?;
        link.send(&answer, &[], end).map_err(ExitError::system)?;
    }
    Ok(())
}

fn receive(link: &Link, end: Instant) -> Result<ToOld, ExitError> {
    match link.receive(end).map_err(ExitError::system)?.0 {
        ToOld::Failed { status, line } => Err(ExitError::with_status(status, line)),
        said => Ok(said),
    }
}
