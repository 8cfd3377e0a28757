//! How a mount reads its device.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use sfs_device::BLOCK_SIZE;

use crate::device_speed::DeviceSpeed;
use crate::fuse::ReadFigures;

/// Figures of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadsReport {
    /// Number of bytes that the device reads in a second, measured at the mount; `None` if it is read through the machine's
    /// page cache.
    pub bytes_per_second: Option<u64>,
    /// Time in microseconds that a request takes among others, beside that of its bytes; `None` as above.
    pub request_micros: Option<u64>,
    /// Longest gap between two blocks of a file, in bytes, that is read along.
    pub gap_bytes_max: u64,
    /// Longest part of a file, in bytes, that the daemon reads ahead for one handle; 0 if it does not read ahead.
    pub window_bytes_max: u64,
    /// Number of bytes of reads that were answered from what the daemon had read ahead.
    pub ahead_bytes: u64,
    /// Number of requests to the device that were made together with others, through io_uring; 0 where the kernel allows none.
    pub ring_requests: u64,
}

impl ReadsReport {
    /// Returns the report of these figures, and of `ring_requests` requests made together.
    pub(crate) fn new(figures: &ReadFigures, ring_requests: u64) -> Self {
        let ReadFigures { speed, window_bytes_max, answered_bytes } = figures;
        let micros =
            |speed: DeviceSpeed| u64::try_from(speed.request.as_micros()).unwrap_or(u64::MAX);
        Self {
            bytes_per_second: speed.map(|speed| speed.bytes_per_second),
            request_micros: speed.map(micros),
            gap_bytes_max: (speed.map_or(0, DeviceSpeed::gap_blocks) * BLOCK_SIZE) as u64,
            window_bytes_max: *window_bytes_max,
            ahead_bytes: answered_bytes.load(Ordering::Relaxed),
            ring_requests,
        }
    }
}
