//! Counters of a model, and the write amplification computed from them.

use serde::{Deserialize, Serialize};

/// Exact counts since the device was made, or since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SsdCounters {
    /// Number of read requests.
    pub read_requests: u64,
    /// Number of write requests.
    pub write_requests: u64,
    /// Number of trim requests.
    pub trim_requests: u64,
    /// Number of flush requests.
    pub flush_requests: u64,
    /// Number of bytes that the host read.
    pub host_bytes_read: u64,
    /// Number of bytes that the host wrote.
    pub host_bytes_written: u64,
    /// Number of pages that the host wrote, whole or in part.
    pub host_pages_written: u64,
    /// Number of pages with data that the host trimmed.
    pub host_pages_trimmed: u64,
    /// Number of pages that were read because the host wrote only a part of them.
    pub pages_completed: u64,
    /// Number of pages that cleaning, merging and wear levelling moved.
    pub pages_moved: u64,
    /// Number of flash pages programmed, for the host or internally.
    pub flash_pages_programmed: u64,
    /// Number of flash pages read, for the host or internally.
    pub flash_pages_read: u64,
    /// Number of clustered blocks erased.
    pub erases: u64,
    /// Number of victims that a page-mapped layer cleaned.
    pub cleanings: u64,
    /// Number of switch merges: a log block became the data block without copies.
    pub merges_switch: u64,
    /// Number of partial merges: the rest of the data block was copied into the log block.
    pub merges_partial: u64,
    /// Number of full merges: a data block and its log pages were copied into a third block.
    pub merges_full: u64,
    /// Number of clustered blocks that wear levelling moved.
    pub wear_moves: u64,
    /// Sum of the times that copies and erases kept elements and channels busy, in nanoseconds.
    pub moving_ns: u64,
}

impl SsdCounters {
    /// Returns the bytes programmed divided by the bytes that the host wrote; 1 if the host wrote none.
    pub fn write_amplification(&self, flash_page_size: u32) -> f64 {
        let programmed = self.flash_pages_programmed * u64::from(flash_page_size);
        match self.host_bytes_written {
            0 => 1.0,
            written => programmed as f64 / written as f64,
        }
    }
}
