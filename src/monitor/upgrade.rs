//! The upgrade of a mount that survives its daemon: a planned death, after which another program is started.
//!
//! The daemon has tried the installed program before, as far as that can be done while it serves itself. It gives the monitor the
//! socket of the client that waits, and ends. A program that does not come to serve is replaced by the one before.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::exit_error::ExitError;

/// Outcome of an upgrade.
pub(crate) struct UpgradeOutcome {
    /// Version of the program that has ended.
    pub(crate) from: String,
    /// Version of the program that was to be started.
    pub(crate) to: String,
    /// Time since the program before was asked to end.
    pub(crate) pause: Duration,
    /// Reason why the new program does not serve; `None` if it does.
    pub(crate) refusal: Option<ExitError>,
    /// `true` if a program serves: the new one, or that before.
    pub(crate) is_served: bool,
}

/// Function that tells a client the outcome.
pub(crate) type AnswerUpgrade = fn(OwnedFd, UpgradeOutcome);

/// Upgrade that a daemon has asked for.
pub(super) struct PlannedUpgrade {
    from: String,
    to: String,
    begun: Instant,
    /// Socket of the client that waits.
    client: OwnedFd,
    /// `true` once the new program was started.
    is_started: bool,
    refusal: Option<ExitError>,
    pause_max: Duration,
}

impl PlannedUpgrade {
    pub(super) fn new((from, to): (String, String), pause_max: Duration, client: OwnedFd) -> Self {
        let begun = Instant::now();
        Self { from, to, begun, client, is_started: false, refusal: None, pause_max }
    }

    /// Notes the end of a program: that of the one before at first, and then the failure of the new one. Returns `true` for the latter.
    pub(super) fn note_end(&mut self, failure: Option<ExitError>) -> bool {
        if !self.is_started {
            self.is_started = true;
            return false;
        }
        self.fail(failure);
        true
    }

    /// Notes that the new program does not serve, and why: the first reason counts.
    pub(super) fn fail(&mut self, failure: Option<ExitError>) {
        let ended = || ExitError::system("the new program has ended");
        self.refusal.get_or_insert_with(|| failure.unwrap_or_else(ended));
    }

    /// Tells the client the outcome, now that a program serves, or none will with `is_served` unset.
    pub(super) fn answer(self, answer: AnswerUpgrade, is_served: bool) {
        let Self { from, to, begun, client, refusal, .. } = self;
        let pause = begun.elapsed();
        answer(client, UpgradeOutcome { from, to, pause, refusal, is_served });
    }

    /// Returns the longest wait until the new program has opened the volume; `None` for the one before, which must serve.
    pub(super) fn opening_max(&self) -> Option<Duration> {
        self.refusal.is_none().then_some(self.pause_max)
    }

    /// Returns the version of the new program.
    pub(super) fn to(&self) -> &str {
        &self.to
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_first_failure_is_told() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let versions = ("1".into(), "2".into());
        let mut upgrade = PlannedUpgrade::new(versions, Duration::from_secs(1), ours.into());
        assert!(!upgrade.note_end(None), "the program before has ended");
        assert_eq!(upgrade.opening_max(), Some(Duration::from_secs(1)));
        assert!(upgrade.note_end(Some(ExitError::system("no memory"))));
        assert_eq!(upgrade.opening_max(), None, "a large volume may take longer");
        assert!(upgrade.note_end(None), "the program before has died again");
        let told = |_: OwnedFd, outcome: UpgradeOutcome| {
            assert_eq!((&*outcome.from, &*outcome.to), ("1", "2"));
            assert_eq!(outcome.refusal.expect("it has failed").to_string(), "no memory");
            assert!(outcome.is_served);
        };
        upgrade.answer(told, true);
    }
}
