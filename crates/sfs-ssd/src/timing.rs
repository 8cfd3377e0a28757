//! Durations of flash operations and transfers, in whole nanoseconds, so that sums are exact.

use serde::Serialize;

/// Durations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timing {
    /// Reading a flash page from the cells into the register of the element.
    pub read_ns: u64,
    /// Programming a flash page from the register into the cells.
    pub program_ns: u64,
    /// Erasing an erase block.
    pub erase_ns: u64,
    /// Transferring a flash page over the channel.
    pub transfer_ns: u64,
    /// Overhead of a request before its first transfer: the command and the work of the controller.
    pub command_ns: u64,
    /// Transferring a kibibyte over the host interface.
    pub link_kib_ns: u64,
}

impl Timing {
    /// Timing of a device that takes no time, for counting only.
    pub const NONE: Timing = Timing {
        read_ns: 0,
        program_ns: 0,
        erase_ns: 0,
        transfer_ns: 0,
        command_ns: 0,
        link_kib_ns: 0,
    };

    /// Timing of single-level cells on a slow bus (FAST'09 paper, section 2.1).
    pub const SLC: Timing = Timing {
        read_ns: 25_000,
        program_ns: 200_000,
        erase_ns: 1_500_000,
        transfer_ns: 100_000,
        command_ns: 0,
        link_kib_ns: 0,
    };

    /// Returns the transfer time of `bytes` over the host interface, in nanoseconds.
    pub fn link_ns(&self, bytes: u64) -> u64 {
        (bytes * self.link_kib_ns).div_ceil(1024)
    }
}
