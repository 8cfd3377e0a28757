//! Counters of a hard drive.

use serde::{Deserialize, Serialize};

/// Exact counts since the drive was made, or since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveCounters {
    /// Number of read requests.
    pub read_requests: u64,
    /// Number of write requests.
    pub write_requests: u64,
    /// Number of flush requests.
    pub flush_requests: u64,
    /// Number of discards, which a hard drive ignores.
    pub trim_requests: u64,
    /// Number of bytes that the host read.
    pub host_bytes_read: u64,
    /// Number of bytes that the host wrote.
    pub host_bytes_written: u64,
    /// Number of seeks over at least one cylinder.
    pub seeks: u64,
    /// Sum of the distances of all seeks, in cylinders.
    pub seek_cylinders: u64,
    /// Time of all seeks, in nanoseconds.
    pub seek_ns: u64,
    /// Time in which the heads waited for a sector, in nanoseconds.
    pub rotation_ns: u64,
    /// Time of all transfers between platters and buffer for requests and from the write cache, in nanoseconds.
    pub transfer_ns: u64,
    /// Number of reads of which at least the beginning was in the read-ahead buffer, or all in the write cache.
    pub buffer_hits: u64,
    /// Number of pieces that were written from the cache to the platters.
    pub cache_writes: u64,
}
