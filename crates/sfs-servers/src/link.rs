//! A network of a given latency and bandwidth.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A link that all requests of a store share: each request takes a latency, and bytes go one after the other.
#[derive(Debug)]
pub struct Link {
    latency: Duration,
    bytes_per_second: Option<u64>,
    /// When the last byte so far has passed.
    is_free_at: Mutex<Instant>,
}

impl Link {
    /// Returns a link.
    pub fn new(latency: Duration, bytes_per_second: u64) -> Self {
        let bytes_per_second = Some(bytes_per_second);
        Self { latency, bytes_per_second, is_free_at: Mutex::new(Instant::now()) }
    }

    /// Returns a link that takes no time.
    pub fn instant() -> Self {
        let is_free_at = Mutex::new(Instant::now());
        Self { latency: Duration::ZERO, bytes_per_second: None, is_free_at }
    }

    /// Returns when a request that has begun at `begin` is over, whose request and reply have `bytes` together.
    fn end(&self, begin: Instant, bytes: u64) -> Instant {
        let Some(rate) = self.bytes_per_second.filter(|_| bytes > 0) else {
            return begin + self.latency;
        };
        let mut is_free_at = self.is_free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let start = begin.max(*is_free_at);
        *is_free_at = start + Duration::from_nanos(bytes * 1_000_000_000 / rate.max(1));
        *is_free_at + self.latency
    }

    /// Waits until a request of these bytes, which begins now, has passed, and its reply would have without its own bytes.
    pub(crate) fn pass_request(&self, bytes: usize) {
        let now = Instant::now();
        thread::sleep(self.end(now, bytes as u64).saturating_duration_since(now));
    }

    /// Waits until the bytes of a reply have passed.
    pub(crate) fn pass_reply(&self, bytes: usize) {
        if bytes > 0 {
            let now = Instant::now();
            let end = self.end(now, bytes as u64) - self.latency;
            thread::sleep(end.saturating_duration_since(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_overlap_and_bytes_do_not() {
        let link = Link::new(Duration::from_millis(30), 100_000_000);
        let begin = Instant::now();
        let ends = [0, 1, 2].map(|_| link.end(begin, 10_000_000) - begin);
        let ms = ends.map(|end| end.as_millis());
        assert_eq!(ms, [130, 230, 330]);
        let later = begin + Duration::from_secs(1);
        assert_eq!((link.end(later, 0) - later).as_millis(), 30);
        assert_eq!((link.end(begin, 0) - begin).as_millis(), 30, "it has no byte that waits");
        assert_eq!(Link::instant().end(begin, 1 << 30), begin);
    }
}
