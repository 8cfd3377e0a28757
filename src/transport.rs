//! Transports of requests from the kernel and of replies to the kernel.
//!
//! The user chooses a transport ([`TransportChoice`]); by default io_uring is used where the kernel
//! offers it, or else `/dev/fuse`. `native` serves both through the crate `sfs-fuse`, and
//! `fuser_adapter` serves `/dev/fuse` through the library fuser. The same shell gives the replies
//! on every transport.

mod follow_thread;
mod fuser_adapter;
mod native;
mod notify_thread;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use clap::ValueEnum;
pub(crate) use follow_thread::Following;
use fuser_adapter::FuserSession;
use native::NativeSession;
use sfs_fuse::{Agreed, NoUring, Notifier, Pauser, SessionChannels};

use crate::exit_error::ExitError;
use crate::fuse::FuseShell;
use crate::mount::FUSE_DEVICE;
use crate::mount_options::{AccessLists, MountOptions};
use crate::survival::{Journal, Revival};

/// Value of the option `--transport`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportChoice {
    /// io_uring where the kernel offers it, or else `/dev/fuse`.
    #[default]
    Auto,
    /// io_uring; mounting fails where the kernel does not offer it.
    Uring,
    /// `/dev/fuse`, through `sfs-fuse`.
    Dev,
    /// `/dev/fuse`, through the library fuser, for comparison. docs/SEMANTICS.md lists the limits.
    Fuser,
}

impl TransportChoice {
    /// Refuses options that the transport cannot serve.
    ///
    /// # Errors
    ///
    /// [`ExitError`] that names the option.
    pub(crate) fn check(self, options: &MountOptions) -> Result<(), ExitError> {
        if self == Self::Fuser && options.access_lists == AccessLists::Required {
            return Err(ExitError::usage(
                "mount option 'acl': the transport fuser has no access lists; leave out the option, \
                 or '--transport fuser'",
            ));
        }
        if self == Self::Fuser && options.objects.follow.is_some() {
            return Err(ExitError::usage(
                "mount option 'follow': the transport fuser cannot follow; leave out the option, or \
                 '--transport fuser'",
            ));
        }
        Ok(())
    }
}

/// Transport of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActiveTransport {
    Uring,
    Dev,
    Fuser,
}

/// Prints the transport as the option `--transport` names it.
impl fmt::Display for ActiveTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Dev => "dev",
            Self::Fuser => "fuser",
        })
    }
}

/// Session of a mount that both sides have agreed on, ready to run.
pub(crate) struct Serving {
    /// Transport in use.
    pub(crate) transport: ActiveTransport,
    /// Reason for this transport, for the log and `sfs-ctl stat`.
    pub(crate) reason: String,
    /// `true` if the kernel enforces access lists.
    pub(crate) enforces_lists: bool,
    session: AnySession,
    following: Option<Following>,
}

enum AnySession {
    Native(NativeSession),
    Fuser(FuserSession),
}

impl TransportChoice {
    /// Agrees with the kernel on the protocol over `channel`, the open `/dev/fuse` of a mount.
    pub(crate) fn open(
        self,
        channel: File,
        shell: FuseShell,
        (threads, never_sent_again): (usize, bool),
    ) -> io::Result<Serving> {
        if self == Self::Fuser {
            let session = AnySession::Fuser(FuserSession::open(channel, shell, threads)?);
            return Ok(Serving {
                transport: ActiveTransport::Fuser,
                reason: asked_for(),
                enforces_lists: false,
                session,
                following: None,
            });
        }
        let survives = shell.survives();
        let kinds = (self != Self::Dev, never_sent_again);
        let session = NativeSession::open(channel, shell, threads, kinds)?;
        let (transport, reason) = match (self, session.rings()) {
            (Self::Uring, Err(reason)) => return Err(uring_refused(reason)),
            (Self::Uring, Ok(_)) => (ActiveTransport::Uring, asked_for()),
            (_, Ok(rings)) => {
                (ActiveTransport::Uring, format!("the kernel offers io_uring; {rings} rings"))
            }
            (_, Err(_)) if survives && session.sends_again() => {
                (ActiveTransport::Dev, "for -o survive".into())
            }
            (_, Err(_)) if survives => (ActiveTransport::Dev, NO_RESEND.into()),
            (Self::Dev, Err(_)) => (ActiveTransport::Dev, asked_for()),
            (_, Err(reason)) => (ActiveTransport::Dev, reason.to_string()),
        };
        let enforces_lists = session.enforces_lists();
        let session = AnySession::Native(session);
        Ok(Serving { transport, reason, enforces_lists, session, following: None })
    }
}

impl Serving {
    /// Goes on with a session that another program has agreed on, over its `channels`.
    pub(crate) fn resume(
        channels: SessionChannels,
        agreed: Agreed,
        (shell, threads): (FuseShell, usize),
        reason: String,
    ) -> io::Result<Self> {
        let session = NativeSession::resume(channels, agreed, shell, threads)?;
        let enforces_lists = session.enforces_lists();
        let session = AnySession::Native(session);
        let transport = ActiveTransport::Dev;
        Ok(Self { transport, reason, enforces_lists, session, following: None })
    }

    /// Has the mount go on to newer states of its volume. The transport fuser cannot.
    pub(crate) fn follow(&mut self, following: Following) {
        self.following = Some(following);
    }

    /// Returns a way to pause the session; `None` if the transport has none.
    pub(crate) fn pauser(&self) -> Option<Pauser> {
        match &self.session {
            AnySession::Native(session) => session.pauser(),
            AnySession::Fuser(_) => None,
        }
    }

    /// Returns whether requests that another program has read and not answered are sent again to this one.
    pub(crate) fn sends_again(&self) -> bool {
        match &self.session {
            AnySession::Native(session) => session.sends_again(),
            AnySession::Fuser(_) => false,
        }
    }

    /// Executes the changes once more that another program has recorded, and that are not in the log.
    pub(crate) fn replay(&self, revival: &Revival, journal: &Journal) -> Result<(), ExitError> {
        match &self.session {
            AnySession::Native(session) => session.replay(revival, journal),
            AnySession::Fuser(_) => Ok(()),
        }
    }

    /// Returns a sender of notifications; `None` if the transport has none.
    pub(crate) fn notifier(&self) -> Option<Notifier> {
        match &self.session {
            AnySession::Native(session) => Some(session.notifier()),
            AnySession::Fuser(_) => None,
        }
    }

    /// Returns the device file that the threads of this transport open.
    pub(crate) fn opened_later(&self) -> Option<&'static Path> {
        match self.session {
            AnySession::Native(_) => None,
            AnySession::Fuser(_) => Some(Path::new(FUSE_DEVICE)),
        }
    }

    /// Serves until the filesystem is unmounted. Calls `lost` when a request stays without a reply, so that only a
    /// forced unmount ends its wait.
    pub(crate) fn run(self, lost: impl Fn(&io::Error) + Sync) -> io::Result<()> {
        match self.session {
            AnySession::Native(session) => session.run(self.following, lost),
            AnySession::Fuser(session) => session.run(),
        }
    }
}

/// Reason for the transport of a mount with the option `survive` whose requests end with the daemon.
const NO_RESEND: &str = "for -o survive; this kernel does not send requests again: those under way get an error when the daemon dies";

fn asked_for() -> String {
    "chosen by --transport".into()
}

fn uring_refused(reason: &NoUring) -> io::Error {
    let remedy = match reason {
        NoUring::NotOffered => {
            "io_uring needs Linux 6.14, and 'echo Y > /sys/module/fuse/parameters/enable_uring' \
             before mounting"
        }
        _ => "without '--transport uring', the mount uses /dev/fuse",
    };
    io::Error::new(io::ErrorKind::Unsupported, format!("{reason}; {remedy}"))
}
