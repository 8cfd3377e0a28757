//! How long the parts of a device take.
//!
//! Owns: the times of one flash page, one erase, one transfer.
//! Promises: whole nanoseconds, so that sums are the same on every machine.
//! Never: measures.

use serde::Serialize;

/// Durations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timing {
    /// Flash page from the cells to the element's register.
    pub read_ns: u64,
    /// Flash page from the register to the cells.
    pub program_ns: u64,
    /// Erasing an erase block.
    pub erase_ns: u64,
    /// Flash page over the channel.
    pub transfer_ns: u64,
    /// What a request costs before its first byte moves: the command, the controller's work.
    pub command_ns: u64,
    /// A kibibyte over the host's interface.
    pub link_kib_ns: u64,
}

impl Timing {
    /// A device that takes no time: for counting only.
    pub const NONE: Timing = Timing {
        read_ns: 0,
        program_ns: 0,
        erase_ns: 0,
        transfer_ns: 0,
        command_ns: 0,
        link_kib_ns: 0,
    };

    /// Single-level cells on a slow bus (FAST'09 paper, section 2.1).
    pub const SLC: Timing = Timing {
        read_ns: 25_000,
        program_ns: 200_000,
        erase_ns: 1_500_000,
        transfer_ns: 100_000,
        command_ns: 0,
        link_kib_ns: 0,
    };

    /// Time that `bytes` take over the host's interface.
    pub fn link_ns(&self, bytes: u64) -> u64 {
        (bytes * self.link_kib_ns).div_ceil(1024)
    }
}
