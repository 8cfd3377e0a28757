//! The write buffer: what users wrote and what the cleaner took out, on its way to the log.
//!
//! Owns: which blocks wait, in the order in which they came.
//! Promises: a block waits once, and no segment is opened that has the only copy of one that waits.
//! Never: holds more than its budget when a user's write returns, but by what one cleaning adds.

use sfs_core::format::History;

use super::log::MIXED_HEAD;
use super::{Remainder, Simulation, Writing};

/// Written by a user.
const DIRTY: u8 = 1;
/// The log's copy was in a segment that has been cleaned.
const COPIED_OUT: u8 = 2;
/// In the queue, and to be left out when its turn comes.
const REMOVED: u8 = 4;

/// So many-th of the buffer goes at once, where not all of it goes: the volume begins when its
/// budget is half used, and writes an eighth of it.
const WRITE_OUT_SHARE: usize = 4;

pub(super) struct Buffer {
    state: Vec<u8>,
    queue: Vec<u32>,
}

impl Buffer {
    pub(super) fn new(blocks: u32) -> Self {
        Self { state: vec![0; blocks as usize], queue: Vec::new() }
    }

    pub(super) fn is_dirty(&self, block: u32) -> bool {
        self.state[block as usize] & DIRTY != 0
    }

    /// A user writes it.
    fn write(&mut self, block: u32) {
        let state = &mut self.state[block as usize];
        if *state == 0 {
            self.queue.push(block);
        }
        *state = (*state | DIRTY) & !REMOVED;
    }

    /// The cleaner takes it out of its segment. True: it had to be read.
    pub(super) fn clean(&mut self, block: u32) -> bool {
        let state = &mut self.state[block as usize];
        if *state == 0 {
            self.queue.push(block);
        }
        let read = *state & DIRTY == 0;
        *state = (*state | COPIED_OUT) & !REMOVED;
        read
    }

    /// The cleaner has taken it out, and it waits.
    pub(super) fn is_copied_out(&self, block: u32) -> bool {
        self.state[block as usize] & COPIED_OUT != 0
    }

    pub(super) fn remove(&mut self, block: u32) {
        let state = &mut self.state[block as usize];
        if *state != 0 {
            *state = REMOVED;
        }
    }
}

/// How long the blocks of each group live: a moving mean of the logarithm, in octaves of ticks.
#[derive(Default)]
pub(super) struct GroupLives([f64; MIXED_HEAD as usize]);

impl GroupLives {
    /// Deaths that the mean reaches back.
    const DEATHS: f64 = 1024.0;

    /// A user has overwritten a block that was in `group`.
    pub(super) fn note(&mut self, group: u8, before: History, now: u32) {
        let life = f64::from(now.saturating_sub(before.modified).max(1)).log2();
        let mean = &mut self.0[usize::from(group)];
        *mean += (life - *mean) / Self::DEATHS;
    }

    fn compare(&self, a: u8, b: u8) -> std::cmp::Ordering {
        self.0[usize::from(a)].total_cmp(&self.0[usize::from(b)])
    }
}

/// Blocks of each group.
fn counts(waiting: &[(u8, u32)]) -> [usize; MIXED_HEAD as usize] {
    let mut counts = [0; MIXED_HEAD as usize];
    for (group, _) in waiting {
        counts[usize::from(*group)] += 1;
    }
    counts
}

impl Simulation {
    pub(super) fn write_buffered(&mut self, block: u32) {
        self.buffer.write(block);
        let full = self.buffer.queue.len() >= self.capacity();
        let sync = self.buffering.sync_interval.is_some_and(|n| self.clock.is_multiple_of(n));
        match self.buffering.writing {
            _ if sync => self.write_out(true),
            Writing::Heads if full => self.write_out(true),
            Writing::Largest | Writing::Coldest if full => self.write_out(false),
            _ => (),
        }
        if self.buffering.writing == Writing::Deferred {
            self.settle();
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.buffering.capacity(self.log.segment_blocks())
    }

    /// Until the buffer has room and the reserve is clean: each needs the other.
    fn settle(&mut self) {
        loop {
            if self.buffer.queue.len() >= self.capacity() {
                self.write_out(false);
            } else if self.log.clean_count() < self.log.reserve {
                self.clean();
            } else {
                return;
            }
        }
    }

    /// A segment writing: whole segments of each group, and the remainders too if it is a `sync`.
    fn write_out(&mut self, sync: bool) {
        self.begin_writing();
        let queue = std::mem::take(&mut self.buffer.queue);
        let mut groups: Vec<(u8, u32)> = Vec::with_capacity(queue.len());
        for block in queue {
            match self.buffer.state[block as usize] {
                REMOVED => self.buffer.state[block as usize] = 0,
                state => groups.push((self.group(block, state & DIRTY == 0), block)),
            }
        }
        match self.buffering.writing {
            Writing::Deferred => self.write_whole_segments(&mut groups),
            Writing::Largest | Writing::Coldest if !sync => self.write_share(&mut groups),
            _ => (),
        }
        if sync {
            self.write_remainder(&mut groups);
        }
        // What cleaning has added meanwhile comes after what waited before.
        let mut queue: Vec<u32> = groups.into_iter().map(|(_, block)| block).collect();
        queue.append(&mut self.buffer.queue);
        self.buffer.queue = queue;
    }

    /// Takes all out of `waiting`, and writes it.
    fn write_remainder(&mut self, waiting: &mut Vec<(u8, u32)>) {
        let pure = self.buffering.remainder == Remainder::Pure;
        let groups = counts(waiting).iter().filter(|count| **count > 0).count() as u64;
        self.counters.syncs += u64::from(groups > 0);
        self.counters.sync_heads += if pure { groups } else { groups.min(1) };
        for (group, block) in waiting.drain(..) {
            self.write_waiting(block, if pure { group } else { MIXED_HEAD }, group);
        }
    }

    /// Takes a share out of `waiting` and writes it: from the largest groups and there in the order of
    /// the file, as the volume does, or from those whose blocks live longest, first come first.
    fn write_share(&mut self, waiting: &mut Vec<(u8, u32)>) {
        let counts = counts(waiting);
        if self.buffering.writing == Writing::Coldest {
            waiting.sort_by(|(a, _), (b, _)| self.lives.compare(*b, *a).then(a.cmp(b)));
        } else {
            let key = |group: u8| std::cmp::Reverse(counts[usize::from(group)]);
            waiting.sort_unstable_by_key(|&(group, block)| (key(group), group, block));
        }
        let count = (self.capacity() / WRITE_OUT_SHARE).max(1).min(waiting.len());
        for (group, block) in waiting.drain(..count) {
            self.write_waiting(block, group, group);
        }
    }

    /// Takes out of `waiting` what fills segments, and writes it; if nothing does, the largest group.
    fn write_whole_segments(&mut self, waiting: &mut Vec<(u8, u32)>) {
        let segment_blocks = self.log.segment_blocks() as usize;
        let mut counts = counts(waiting);
        let largest = self.force(waiting, &mut counts);
        let mut left = counts.map(|count| count / segment_blocks * segment_blocks);
        if left.iter().all(|count| *count == 0) {
            left[usize::from(largest)] = counts[usize::from(largest)];
        }
        let mut room = (self.log.clean_count() as usize - 1) * segment_blocks;
        let mut batch: Vec<(u8, u32)> = Vec::new();
        waiting.retain(|&(group, block)| {
            let left = &mut left[usize::from(group)];
            let taken = *left > 0 && room > 0;
            if taken {
                *left -= 1;
                room -= 1;
                batch.push((group, block));
            }
            !taken
        });
        batch.sort_by_key(|(group, _)| *group);
        for (group, block) in batch {
            self.write_waiting(block, group, group);
        }
    }

    /// The safety rule of SFS: what was copied out of a segment that may be opened now
    /// is written now, with whatever group is largest.
    fn force(
        &mut self,
        waiting: &mut [(u8, u32)],
        counts: &mut [usize; MIXED_HEAD as usize],
    ) -> u8 {
        let segments = waiting.len() / self.log.segment_blocks() as usize + 1;
        let opened: Vec<u32> = self.log.next_clean(segments).collect();
        let largest = (0..).zip(&*counts).max_by_key(|(_, count)| **count).map_or(0, |(g, _)| g);
        let mut forced = Vec::new();
        for (place, (group, block)) in waiting.iter_mut().enumerate() {
            let copied_out = self.buffer.state[*block as usize] & COPIED_OUT != 0;
            if copied_out && self.log.segment_of(*block).is_some_and(|s| opened.contains(&s)) {
                counts[usize::from(*group)] -= 1;
                counts[usize::from(largest)] += 1;
                *group = largest;
                forced.push(place);
            }
        }
        self.counters.forced_blocks += forced.len() as u64;
        // To the front: of the largest group the first ones are written.
        for (front, place) in forced.into_iter().enumerate() {
            waiting.swap(front, place);
        }
        largest
    }

    fn write_waiting(&mut self, block: u32, head: u8, group: u8) {
        if self.buffering.writing != Writing::Deferred {
            self.make_room();
        }
        let state = std::mem::take(&mut self.buffer.state[block as usize]);
        if state & COPIED_OUT != 0 {
            self.log.leave(block);
        }
        if state & DIRTY != 0 {
            self.write_user_to(block, head, group);
        } else if let Some(history) = self.log.history(block) {
            self.write_cleaned_to(block, history, head, group);
        }
    }
}
