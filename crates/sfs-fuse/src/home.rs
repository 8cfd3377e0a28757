//! Where the thread of a ring runs.
//!
//! Owns: the choice between the processor whose requests it serves, its home, and all that it may use.
//! Promises: who waits for an answer and who gives it take turns on one processor, which nobody has to
//! wake; what is read ahead and written back is served beside the one for whom it is.
//! Never: fails a request because the system does not let it choose.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::operation::{Operation, Read, Write};

/// A READ of so many bytes is likely to be read ahead.
const AHEAD_MIN: usize = 32 << 10;

/// What requests weigh: those that somebody waits for, and so many bytes of others. With each small
/// WRITE from the cache there may come a few names.
const AWAITED: usize = 2;
const STREAMED_LEN: usize = 32 << 10;

/// An FSYNC is awaited, but its server waits for the device, and is woken from elsewhere: it weighs as
/// so much of a stream.
const SYNC_LEN: usize = 64 << 10;

/// So far one kind has to outweigh the other before the thread moves: 1 MiB of a stream does.
const LEAN_MAX: usize = 32;

/// The home of a thread.
#[derive(Debug)]
pub(crate) struct Home {
    home: CpuSet,
    everywhere: CpuSet,
    is_at_home: bool,
    /// 0 where only streams were served lately, [`LEAN_MAX`] where only what somebody waited for.
    lean: usize,
}

impl Home {
    /// That of the calling thread, which serves `processor`; `None` if it may not run there.
    pub(crate) fn of(processor: u16) -> Option<Self> {
        let everywhere = sched_getaffinity(None).ok()?;
        let processor = usize::from(processor);
        if processor >= CpuSet::MAX_CPU || !everywhere.is_set(processor) {
            return None;
        }
        let mut home = CpuSet::new();
        home.set(processor);
        Some(Self { home, everywhere, is_at_home: false, lean: 0 })
    }

    /// The calling thread, whose home this is, serves `operation`.
    pub(crate) fn note(&mut self, operation: &Operation<'_>) {
        self.lean = match streamed(operation) {
            Some(len) => self.lean.saturating_sub(1 + len / STREAMED_LEN),
            None => (self.lean + AWAITED).min(LEAN_MAX),
        };
        match (self.is_at_home, self.lean) {
            (false, LEAN_MAX) => self.go(true),
            (true, 0) => self.go(false),
            _ => {}
        }
    }

    fn go(&mut self, home: bool) {
        // A processor may have been taken away: it is served from where the system says.
        let _ = sched_setaffinity(None, if home { &self.home } else { &self.everywhere });
        self.is_at_home = home;
    }
}

/// The bytes of a request that is better served elsewhere: nobody is likely to wait for it alone.
fn streamed(operation: &Operation<'_>) -> Option<usize> {
    match operation {
        Operation::Read(Read { size, .. }) => Some(*size as usize).filter(|len| *len >= AHEAD_MIN),
        Operation::Write(Write { data, from_cache: true, .. }) => Some(data.len()),
        Operation::Fsync { .. } | Operation::Fsyncdir { .. } | Operation::Syncfs => Some(SYNC_LEN),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: Operation<'_> = Operation::Lookup { name: b"x" };

    fn write(data: &[u8], from_cache: bool) -> Operation<'_> {
        let (handle, offset, open_flags) = (0, 0, 0);
        Operation::Write(Write {
            handle,
            offset,
            data,
            open_flags,
            from_cache,
            kill_privileges: false,
        })
    }

    fn processors() -> Vec<usize> {
        let set = sched_getaffinity(None).expect("our own");
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    #[test]
    fn a_thread_is_at_home_for_those_who_wait_and_leaves_for_streams() {
        let all = processors();
        let last = *all.last().expect("it runs somewhere");
        let mut home = Home::of(last as u16).expect("it may run there");
        let mut serve = |operation: &Operation<'_>, times: usize| {
            (0..times).for_each(|_| home.note(operation));
            processors()
        };
        let (small, large) = ([0; 4096], vec![0; 1 << 20]);
        assert_eq!(serve(&write(&small, true), 100), all);
        assert_eq!(serve(&LOOKUP, 100), [last]);
        // As when small files are made.
        for _ in 0..100 {
            assert_eq!(serve(&write(&small, true), 1), [last]);
            assert_eq!(serve(&LOOKUP, 1), [last]);
        }
        assert_eq!(serve(&write(&small, true), 100), all);
        let sync = Operation::Fsync { handle: 0, data_only: false };
        for _ in 0..100 {
            assert_eq!(serve(&write(&small, false), 1), all);
            assert_eq!(serve(&sync, 1), all);
        }
        assert_eq!(serve(&LOOKUP, 5), all, "a few are no reason to move");
        assert_eq!(serve(&LOOKUP, 100), [last]);
        assert_eq!(serve(&write(&large, true), 1), all);
    }

    #[test]
    fn nobody_is_at_home_where_he_may_not_run() {
        assert!(Home::of(u16::MAX).is_none());
    }
}
