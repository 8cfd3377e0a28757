//! CPU affinity of a ring's thread: the processor whose requests it serves, or every processor.
//!
//! A process that waits for a reply shares a processor with the thread that sends the reply, so
//! that no other processor must be woken. Read-ahead and write-back are better served on another
//! processor, beside the process that causes them. The thread counts both kinds of requests and
//! moves when one kind outweighs the other. An error of the system is ignored.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::protocol::fuse_operation::{FuseOperation, ReadArgs, WriteArgs};

/// Minimum length of a READ that is likely to be read-ahead, in bytes.
const AHEAD_MIN: usize = 32 << 10;

/// Weight of a request that a process waits for. A small WRITE from the cache may come with several
/// requests for names.
const AWAITED: usize = 2;

/// Number of bytes of a stream that have weight 1; each request of a stream has one unit more.
const STREAMED_LEN: usize = 32 << 10;

/// Weight of an FSYNC as bytes of a stream. A process waits for the FSYNC, but its server waits for
/// the device, whose interrupt may arrive on another processor.
const SYNC_LEN: usize = 64 << 10;

/// Weight by which one kind must exceed the other before the thread moves: 1 MiB of a stream.
const LEAN_MAX: usize = 32;

/// CPU affinity of one thread.
#[derive(Debug)]
pub(crate) struct CpuAffinity {
    own: CpuSet,
    all: CpuSet,
    is_pinned: bool,
    /// Balance: 0 after only streams, [`LEAN_MAX`] after only requests that a process waits for.
    lean: usize,
}

impl CpuAffinity {
    /// Returns the affinity of the calling thread, which serves requests of `processor`; `None` if
    /// the thread may not run there.
    pub(crate) fn of(processor: u16) -> Option<Self> {
        let all = sched_getaffinity(None).ok()?;
        let processor = usize::from(processor);
        if processor >= CpuSet::MAX_CPU || !all.is_set(processor) {
            return None;
        }
        let mut own = CpuSet::new();
        own.set(processor);
        Some(Self { own, all, is_pinned: false, lean: 0 })
    }

    /// Counts `operation` and moves the calling thread if needed.
    pub(crate) fn note(&mut self, operation: &FuseOperation<'_>) {
        self.lean = match streamed(operation) {
            Some(len) => self.lean.saturating_sub(1 + len / STREAMED_LEN),
            None => (self.lean + AWAITED).min(LEAN_MAX),
        };
        match (self.is_pinned, self.lean) {
            (false, LEAN_MAX) => self.pin(true),
            (true, 0) => self.pin(false),
            _ => {}
        }
    }

    fn pin(&mut self, to_own: bool) {
        // The processor may be offline by now: the system then chooses another.
        let _ = sched_setaffinity(None, if to_own { &self.own } else { &self.all });
        self.is_pinned = to_own;
    }
}

/// Returns the bytes of a request for which probably no process waits; `None` for another request.
fn streamed(operation: &FuseOperation<'_>) -> Option<usize> {
    match operation {
        FuseOperation::Read(ReadArgs { size, .. }) => {
            Some(*size as usize).filter(|len| *len >= AHEAD_MIN)
        }
        FuseOperation::Write(WriteArgs { data, from_cache: true, .. }) => Some(data.len()),
        FuseOperation::Fsync { .. } | FuseOperation::Fsyncdir { .. } | FuseOperation::Syncfs => {
            Some(SYNC_LEN)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: FuseOperation<'_> = FuseOperation::Lookup { name: b"x" };

    fn write(data: &[u8], from_cache: bool) -> FuseOperation<'_> {
        let (handle, offset, open_flags) = (0, 0, 0);
        FuseOperation::Write(WriteArgs {
            handle,
            offset,
            data,
            open_flags,
            from_cache,
            kill_privileges: false,
        })
    }

    fn processors() -> Vec<usize> {
        let set = sched_getaffinity(None).expect("the affinity of this thread");
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    #[test]
    fn a_thread_stays_for_awaited_requests_and_leaves_for_streams() {
        let all = processors();
        let last = *all.last().expect("a processor");
        let mut affinity = CpuAffinity::of(last as u16).expect("the processor is allowed");
        let mut serve = |operation: &FuseOperation<'_>, times: usize| {
            (0..times).for_each(|_| affinity.note(operation));
            processors()
        };
        let (small, large) = ([0; 4096], vec![0; 1 << 20]);
        assert_eq!(serve(&write(&small, true), 100), all);
        assert_eq!(serve(&LOOKUP, 100), [last]);
        // This mix occurs when small files are made.
        for _ in 0..100 {
            assert_eq!(serve(&write(&small, true), 1), [last]);
            assert_eq!(serve(&LOOKUP, 1), [last]);
        }
        assert_eq!(serve(&write(&small, true), 100), all);
        let sync = FuseOperation::Fsync { handle: 0, data_only: false };
        for _ in 0..100 {
            assert_eq!(serve(&write(&small, false), 1), all);
            assert_eq!(serve(&sync, 1), all);
        }
        assert_eq!(serve(&LOOKUP, 5), all, "a few requests are no reason to move");
        assert_eq!(serve(&LOOKUP, 100), [last]);
        assert_eq!(serve(&write(&large, true), 1), all);
    }

    #[test]
    fn a_processor_that_is_not_allowed_has_no_affinity() {
        assert!(CpuAffinity::of(u16::MAX).is_none());
    }
}
