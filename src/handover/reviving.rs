//! The side of the monitor, after the program of a mount has died: it hands over what it holds, and has nothing to pause.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::link::Link;
use super::messages::{PROTOCOL, ToNew, ToOld};
use super::state::{DescriptorUse, HandedState};
use crate::exit_error::ExitError;
use crate::monitor::{HeldMount, NotHandedOver};
use crate::survival;

/// Longest wait for the new program: the recovery of a large volume takes a while.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Longest wait for what the new program writes before it serves.
const WRITING_MAX: Duration = Duration::from_secs(120);

/// Hands `held` over to the program at the other end of `link`. Returns once it serves.
pub(crate) fn hand_over(link: OwnedFd, held: HeldMount) -> Result<(), NotHandedOver> {
    let link = Link::new(link);
    let mut end = Instant::now() + held.opening_max.unwrap_or(WAIT_MAX);
    let HeldMount { state, mut descriptors, monitor, mounts, .. } = held;
    let mut state = parse(&state)?;
    check_records(&state, &descriptors)?;
    let sockets =
        [DescriptorUse::MonitorOfMount, DescriptorUse::MonitorOfProcesses].into_iter().zip(monitor);
    let mounts = mounts.map(|table| (DescriptorUse::Mounts, table));
    for (usage, descriptor) in sockets.chain(mounts) {
        state.descriptors.push(usage);
        descriptors.push(descriptor);
    }
    match receive(&link, end)? {
        ToOld::Hello { protocol: PROTOCOL, .. } => {}
        _ => return Err(ExitError::system("another program was started").into()),
    }
    let with: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    link.send(&ToNew::State(state), &with, end).map_err(ExitError::system)?;
    drop(with);
    // This process must not keep the program's ends of the sockets: it would not see its death.
    drop(descriptors);
    for answer in [ToNew::Commit, ToNew::Go] {
        receive(&link, end)?;
        // Now it has the volume, and may write what only the records have.
        end = end.max(Instant::now() + WRITING_MAX);
        link.send(&answer, &[], end).map_err(ExitError::system)?;
    }
    Ok(())
}

/// Checks whether a program could go on with a mount, of which `state` and `descriptors` are held.
pub(crate) fn check_held(state: &[u8], descriptors: &[OwnedFd]) -> Result<(), NotHandedOver> {
    let state = parse(state)?;
    check_records(&state, descriptors)
}

fn parse(state: &[u8]) -> Result<Box<HandedState>, ExitError> {
    match serde_json::from_slice(state) {
        Ok(ToNew::State(state)) => Ok(state),
        _ => Err(ExitError::system("the daemon has given no state")),
    }
}

/// Looks at the mark of the records: nothing else of them concerns this process.
fn check_records(state: &HandedState, descriptors: &[OwnedFd]) -> Result<(), NotHandedOver> {
    let mut all = state.descriptors.iter().zip(descriptors);
    let Some((_, records)) = all.find(|(usage, _)| **usage == DescriptorUse::Records) else {
        return Ok(());
    };
    let file = File::from(records.try_clone().map_err(ExitError::system)?);
    match survival::uselessness(&file).map_err(ExitError::system)? {
        None => Ok(()),
        Some(why) => Err(NotHandedOver { failure: ExitError::system(why), is_final: true }),
    }
}

fn receive(link: &Link, end: Instant) -> Result<ToOld, ExitError> {
    match link.receive(end).map_err(ExitError::system)?.0 {
        ToOld::Failed { status, line } => Err(ExitError::with_status(status, line)),
        said => Ok(said),
    }
}
