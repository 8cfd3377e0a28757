//! The control socket: what the programs and the daemon of a mount say to each other.
//!
//! Owns: the requests and replies, each one line of JSON.
//! Promises: a client that is slow, silent or talks nonsense costs the daemon one bounded line, one
//! of a few threads, and a few seconds; no request to the volume waits for a client.
//! Never: serves anybody but root and the user who runs the daemon.

mod client;
mod line;
mod place;
mod server;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::fuse::Missing;
use crate::stat::Report;

pub(crate) use client::{Client, Trouble};
pub(crate) use server::{Answer, Control};

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// The numbers of the volume.
    Status,
    /// To be told, after [`Reply::Watching`], how the last checkpoint went.
    Watch,
    /// Whether a remount with this comma list is possible.
    Allow(String),
    /// Make everything durable, and write nothing until something changes. The kernel's mount is
    /// read-only by then.
    Rest,
}

/// What the daemon says to it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// To [`Request::Status`].
    Status(Box<Report>),
    /// To [`Request::Watch`].
    Watching,
    /// To [`Request::Allow`].
    Allowed,
    /// To [`Request::Rest`].
    Resting,
    /// To who watches: everything is on the device.
    Written,
    /// To who watches: so many bytes of the kernel's cache did not fit, all else is on the device.
    WrittenBut(u64),
    /// As `WrittenBut`, and of some of it no program was told, as far as that is known.
    WrittenUntold(Missing),
    /// It cannot be, or it went wrong.
    Failed {
        /// Exit status for the program.
        status: u8,
        /// What the user is told.
        line: String,
    },
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        Self::Failed { status: failure.status, line: failure.to_string() }
    }
}
