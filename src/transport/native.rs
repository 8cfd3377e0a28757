//! `/dev/fuse` and io_uring through the crate `sfs-fuse`, whose requests the shell takes as they are.

use std::fs::File;
use std::io;
use std::sync::Arc;

use sfs_fuse::{Agreed, FuseSession, NoUring, Notifier, Pauser, SessionChannels, SessionConfig};

use super::follow_thread::Following;
use super::notify_thread::{ATTRIBUTES_ONLY, serve_with_notifications};
use crate::exit_error::ExitError;
use crate::fuse::{FuseShell, WRITE_MAX, congestion_threshold};
use crate::survival::{Journal, Revival};

/// Session of `sfs-fuse`, and the shell that gives its replies.
pub(super) struct NativeSession {
    session: FuseSession,
    shell: FuseShell,
}

impl NativeSession {
    /// Agrees with the kernel on the protocol, and tells the shell the result before the first request.
    pub(super) fn open(
        channel: File,
        shell: FuseShell,
        threads: usize,
        (rings, never_sent_again): (bool, bool),
    ) -> io::Result<Self> {
        let config = SessionConfig { rings, never_sent_again, ..config(&shell, threads) };
        let session = FuseSession::new(channel.into(), &config)?;
        Self::of(session, shell)
    }

    /// Goes on with the session of another program.
    pub(super) fn resume(
        channels: SessionChannels,
        agreed: Agreed,
        shell: FuseShell,
        threads: usize,
    ) -> io::Result<Self> {
        let threads = match &channels {
            SessionChannels::Read(all) => all.len(),
            SessionChannels::Unread(_) => threads,
        };
        let config = config(&shell, threads);
        Self::of(FuseSession::resume(channels, agreed, &config)?, shell)
    }

    fn of(session: FuseSession, mut shell: FuseShell) -> io::Result<Self> {
        shell.agree(session.agreed().flags)?;
        if !session.sends_again() {
            shell.cache_shortly();
        }
        let notifier = session.notifier();
        shell.notify_by(Arc::new(move |node| notifier.attributes_changed(node)));
        Ok(Self { session, shell })
    }

    /// Returns a way to pause the session; `None` with rings.
    pub(super) fn pauser(&self) -> Option<Pauser> {
        self.session.pauser()
    }

    /// Returns a sender of notifications.
    pub(super) fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

    /// Returns whether requests that were read and not answered are sent again to the next process.
    pub(super) fn sends_again(&self) -> bool {
        self.session.sends_again()
    }

    /// Executes recorded changes once more.
    pub(super) fn replay(&self, revival: &Revival, journal: &Journal) -> Result<(), ExitError> {
        self.shell.replay(revival, self.session.agreed().flags, journal)
    }

    /// Returns the number of rings, or the reason why there are none.
    pub(super) fn rings(&self) -> Result<usize, &NoUring> {
        self.session.rings()
    }

    /// Returns whether the kernel enforces access lists.
    pub(super) fn enforces_lists(&self) -> bool {
        self.shell.enforces_lists()
    }

    /// Serves until the filesystem is unmounted, and goes on to newer states of the volume with `following`.
    pub(super) fn run(
        self,
        following: Option<Following>,
        lost: impl Fn(&io::Error) + Sync,
    ) -> io::Result<()> {
        let Self { session, shell } = self;
        let (notifier, invalidations) = (session.notifier(), shell.invalidations());
        let send = |ino| notifier.invalidate_inode(ino, ATTRIBUTES_ONLY, 0);
        let forget = |inodes: &[u64]| notifier.prune(inodes);
        match following {
            None => {
                let prune = || shell.prune(forget);
                serve_with_notifications(&invalidations, send, prune, || {
                    session.serve(&shell, lost)
                })
            }
            Some(following) => {
                let shell = following.start(shell, notifier.clone())?;
                let prune = || shell.now().prune(forget);
                let serve = || session.serve(&*shell, lost);
                serve_with_notifications(&invalidations, send, prune, serve)
            }
        }
    }
}

fn config(shell: &FuseShell, threads: usize) -> SessionConfig {
    let max_background = shell.background_max(threads, true);
    let of_rings = shell.background_max(threads, false);
    SessionConfig {
        flags: shell.features_wanted(),
        async_dio: shell.async_dio,
        max_write: WRITE_MAX,
        max_background,
        congestion_threshold: congestion_threshold(max_background),
        background_of_rings: Some((of_rings, congestion_threshold(of_rings))),
        parked_bytes_max: shell.parked_bytes_max(),
        outlives_process: shell.survives(),
        threads,
        ..SessionConfig::default()
    }
}
