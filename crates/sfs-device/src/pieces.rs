//! Lengths of the pieces in which a long write goes to a slow device.
//!
//! A device serves requests one after the other, more or less, so that a read waits for the write before it. A write of 8
//! MiB takes a card a second. In pieces that take it about 20 ms, reads of other threads get their turn between two
//! pieces; the kernel splits such writes into requests of 512 KiB or 1 MiB anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time that one piece should take.
const PIECE_TIME: Duration = Duration::from_millis(20);

/// Length of the shortest piece in bytes. Shorter ones would cost a card its speed.
const PIECE_MIN: u64 = 512 << 10;

/// Length of the shortest write in bytes that tells the speed: of a shorter one, the device's delay is a large part.
const MEASURED_MIN: usize = 256 << 10;

/// Weight of the last write in the mean speed, as a divisor.
const WEIGHT: u64 = 4;

/// Mean speed of writing.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Number of bytes written in a second; 0 while unknown.
    bytes_per_second: AtomicU64,
}

impl Pieces {
    /// Returns the length of the next piece in bytes, at least [`PIECE_MIN`].
    pub(crate) fn len(&self) -> usize {
        let of_speed = |speed: u64| (speed / 1000).saturating_mul(PIECE_TIME.as_millis() as u64);
        let bytes = self.speed().map_or(u64::MAX, of_speed).max(PIECE_MIN);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Returns the mean speed in bytes a second; `None` while unknown.
    pub(crate) fn speed(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Ordering::Relaxed)).filter(|speed| *speed > 0)
    }

    /// Notes that a call wrote `bytes` bytes in `time`.
    pub(crate) fn note(&self, bytes: usize, time: Duration) {
        if bytes < MEASURED_MIN {
            return;
        }
        let nanos = time.as_nanos().max(1);
        let speed = u64::try_from(bytes as u128 * 1_000_000_000 / nanos).unwrap_or(u64::MAX).max(1);
        let mean = match self.bytes_per_second.load(Ordering::Relaxed) {
            0 => speed,
            mean => mean - mean / WEIGHT + speed / WEIGHT,
        };
        // Of two writes at the same time, one counts.
        self.bytes_per_second.store(mean.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_piece_takes_a_slow_device_twenty_milliseconds() {
        let pieces = Pieces::default();
        assert_eq!(pieces.len(), usize::MAX, "the speed is unknown");
        pieces.note(8 * MIB, Duration::from_millis(80));
        assert!((2 * MIB - 100_000..=2 * MIB).contains(&pieces.len()), "{}", pieces.len());
        pieces.note(4096, Duration::from_secs(1));
        assert!(pieces.len() > MIB, "a short write tells nothing");
        (0..40).for_each(|_| pieces.note(MIB, Duration::from_secs(1)));
        assert_eq!(pieces.len(), PIECE_MIN as usize);
        (0..40).for_each(|_| pieces.note(MIB, Duration::from_micros(1)));
        assert!(pieces.len() > 1 << 30);
        pieces.note(MIB, Duration::ZERO);
        pieces.note(MIB, Duration::MAX);
        assert!(pieces.len() >= PIECE_MIN as usize);
    }
}
