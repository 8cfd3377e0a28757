//! Speed of reading, measured when a volume is mounted: whether the kernel may read asynchronously.
//!
//! The kernel puts asynchronous reads (its read-ahead, and reads of cold pages) behind all write requests that it has queued. On a
//! slow card these take seconds, and so did a read of 4 KiB beside a copy. Synchronous reads pass them. A fast device loses a part
//! of its speed in order, since the kernel then sends the next read only after the reply to the last.

use std::time::{Duration, Instant};

use sfs_core::format::Layout;
use sfs_device::{Block, Device, FileDevice};

/// Bytes in a second below which reads are synchronous. There the time between two requests, about 0.3 ms for a MiB, costs less
/// than a fifteenth of the speed.
const FAST: u64 = 200 << 20;

/// Number of blocks of a read that is measured.
const READ_BLOCKS: usize = 64;

/// Number of reads. The fastest counts, as other programs may delay some.
const READS: u64 = 3;

/// Condition for asynchronous reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncReads {
    /// On a fast device.
    #[default]
    WhereFast,
    /// On every device.
    Always,
    /// On none.
    Never,
}

impl AsyncReads {
    /// Returns whether the kernel may read asynchronously from a device of this speed, in bytes a second.
    pub(crate) fn are_wanted(self, speed: Option<u64>) -> bool {
        match self {
            Self::WhereFast => speed.is_none_or(|speed| speed >= FAST),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Returns the speed of reading in bytes a second; `None` if reads come from the machine's page cache, or fail.
pub(crate) fn measure(device: &FileDevice, layout: &Layout) -> Option<u64> {
    device.direct_io().then(|| fastest(device, layout)).flatten()
}

/// Reads at places that lie far apart.
fn fastest(device: &dyn Device, layout: &Layout) -> Option<u64> {
    let mut blocks = Block::zeroed(READ_BLOCKS);
    let segments = u64::from(layout.segment_count);
    let times = (0..READS).map(|index| {
        let segment = u32::try_from(segments * index / READS).ok()?;
        let begin = Instant::now();
        device.read(layout.segment_address(segment), &mut blocks).ok()?;
        Some(begin.elapsed())
    });
    let least = times.collect::<Option<Vec<Duration>>>()?.into_iter().min()?;
    let bytes = size_of_val(&blocks[..]) as u128;
    u64::try_from(bytes * 1_000_000_000 / least.as_nanos().max(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_device_is_read_synchronously() {
        let wanted = |choice: AsyncReads| {
            [None, Some(20 << 20), Some(FAST), Some(2 << 30)].map(|speed| choice.are_wanted(speed))
        };
        assert_eq!(wanted(AsyncReads::WhereFast), [true, false, true, true]);
        assert_eq!(wanted(AsyncReads::Always), [true; 4]);
        assert_eq!(wanted(AsyncReads::Never), [false; 4]);
    }
}
