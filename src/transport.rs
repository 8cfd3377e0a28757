//! How requests come from the kernel and answers get there.
//!
//! Owns: the choice, and what each transport is told at the start.
//! Promises: whatever is chosen, the same shell gives the answers.
//! Never: mounts; knows what a request is about.

mod own;
mod reference;

use std::fmt;
use std::fs::File;
use std::io;
use std::thread;

use clap::ValueEnum;
use sfs_fuse::NoRings;

use crate::fuse::{Notices, Shell};

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// io_uring where the kernel offers it, or else `/dev/fuse`.
    #[default]
    Auto,
    /// io_uring, or nothing.
    Uring,
    /// `/dev/fuse`, by our own hand.
    Dev,
    /// `/dev/fuse`, through the library fuser: the reference, which syncfs(2) does not reach.
    Fuser,
}

/// What is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Uring,
    Dev,
    Fuser,
}

/// As `--transport` has it.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Dev => "dev",
            Self::Fuser => "fuser",
        })
    }
}

/// A mount that is ready to be served.
pub(crate) struct Serving {
    /// How.
    pub(crate) transport: Transport,
    /// Why so.
    pub(crate) reason: String,
    session: Session,
}

enum Session {
    Own(own::Serving),
    Fuser(reference::Serving),
}

impl Choice {
    /// Shakes hands with the kernel over `door`, a /dev/fuse that was mounted with.
    pub(crate) fn open(self, door: File, shell: Shell, threads: usize) -> io::Result<Serving> {
        if self == Self::Fuser {
            let session = Session::Fuser(reference::Serving::open(door, shell, threads)?);
            return Ok(Serving { transport: Transport::Fuser, reason: asked_for(), session });
        }
        let serving = own::Serving::open(door, shell, threads, self != Self::Dev)?;
        let (transport, reason) = match (self, serving.rings()) {
            (Self::Uring, Err(reason)) => return Err(no_rings(reason)),
            (Self::Uring, Ok(_)) => (Transport::Uring, asked_for()),
            (_, Ok(rings)) => {
                (Transport::Uring, format!("the kernel offers io_uring; {rings} rings"))
            }
            (Self::Dev, Err(_)) => (Transport::Dev, asked_for()),
            (_, Err(reason)) => (Transport::Dev, reason.to_string()),
        };
        Ok(Serving { transport, reason, session: Session::Own(serving) })
    }
}

impl Serving {
    /// Serves until it is unmounted; `lost` is told when a mount has to be taken away by force.
    pub(crate) fn run(self, lost: impl Fn(&io::Error) + Sync) -> io::Result<()> {
        match self.session {
            Session::Own(serving) => serving.run(lost),
            Session::Fuser(serving) => serving.run(),
        }
    }
}

/// Where the kernel is told to take pages away: nowhere.
const ATTRIBUTES_ONLY: i64 = -1;

/// Does `serve`, while a thread of its own sends the kernel what is posted in `notices`.
fn notifying(
    notices: &Notices,
    send: impl Fn(u64) -> io::Result<()> + Send,
    serve: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    thread::scope(|scope| {
        let send = move |ino| {
            if let Err(error) = send(ino) {
                tracing::debug!("inode {ino}: the kernel takes no notification: {error}");
            }
        };
        let thread = thread::Builder::new().name("sfs-notify".into());
        thread.spawn_scoped(scope, move || notices.serve(send))?;
        let outcome = serve();
        notices.end();
        outcome
    })
}

fn asked_for() -> String {
    "asked for".into()
}

fn no_rings(reason: &NoRings) -> io::Error {
    let remedy = match reason {
        NoRings::NotOffered => {
            "it takes Linux 6.14, and 'echo Y > /sys/module/fuse/parameters/enable_uring' before \
             mounting"
        }
        _ => "without '--transport uring' it goes through /dev/fuse",
    };
    io::Error::new(io::ErrorKind::Unsupported, format!("{reason}; {remedy}"))
}
