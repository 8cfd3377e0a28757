//! Reading ahead: who reads in order gets the regions that follow before it asks for them.
//!
//! A request takes as long as several MiB do, so regions have to be under way while those before are used. What is read ahead grows with what was
//! read in order. Threads of the caller do it; without one, as in the simulator, nothing is read ahead.
//!
//! Reads of the cleaner, of commits and of checks do not count: what lies behind a segment that is cleaned is of other files. A region that is read
//! ahead is busy for as long as a whole object takes, and whoever needs it waits; so a mount whose reads may fail reads nothing ahead. The store is asked
//! once for it: what it refuses is left to those who need it.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::{Condvar, Mutex};

use super::demand::is_request;
use super::shape::{PAGE_BLOCKS, Shape};
use super::{Failure, ObjectDevice};
use crate::store::ObjectStore;

/// Number of readers that are told apart.
const STREAMS: usize = 16;
/// Blocks by which a read in order may come early or late: those of a file have others between them, and requests overtake each other.
const SLACK: u64 = 256;
/// Blocks that were read in order when reading ahead begins: 512 KiB.
const BEGIN: u64 = 128;
/// Blocks that are read ahead, as a multiple of those that were read in order, and at most: 32 MiB.
const FACTOR: u64 = 4;
const AHEAD_MAX: u64 = 8 << 10;
/// Part of the local cache that is read ahead at most, as a divisor.
const CACHE_DIVISOR: u64 = 4;
/// Regions that wait for a thread at most; those that are needed last are not read ahead.
const WAITING_MAX: usize = 64;

/// Reads in order, and regions to be read.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    wanted: Mutex<Wanted>,
    /// Notified when there is a region more, and at the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    /// `true` if a thread reads ahead.
    has_reader: bool,
    /// The one that has read last comes last.
    streams: VecDeque<Reads>,
    regions: VecDeque<u64>,
}

/// Reads in order.
#[derive(Clone, Debug)]
struct Reads {
    /// End of the furthest read.
    next: u64,
    /// Blocks that were read, without the first read.
    blocks: u64,
    /// Regions up to this one were asked for.
    asked: u64,
}

impl Reads {
    fn continues(&self, read: &Range<u64>) -> bool {
        read.start <= self.next + SLACK && read.end + SLACK >= self.next
    }

    /// Notes a read. Returns the regions that are to be read now.
    fn note(&mut self, read: &Range<u64>, shape: Shape, most: u64) -> Range<u64> {
        if read.end > self.next {
            self.blocks += (read.end - self.next).min(read.end - read.start);
            self.next = read.end;
        }
        let count = (self.blocks * FACTOR).min(AHEAD_MAX).min(most);
        if self.blocks < BEGIN || self.next >= shape.volume_blocks {
            return 0..0;
        }
        let ahead = shape.regions_of(self.next, count.min(shape.volume_blocks - self.next));
        let new = ahead.start.max(self.asked)..ahead.end;
        self.asked = self.asked.max(ahead.end);
        new
    }
}

impl Ahead {
    /// Notes a read of blocks, for which, and for all other reads in order, at most `most` that follow are read ahead.
    pub(super) fn note(&self, read: &Range<u64>, shape: Shape, most: u64) {
        let mut wanted = self.wanted.lock();
        if !wanted.has_reader {
            return;
        }
        let in_order = wanted.streams.iter().filter(|reads| reads.blocks >= BEGIN).count();
        let most = most / in_order.max(1) as u64;
        let found = wanted.streams.iter().position(|reads| reads.continues(read));
        let found = found.and_then(|at| wanted.streams.remove(at));
        // One read alone is in no order.
        let mut reads = found.unwrap_or(Reads { next: read.end, blocks: 0, asked: 0 });
        let regions = reads.note(read, shape, most);
        wanted.streams.push_back(reads);
        if wanted.streams.len() > STREAMS {
            wanted.streams.pop_front();
        }
        if !regions.is_empty() {
            wanted.regions.extend(regions);
            wanted.regions.truncate(WAITING_MAX);
            self.changed.notify_all();
        }
    }

    /// Leaves regions that wait for a thread to those who need them.
    fn give_up(&self) {
        self.wanted.lock().regions.clear();
    }

    /// Waits for a region that is to be read; `None` at the end.
    fn next(&self) -> Option<u64> {
        let mut wanted = self.wanted.lock();
        while wanted.has_reader && wanted.regions.is_empty() {
            self.changed.wait(&mut wanted);
        }
        if wanted.has_reader { wanted.regions.pop_front() } else { None }
    }
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Begins to note reads for threads that call [`ObjectDevice::read_ahead`] again and again.
    pub fn begin_ahead(&self) {
        self.ahead.wanted.lock().has_reader = true;
    }

    /// Ends reading ahead. Regions that are being read are not waited for.
    pub fn end_ahead(&self) {
        self.ahead.wanted.lock().has_reader = false;
        self.ahead.changed.notify_all();
    }

    /// Waits for a region that somebody will perhaps read soon, and reads it from the store. Returns `false` once that is over.
    pub fn read_ahead(&self) -> bool {
        let Some(region) = self.ahead.next() else { return false };
        let blocks = self.local.shape.blocks(region);
        // What is not in the store is quickly found where it is read, and whoever needs the region meets the error. A cache that is full of
        // what is not in the store would lose what others have just read.
        let is_stored = self.state.lock().map.get(region).is_some();
        let pages = (blocks.end - blocks.start).div_ceil(PAGE_BLOCKS);
        if is_stored && matches!(self.evict(pages), Ok(true)) && self.fill_ahead(region).is_err() {
            self.ahead.give_up();
        }
        true
    }

    /// Reads what a region lacks from the store, unless another thread does.
    fn fill_ahead(&self, region: u64) -> Result<(), Failure> {
        let shape = self.local.shape;
        let missing = {
            let mut state = self.state.lock();
            let missing = state.missing(shape, &shape.blocks(region));
            if state.is_final || missing.is_empty() || !state.busy.insert(region) {
                return Ok(());
            }
            missing
        };
        let result = self.fetch(&missing, |parts| Ok(self.store.get_parts_once(parts)?));
        if result.is_ok() {
            self.state.lock().used.insert(region as usize);
        }
        self.end_busy(std::iter::once(region));
        result
    }

    /// Notes a read for those who read ahead.
    pub(super) fn note_read(&self, blocks: &Range<u64>) {
        if is_request() {
            self.ahead.note(blocks, self.local.shape, self.limits.cache_blocks / CACHE_DIVISOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { volume_blocks: 40 << 10, region_blocks: 1 << 10 };

    #[test]
    fn regions_follow_reads_in_order_and_no_others() {
        let ahead = Ahead::default();
        ahead.wanted.lock().has_reader = true;
        let read = |blocks: Range<u64>| -> Vec<u64> {
            ahead.note(&blocks, SHAPE, 4 << 10);
            ahead.wanted.lock().regions.drain(..).collect()
        };
        let none = Vec::new();
        // Far from each other.
        (0..20).for_each(|no| assert_eq!(read(5000 + no * 1000..5512 + no * 1000), none));
        assert_eq!(read(0..64), none);
        assert_eq!(read(64..128), none);
        // One overtakes another.
        assert_eq!(read(192..257), [0], "four times as much is in the same region");
        assert_eq!(read(128..192), none);
        assert_eq!(read(257..1024), [1, 2, 3, 4]);
        assert_eq!(read(1024..1025), none);
        assert_eq!(read(1025..1200), [5], "no more than allowed");
        let end = SHAPE.volume_blocks;
        assert_eq!(read(end - 512..end - 256), none);
        assert_eq!(read(end - 256..end), none);
    }
}
