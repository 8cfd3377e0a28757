//! The last cleaning rounds of a mount.

use serde::{Deserialize, Serialize};

/// A cleaning round: victims whose live blocks were moved together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleaningReport {
    /// Seconds since its end.
    pub secs_ago: u64,
    /// Number of segments that were emptied.
    pub victims: u32,
    /// Number of bytes of file data that were moved.
    pub moved_bytes: u64,
    /// Number of bytes of the victims that did not have to be moved.
    pub freed_bytes: u64,
    /// Milliseconds from the choice of the first victim to the end of the commit, pauses for users included.
    pub millis: u64,
}
