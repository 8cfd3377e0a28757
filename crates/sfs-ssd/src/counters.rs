//! What a model counts.
//!
//! Owns: the counters, and write amplification from them.
//! Promises: exact; only ever grow, until the caller resets them.
//! Never: counts time: requests have it.

use serde::{Deserialize, Serialize};

/// Exact counts since the device was made, or the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests of each kind.
    pub read_requests: u64,
    /// Write requests.
    pub write_requests: u64,
    /// Trim requests.
    pub trim_requests: u64,
    /// Flush requests.
    pub flush_requests: u64,
    /// Bytes that the host read.
    pub host_bytes_read: u64,
    /// Bytes that the host wrote.
    pub host_bytes_written: u64,
    /// Pages that the host wrote, whole or in part.
    pub host_pages_written: u64,
    /// Pages that the host trimmed, and that held something.
    pub host_pages_trimmed: u64,
    /// Pages that were read as the host wrote a part of them.
    pub pages_completed: u64,
    /// Pages that cleaning, merging and wear levelling moved.
    pub pages_moved: u64,
    /// Flash pages programmed, for whatever reason.
    pub flash_pages_programmed: u64,
    /// Flash pages read, for whatever reason.
    pub flash_pages_read: u64,
    /// Clustered blocks erased.
    pub erases: u64,
    /// Victims that a page-mapped layer cleaned.
    pub cleanings: u64,
    /// A log block that became the data block as it was.
    pub merges_switch: u64,
    /// A log block that the rest of its data block was copied into.
    pub merges_partial: u64,
    /// A data block and its log pages that were copied into a third block.
    pub merges_full: u64,
    /// Clustered blocks that wear levelling moved.
    pub wear_moves: u64,
    /// Time that cleaning and merging held elements and channels busy, in nanoseconds, summed.
    pub moving_ns: u64,
}

impl Counters {
    /// Bytes programmed over bytes that the host wrote; 1 if it wrote none.
    pub fn write_amplification(&self, flash_page_size: u32) -> f64 {
        let programmed = self.flash_pages_programmed * u64::from(flash_page_size);
        match self.host_bytes_written {
            0 => 1.0,
            written => programmed as f64 / written as f64,
        }
    }
}
