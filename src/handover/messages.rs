//! Messages of a handover.

use serde::{Deserialize, Serialize};

use super::state::HandedState;

/// Version of the protocol of a handover. Programs of another version refuse each other before anything was paused. It is changed
/// with every message, and with every field of the state that the other side must know.
pub(super) const PROTOCOL: u32 = 3;

/// Message of the new program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToOld {
    /// The program runs.
    Hello {
        /// [`PROTOCOL`] of the program.
        protocol: u32,
        /// Version of the program, for people.
        version: String,
    },
    /// The volume is open, and nothing was written.
    Ready,
    /// The volume is written, and all threads wait to serve.
    Started,
    /// The program gives up, with the exit status and the line of an [`ExitError`](crate::ExitError).
    Failed {
        /// Exit status.
        status: u8,
        /// Line for the user.
        line: String,
    },
}

/// Message of the old program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToNew {
    /// The state of the mount, with its descriptors.
    State(Box<HandedState>),
    /// The old program writes nothing any more.
    Commit,
    /// The new program serves: no other one takes the mount over from here on. The end of the old program means the same.
    Go,
}
