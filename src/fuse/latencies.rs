//! Latencies of requests: a histogram for each kind of operation.
//!
//! The latency of a request is the time for which the daemon works on it: from the decoded request to the reply that is
//! ready to be sent. The wait of a parked request does not count. A request adds to two counters; no
//! lock is taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sfs_fuse::FuseOperation;

/// Log2 of the nanoseconds in the unit of the histograms.
const UNIT_SHIFT: u32 = 6;

/// Log2 of the number of parts of an octave. A part is at most an eighth longer than the part before.
const PARTS_SHIFT: u32 = 3;

/// Number of parts of an octave.
const PARTS: usize = 1 << PARTS_SHIFT;

/// Number of buckets; the last one has all latencies of 129 seconds or more.
const BUCKETS: usize = 29 * PARTS;

/// Log2 of the end of the first octave that is reported, in nanoseconds.
const FIRST_OCTAVE_SHIFT: u32 = 10;

/// Buckets in the first octave that is reported.
const FIRST_OCTAVE_BUCKETS: usize =
    PARTS + ((FIRST_OCTAVE_SHIFT - UNIT_SHIFT - PARTS_SHIFT) as usize) * PARTS;

/// Defines [`OperationKind`] and its names.
macro_rules! kinds {
    ($($kind:ident $name:literal)*) => {
        /// Kind of an operation. Operations that do the same for a program are one kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum OperationKind { $($kind),* }

        /// Names of the kinds, in their order.
        const NAMES: &[&str] = &[$($name),*];
    };
}

kinds! {
    Lookup "lookup"
    Forget "forget"
    Getattr "getattr"
    Setattr "setattr"
    Readlink "readlink"
    Symlink "symlink"
    Mknod "mknod"
    Mkdir "mkdir"
    Unlink "unlink"
    Rmdir "rmdir"
    Rename "rename"
    Link "link"
    Create "create"
    Open "open"
    Release "release"
    Read "read"
    Write "write"
    Fsync "fsync"
    Syncfs "syncfs"
    Readdir "readdir"
    Statfs "statfs"
    Setxattr "setxattr"
    Getxattr "getxattr"
    Listxattr "listxattr"
    Removexattr "removexattr"
    Ioctl "ioctl"
    Seek "lseek"
    Fallocate "fallocate"
    Copy "copy_file_range"
    Other "other"
}

impl OperationKind {
    /// Returns the kind of `operation`.
    fn of(operation: &FuseOperation<'_>) -> Self {
        match operation {
            FuseOperation::Lookup { .. } => Self::Lookup,
            FuseOperation::Forget { .. } | FuseOperation::BatchForget(_) => Self::Forget,
            FuseOperation::Getattr { .. } | FuseOperation::Statx { .. } => Self::Getattr,
            FuseOperation::Setattr(_) => Self::Setattr,
            FuseOperation::Readlink => Self::Readlink,
            FuseOperation::Symlink { .. } => Self::Symlink,
            FuseOperation::Mknod { .. } => Self::Mknod,
            FuseOperation::Mkdir { .. } => Self::Mkdir,
            FuseOperation::Unlink { .. } => Self::Unlink,
            FuseOperation::Rmdir { .. } => Self::Rmdir,
            FuseOperation::Rename { .. } => Self::Rename,
            FuseOperation::Link { .. } => Self::Link,
            FuseOperation::Create(_) | FuseOperation::Tmpfile(_) => Self::Create,
            FuseOperation::Open { .. } => Self::Open,
            FuseOperation::Release(_) | FuseOperation::Releasedir(_) => Self::Release,
            FuseOperation::Read(_) => Self::Read,
            FuseOperation::Write(_) => Self::Write,
            FuseOperation::Fsync { .. } | FuseOperation::Fsyncdir { .. } => Self::Fsync,
            FuseOperation::Syncfs => Self::Syncfs,
            FuseOperation::Readdir(_) | FuseOperation::Readdirplus(_) => Self::Readdir,
            FuseOperation::Statfs => Self::Statfs,
            FuseOperation::Setxattr { .. } => Self::Setxattr,
            FuseOperation::Getxattr { .. } => Self::Getxattr,
            FuseOperation::Listxattr { .. } => Self::Listxattr,
            FuseOperation::Removexattr { .. } => Self::Removexattr,
            FuseOperation::Ioctl(_) => Self::Ioctl,
            FuseOperation::Lseek { .. } => Self::Seek,
            FuseOperation::Fallocate { .. } => Self::Fallocate,
            FuseOperation::CopyFileRange(_) => Self::Copy,
            FuseOperation::Destroy
            | FuseOperation::Bmap { .. }
            | FuseOperation::Opendir { .. }
            | FuseOperation::Flush { .. }
            | FuseOperation::Access { .. }
            | FuseOperation::Getlk(_)
            | FuseOperation::Setlk(_)
            | FuseOperation::Setlkw(_)
            | FuseOperation::Interrupt { .. }
            | FuseOperation::Poll { .. } => Self::Other,
        }
    }
}

/// Histograms of all kinds of operations.
pub(crate) struct Latencies(Box<[Histogram]>);

impl Default for Latencies {
    fn default() -> Self {
        Self(NAMES.iter().map(|_| Histogram::default()).collect())
    }
}

impl Latencies {
    /// Adds a request for `operation` that took `time`.
    pub(super) fn note(&self, operation: &FuseOperation<'_>, time: Duration) {
        self.note_kind(OperationKind::of(operation), time);
    }

    /// Adds a request of a kind of operations.
    pub(super) fn note_kind(&self, kind: OperationKind, time: Duration) {
        self.0[kind as usize].add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the latencies of the kinds of which there were requests, each with its name.
    pub(crate) fn snapshot(&self) -> impl Iterator<Item = (&'static str, LatencySnapshot)> {
        let all = NAMES.iter().zip(&self.0).map(|(name, histogram)| (*name, histogram.snapshot()));
        all.filter(|(_, latencies)| latencies.count() > 0)
    }
}

/// Latencies of one kind of operations.
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { buckets: std::array::from_fn(|_| zero()), total_ns: zero(), longest_ns: zero() }
    }
}

impl Histogram {
    fn add(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        if ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    fn snapshot(&self) -> LatencySnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LatencySnapshot {
            buckets: self.buckets.iter().map(get).collect(),
            total_ns: get(&self.total_ns),
            longest_ns: get(&self.longest_ns),
        }
    }
}

/// Returns the bucket of a latency.
fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_SHIFT;
    if units < PARTS as u64 {
        return units as usize;
    }
    let octave = units.ilog2();
    let part = (units >> (octave - PARTS_SHIFT)) as usize - PARTS;
    ((octave - PARTS_SHIFT + 1) as usize * PARTS + part).min(BUCKETS - 1)
}

/// Returns the end of a bucket in nanoseconds: all latencies in it are shorter, but for the last bucket.
fn end_ns(bucket: usize) -> u64 {
    let (octave, part) = (bucket / PARTS, bucket % PARTS);
    let units = if octave == 0 { part + 1 } else { (PARTS + part + 1) << (octave - 1) };
    (units as u64) << UNIT_SHIFT
}

/// Latencies of one kind of operations at one time.
#[derive(Clone, Debug)]
pub(crate) struct LatencySnapshot {
    buckets: Vec<u64>,
    /// Sum of the latencies in nanoseconds.
    pub(crate) total_ns: u64,
    /// Longest latency in nanoseconds.
    pub(crate) longest_ns: u64,
}

impl LatencySnapshot {
    /// Returns the number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the nanoseconds that a `share` (0..=1) of the latencies does not exceed: the end of a bucket, which is at
    /// most an eighth too high, and at most the longest latency.
    pub(crate) fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let at = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        match at {
            None => 0,
            Some(last) if last == BUCKETS - 1 => self.longest_ns,
            Some(at) => end_ns(at).min(self.longest_ns),
        }
    }

    /// Returns the numbers of requests by octave, up to the last octave that has any: first those of less than
    /// 2^10 nanoseconds, then those of 2^10 to 2^11, and so on.
    pub(crate) fn octaves(&self) -> Vec<u64> {
        let (first, rest) = self.buckets.split_at(FIRST_OCTAVE_BUCKETS);
        let all = std::iter::once(first).chain(rest.chunks(PARTS));
        let mut octaves: Vec<u64> = all.map(|buckets| buckets.iter().sum()).collect();
        octaves.truncate(octaves.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        octaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_lies_below_the_end_of_its_bucket_by_at_most_an_eighth() {
        let mut last = 0;
        for ns in (0..37)
            .flat_map(|shift| (0..97).map(move |step| (1_u64 << shift) + step * (1 << shift) / 97))
        {
            let at = bucket(ns);
            assert!(ns < end_ns(at), "{ns}");
            let begin = if at == 0 { 0 } else { end_ns(at - 1) };
            assert!(ns >= begin, "{ns}");
            assert!(end_ns(at) - begin <= (begin / 8).max(1 << UNIT_SHIFT), "{ns}");
            last = last.max(at);
        }
        assert_eq!(last, BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_and_octaves_count_every_request() {
        let latencies = Latencies::default();
        for _ in 0..98 {
            latencies.note_kind(OperationKind::Read, Duration::from_nanos(1_000));
        }
        latencies.note_kind(OperationKind::Read, Duration::from_nanos(1_024));
        latencies.note_kind(OperationKind::Read, Duration::from_micros(5_000));
        latencies.note(&FuseOperation::Syncfs, Duration::from_secs(100));
        let all: Vec<_> = latencies.snapshot().collect();
        let [("read", read), ("syncfs", syncfs)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((read.count(), read.total_ns), (100, 98_000 + 1_024 + 5_000_000));
        assert_eq!(read.quantile_ns(0.5), 1_024);
        assert_eq!(read.quantile_ns(0.99), 1_152);
        assert_eq!(read.quantile_ns(1.0), 5_000_000);
        let octaves = read.octaves();
        // 5 ms lie between 2^22 and 2^23 nanoseconds.
        assert_eq!((octaves[0], octaves[1], octaves.len(), octaves[13]), (98, 1, 14, 1));
        assert_eq!(octaves.iter().sum::<u64>(), 100);
        assert_eq!(syncfs.quantile_ns(0.5), 100_000_000_000);
    }

    #[test]
    fn every_kind_has_its_name() {
        assert_eq!(NAMES.len(), OperationKind::Other as usize + 1);
        assert_eq!(NAMES[OperationKind::Fallocate as usize], "fallocate");
    }

    /// Prints the cost of a latency for `cargo test -- --ignored --nocapture cost_of`; run it with `perf stat -e
    /// instructions:u` for the number of instructions.
    #[test]
    #[ignore = "prints a measurement"]
    fn cost_of_a_latency() {
        const COUNT: u32 = 20_000_000;
        let latencies = Latencies::default();
        let begun = std::time::Instant::now();
        for _ in 0..COUNT {
            let request = std::time::Instant::now();
            latencies.note(std::hint::black_box(&FuseOperation::Statfs), request.elapsed());
        }
        println!("{:.1} ns a request", begun.elapsed().as_nanos() as f64 / f64::from(COUNT));
    }
}
