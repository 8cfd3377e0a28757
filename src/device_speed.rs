//! Speed of reading, measured when a volume is mounted: which gaps are read along, and whether the kernel may read
//! asynchronously.
//!
//! Several short reads at a time tell how much a request costs among others: on a device that serves many at the same time,
//! that is a small part of the time of a single one.
//!
//! The kernel puts asynchronous reads (its read-ahead, and reads of cold pages) behind all write requests that it has queued. On a
//! slow card these take seconds, and so did a read of 4 KiB beside a copy. Synchronous reads pass them. In exchange the kernel
//! sends the next read only after the reply to the last. Where the daemon reads ahead, and the kernel asks for a MiB at a time,
//! reads in order are no slower for that.

use std::time::{Duration, Instant};

use sfs_core::format::Layout;
use sfs_device::{BLOCK_SIZE, Block, Device, FileDevice, ReadPart, ReadRun};

/// Bytes in a second below which a device is slow: reads from it are always synchronous. There the time between two requests, about 0.3 ms for a MiB, costs less
/// than a fifteenth of the speed.
const FAST: u64 = 200 << 20;

/// Number of blocks of a read that is measured.
const READ_BLOCKS: usize = 64;

/// Number of reads, and of groups of short reads. The fastest counts, as other programs may delay some.
const READS: u64 = 5;

/// Number of short reads that are made together.
const SHORT_READS: u64 = 8;

/// Gap that is always read along, in blocks: on every device a request costs more, and other programs may disturb the
/// measurement.
const GAP_BLOCKS_MIN: u64 = 2;

/// Longest gap that is read along, in blocks, however much a request costs: the device may be faster than it was at the mount.
const GAP_BLOCKS_MAX: u64 = 32;

/// Time that requests of one thread may take a device, before requests of others get their turn.
const TURN: Duration = Duration::from_millis(20);

/// Speed of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSpeed {
    /// Bytes in a second, of a long read.
    pub(crate) bytes_per_second: u64,
    /// Time that each of several requests takes beside that of its bytes.
    pub(crate) request: Duration,
}

/// Condition for asynchronous reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncReads {
    /// On a fast device, unless the daemon reads ahead and the kernel asks for long parts.
    #[default]
    WhereFast,
    /// On every device.
    Always,
    /// On none.
    Never,
}

impl AsyncReads {
    /// Returns whether the kernel may read asynchronously from a device of this speed. `is_fed` is `true` if the daemon reads
    /// ahead, and the kernel asks it for a MiB at a time.
    pub(crate) fn are_wanted(self, speed: Option<DeviceSpeed>, is_fed: bool) -> bool {
        match self {
            Self::WhereFast => !is_fed && !speed.is_some_and(DeviceSpeed::is_slow),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

impl DeviceSpeed {
    /// Returns the speed of a device that reads [`READ_BLOCKS`] blocks in `long`, and [`SHORT_READS`] single blocks, all
    /// together, in `short`.
    fn of_times(long: Duration, short: Duration) -> Self {
        let bytes = (READ_BLOCKS * BLOCK_SIZE) as u128;
        let per_second = bytes * 1_000_000_000 / long.as_nanos().max(1);
        let block = long / READ_BLOCKS as u32;
        Self {
            bytes_per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
            request: (short / SHORT_READS as u32).saturating_sub(block),
        }
    }

    /// Returns whether a device of this speed makes a reader wait longer for its bytes than for anything else.
    pub(crate) fn is_slow(self) -> bool {
        self.bytes_per_second < FAST
    }

    /// Returns the longest gap between two blocks, in blocks, that is read in less time than a request takes.
    pub(crate) fn gap_blocks(self) -> usize {
        let blocks = (self.request_bytes() / BLOCK_SIZE) as u64;
        blocks.clamp(GAP_BLOCKS_MIN, GAP_BLOCKS_MAX) as usize
    }

    /// Returns the number of bytes that the device reads in the time of a request.
    pub(crate) fn request_bytes(self) -> usize {
        let bytes = self.request.as_nanos() * u128::from(self.bytes_per_second) / 1_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Returns the number of bytes that the device reads while requests of other threads wait.
    pub(crate) fn turn_bytes(self) -> usize {
        let bytes = u128::from(self.bytes_per_second) * TURN.as_millis() / 1000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// Returns the speed of reading; `None` if reads come from the machine's page cache, or fail.
pub(crate) fn measure(device: &FileDevice, layout: &Layout) -> Option<DeviceSpeed> {
    device.direct_io().then(|| fastest(device, layout)).flatten()
}

/// Reads at places that lie far apart.
fn fastest(device: &dyn Device, layout: &Layout) -> Option<DeviceSpeed> {
    let segments = u64::from(layout.segment_count);
    let place = |index: u64, count: u64| {
        let segment = u32::try_from(segments * index / count).ok()?;
        Some(layout.segment_address(segment))
    };
    let mut blocks = Block::zeroed(READ_BLOCKS);
    let long = least((0..READS).map(|index| {
        let address = place(index, READS)?;
        timed(|| device.read(address, &mut blocks).ok())
    }))?;
    let count = READS * SHORT_READS;
    let short = least((0..READS).map(|group| {
        // Behind the blocks that the long reads have brought into a cache of the device.
        let address = |index| Some(place(index * READS + group, count)? + READ_BLOCKS as u64);
        let addresses: Vec<u64> = (0..SHORT_READS).map(address).collect::<Option<_>>()?;
        let run = |(address, block)| {
            let parts = vec![ReadPart::Into(std::slice::from_mut(block))];
            ReadRun { address, parts }
        };
        let mut runs: Vec<_> = addresses.into_iter().zip(blocks.iter_mut()).map(run).collect();
        timed(|| device.read_many(&mut runs).into_iter().all(|read| read.is_ok()).then_some(()))
    }))?;
    Some(DeviceSpeed::of_times(long, short))
}

/// Returns the time of `read`, unless it fails.
fn timed(read: impl FnOnce() -> Option<()>) -> Option<Duration> {
    let begin = Instant::now();
    read()?;
    Some(begin.elapsed())
}

/// Returns the least of the times, if all reads have succeeded.
fn least(times: impl Iterator<Item = Option<Duration>>) -> Option<Duration> {
    times.collect::<Option<Vec<Duration>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_device_is_read_synchronously() {
        let wanted = |choice: AsyncReads| {
            let of = |bytes_per_second| DeviceSpeed { bytes_per_second, request: Duration::ZERO };
            [None, Some(20 << 20), Some(FAST), Some(2 << 30)]
                .map(|speed| choice.are_wanted(speed.map(of), false))
        };
        assert_eq!(wanted(AsyncReads::WhereFast), [true, false, true, true]);
        assert_eq!(wanted(AsyncReads::Always), [true; 4]);
        assert_eq!(wanted(AsyncReads::Never), [false; 4]);
        assert!(!AsyncReads::WhereFast.are_wanted(None, true), "the daemon reads ahead");
        assert!(AsyncReads::Always.are_wanted(None, true));
    }

    #[test]
    fn a_gap_is_read_along_if_a_request_costs_more() {
        let micros = Duration::from_micros;
        let card = DeviceSpeed::of_times(micros(6_000), micros(4_800));
        assert_eq!(card.bytes_per_second, 43_690_666);
        assert_eq!(card.request, Duration::from_nanos(506_250), "600 us less those of a block");
        assert_eq!((card.gap_blocks(), card.turn_bytes()), (5, 873_813));
        assert_eq!(card.request_bytes(), 22_118);
        let ssd = DeviceSpeed::of_times(micros(200), micros(80));
        assert_eq!(ssd.gap_blocks(), 2, "requests run at the same time");
        let disk = DeviceSpeed::of_times(micros(10_000), micros(80_000));
        assert_eq!(disk.gap_blocks() as u64, GAP_BLOCKS_MAX);
        let instant = DeviceSpeed::of_times(Duration::ZERO, Duration::ZERO);
        assert_eq!(instant.gap_blocks() as u64, GAP_BLOCKS_MIN);
    }
}
