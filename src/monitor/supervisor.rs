//! Keeping a mount alive whose program dies.
//!
//! The program gives the monitor duplicates of its descriptors before the first request. The monitor reads from none of them. A
//! program that cannot be served any more has died, or is killed. Once its last thread has ended, all its system calls have, too. The
//! monitor then starts the same program again, and hands it the mount over as the program before would have done.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::mount::MntFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::acts::PrivilegedActs;
use super::deaths::{Deaths, SERVED_MIN};
use super::program::{HeldMount, NotHandedOver};
use super::upgrade::PlannedUpgrade;
use super::watched_process::WatchedProcess;
use crate::exit_error::ExitError;
use crate::logging;

/// State of a mount that the monitor holds.
#[derive(Default)]
pub(super) struct Supervisor {
    /// The first program. Those that are started here are children, which the starter ends and waits for.
    first: Option<WatchedProcess>,
    state: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    is_watching: bool,
    /// Thread that hands the mount over to the program that was started last.
    giving: Option<JoinHandle<Giving>>,
    deaths: Deaths,
    /// Upgrade whose outcome the client does not know yet, while no thread of `giving` has it.
    upgrade: Option<PlannedUpgrade>,
}

/// Result of handing the mount over.
struct Giving {
    /// Time since which the program serves.
    served_since: Result<Instant, NotHandedOver>,
    /// Upgrade that this was for, if its outcome is not known yet.
    upgrade: Option<PlannedUpgrade>,
}

impl Supervisor {
    /// Returns a supervisor of the program `first`.
    pub(super) fn new(first: Option<WatchedProcess>) -> Self {
        Self { first, ..Self::default() }
    }

    /// Takes the state of the mount.
    pub(super) fn hold(&mut self, state: Vec<u8>) {
        *self = Self { state, ..Self::new(self.first.take()) };
    }

    /// Takes the next descriptor of the state.
    ///
    /// # Errors
    ///
    /// The descriptor has not arrived: this process has too many.
    pub(super) fn keep(&mut self, descriptor: Option<OwnedFd>) -> Result<(), ExitError> {
        let missing = || ExitError::system("the monitor has too many open files");
        self.descriptors.push(descriptor.ok_or_else(missing)?);
        Ok(())
    }

    /// Starts the program again from now on.
    ///
    /// # Errors
    ///
    /// The end of the program could not be seen.
    pub(super) fn watch(&mut self) -> Result<(), ExitError> {
        if self.first.is_none() {
            return Err(ExitError::system("the monitor cannot see the end of the daemon"));
        }
        self.is_watching = true;
        Ok(())
    }

    pub(super) fn is_watching(&self) -> bool {
        self.is_watching
    }

    /// Starts the program that was tried in place of the present one, which ends now. `client` waits for the outcome.
    ///
    /// # Errors
    ///
    /// No mount is held here, another program could not go on with it, no program was tried, or the socket has not arrived.
    pub(super) fn plan_upgrade(
        &mut self,
        acts: &PrivilegedActs,
        (versions, pause_max): ((String, String), Duration),
        client: Option<OwnedFd>,
    ) -> Result<(), ExitError> {
        let client = client.filter(|_| self.is_watching);
        let client =
            client.ok_or_else(|| ExitError::system("the monitor cannot upgrade the daemon"))?;
        acts.starter.check_held(&self.state, &self.descriptors)?;
        if !acts.starter.use_tried() {
            return Err(ExitError::system("no program was tried"));
        }
        self.upgrade = Some(PlannedUpgrade::new(versions, pause_max, client));
        Ok(())
    }

    /// Lets everything go.
    pub(super) fn release(&mut self) {
        *self = Self::default();
    }

    /// Starts the program again after it has died. Returns the sockets to it: for the mount, and for questions. `None` once a program
    /// has closed the volume, and after too many deaths. A mount that is gone is no reason: its changes may be in the records alone.
    pub(super) fn next_program(
        &mut self,
        acts: &Arc<PrivilegedActs>,
    ) -> Option<(OwnedFd, OwnedFd)> {
        if !self.is_watching {
            return None;
        }
        logging::to_system();
        if !self.end_first() {
            tracing::error!("the end of the daemon cannot be seen; it is not started again");
            self.release();
            return None;
        }
        // The end of the first program is known to its parent alone. One that has closed its socket and lives would still be waited for.
        let mut is_killed = acts.end_programs();
        let (mut served, mut failure) = self.served();
        while self.is_watching {
            let is_final = failure.as_ref().is_some_and(|failure| failure.is_final);
            let of_upgrade = !is_final && self.note_end_of_upgrade(acts, failure.take());
            if !of_upgrade {
                self.deaths.note(Instant::now(), served, is_killed);
            }
            let reason = if is_final { Some("it cannot go on") } else { self.deaths.too_many() };
            if reason.is_some() && !is_final && acts.starter.go_back() {
                tracing::error!(
                    "the daemon dies again and again; going back to the program before"
                );
                self.deaths = Deaths::default();
            } else if let Some(reason) = reason {
                tracing::error!(
                    "a daemon is not started again, as {reason}; its mount is taken away"
                );
                let _ = acts.detach(MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
                self.answer_unserved(acts, failure);
                break;
            }
            if !of_upgrade {
                if served.is_none() {
                    thread::sleep(self.deaths.pause());
                }
                tracing::warn!("the daemon of a mount has died; it is started again");
            }
            match self.start_again(acts) {
                Ok(sockets) => return Some(sockets),
                Err(error) => {
                    tracing::error!("the daemon was not started again: {error}");
                    failure = Some(error.into());
                }
            }
            (served, is_killed) = (None, acts.end_programs());
        }
        // An unmount that waits for an answer ends only when nobody has the channels any more.
        self.release();
        None
    }

    /// Ends the first program, beside which no other one must write: it may be served no more, and live. `false` if its end is not
    /// certain.
    pub(super) fn end_first(&mut self) -> bool {
        self.first.take().is_none_or(|first| first.end())
    }

    /// Notes the end of a program if it is part of an upgrade: returns `false` if there is none. If it is that of the new program, the
    /// one before is used again.
    fn note_end_of_upgrade(
        &mut self,
        acts: &PrivilegedActs,
        failure: Option<NotHandedOver>,
    ) -> bool {
        let Some(upgrade) = &mut self.upgrade else { return false };
        if !upgrade.note_end(failure.map(|failure| failure.failure)) {
            tracing::info!("the daemon of a mount is replaced by that of sfs {}", upgrade.to());
            return true;
        }
        // Afterwards it is the program before that dies.
        let goes_back = acts.starter.go_back();
        if goes_back {
            tracing::error!("the program of an upgrade has failed; going back to the one before");
        }
        goes_back
    }

    /// Tells the client of an upgrade that no program serves any more.
    fn answer_unserved(&mut self, acts: &PrivilegedActs, failure: Option<NotHandedOver>) {
        if let Some(mut upgrade) = self.upgrade.take() {
            upgrade.fail(failure.map(|failure| failure.failure));
            upgrade.answer(acts.starter.answer_upgrade(), false);
        }
    }

    /// Returns the time for which the last program has served, which has ended, or why it never did. The first one counts as one that
    /// has.
    fn served(&mut self) -> (Option<Duration>, Option<NotHandedOver>) {
        let Some(giving) = self.giving.take() else { return (Some(SERVED_MIN), None) };
        let Ok(Giving { served_since, upgrade }) = giving.join() else { return (None, None) };
        self.upgrade = upgrade.or(self.upgrade.take());
        match served_since {
            Ok(since) => (Some(since.elapsed()), None),
            Err(failure) => {
                tracing::error!("the daemon was not started again: {}", failure.failure);
                (None, Some(failure))
            }
        }
    }

    fn start_again(&mut self, acts: &Arc<PrivilegedActs>) -> Result<(OwnedFd, OwnedFd), ExitError> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let sockets = || socketpair(kind.0, kind.1, kind.2, None).map_err(ExitError::system);
        let (mount, questions) = (sockets()?, sockets()?);
        // The program before is waited for, if it was started here.
        let link = acts.start_after_death().map_err(ExitError::system)?;
        let descriptors: io::Result<Vec<_>> =
            self.descriptors.iter().map(|of| of.as_fd().try_clone_to_owned()).collect();
        let descriptors = descriptors.map_err(ExitError::system)?;
        let monitor = [mount.1, questions.1];
        let upgrade = self.upgrade.take();
        let opening_max = upgrade.as_ref().and_then(PlannedUpgrade::opening_max);
        let mounts = acts.table_of_outside().map_err(ExitError::system)?;
        let state = self.state.clone();
        let held = HeldMount { state, descriptors, monitor, mounts, opening_max };
        let acts = acts.clone();
        let hand_over = move || {
            if let Err(failure) = acts.starter.hand_over()(link, held) {
                if opening_max.is_some() {
                    // It may live, and answer nothing.
                    acts.end_programs();
                }
                return Giving { served_since: Err(failure), upgrade };
            }
            // Only now is the outcome known.
            upgrade
                .into_iter()
                .for_each(|upgrade| upgrade.answer(acts.starter.answer_upgrade(), true));
            Giving { served_since: Ok(Instant::now()), upgrade: None }
        };
        let giving = thread::Builder::new().spawn(hand_over);
        self.giving = Some(giving.map_err(ExitError::system)?);
        Ok((mount.0, questions.0))
    }
}
