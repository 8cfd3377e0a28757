//! A log without a device: segments, blocks, heads, a cleaner, and a write buffer.
//!
//! Owns: where every block is, and the usage of every segment.
//! Promises: tells the policies what the volume tells them, at the same occasions; deterministic.
//! Never: decides where a block goes or what is cleaned.

mod buffer;
mod cleaner;
mod counters;
mod log;
mod space;

use std::sync::Arc;

use sfs_core::format::History;
use sfs_core::policy::{Candidate, GroupingPolicy, VictimPolicy};

pub use counters::{Counters, HISTOGRAM_BINS};
pub use space::{Space, SpaceRequest};

use crate::oracle::Future;
use crate::workload::Operation;
use buffer::{Buffer, GroupLives};
use log::Log;

/// How the write buffer is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writing {
    /// Every block at once, to the open head of its group.
    Heads,
    /// Groups that fill segments, in whole segments; the rest waits (SFS).
    Deferred,
    /// The largest groups, to their heads; the others wait (the volume).
    Largest,
    /// The groups whose blocks live longest, to their heads; what will soon be overwritten waits,
    /// without end.
    Coldest,
}

impl std::fmt::Display for Writing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Heads => "heads",
            Self::Deferred => "deferred",
            Self::Largest => "largest",
            Self::Coldest => "coldest",
        })
    }
}

impl Writing {
    /// As the grouping of this name is meant to be written.
    pub fn of(grouping: &str) -> Self {
        match grouping {
            "sfs" | "sfs-log" | "sfs-equal-width" | "sfs-equal-count" => Self::Deferred,
            _ => Self::Heads,
        }
    }
}

/// Where a sync writes what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remainder {
    /// To the head of its group.
    Pure,
    /// All of it to one head, whatever its group (SFS).
    Mixed,
}

/// The write buffer.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Buffering {
    /// Its size in segments; zero: every write goes to the log at once.
    pub segments: u32,
    /// Its size in blocks instead.
    pub blocks: Option<u32>,
    /// How it is written out.
    pub writing: Writing,
    /// Where a sync writes what waits.
    pub remainder: Remainder,
    /// Users' writes from one sync to the next, if there are any.
    pub sync_interval: Option<u64>,
}

impl Buffering {
    /// None.
    pub const NONE: Self = Self {
        segments: 0,
        blocks: None,
        writing: Writing::Heads,
        remainder: Remainder::Pure,
        sync_interval: None,
    };

    /// Its size in blocks, with segments of so many.
    pub(crate) fn capacity(&self, segment_blocks: u32) -> usize {
        self.blocks
            .map_or(self.segments as usize * segment_blocks as usize, |blocks| blocks as usize)
    }
}

/// A volume in a laboratory.
pub struct Simulation {
    grouping: Box<dyn GroupingPolicy>,
    victims: Box<dyn VictimPolicy>,
    log: Log,
    buffer: Buffer,
    buffering: Buffering,
    /// Blocks that users wrote, and the length of a tick.
    clock: u64,
    tick_log2: u32,
    counters: Counters,
    future: Option<Arc<Future>>,
    lives: GroupLives,
}

impl Simulation {
    /// An empty volume. `tick_log2` is the logarithm of the blocks of a tick.
    pub fn new(
        space: &Space,
        buffering: Buffering,
        grouping: Box<dyn GroupingPolicy>,
        victims: Box<dyn VictimPolicy>,
        tick_log2: u32,
    ) -> Self {
        Self {
            grouping,
            victims,
            log: Log::new(space),
            buffer: Buffer::new(space.blocks),
            buffering,
            clock: 0,
            tick_log2,
            counters: Counters::default(),
            future: None,
            lives: GroupLives::default(),
        }
    }

    /// Histories say when blocks will die, for a policy that knows the future.
    pub fn know(&mut self, future: Option<Arc<Future>>) {
        self.future = future;
    }

    /// The time in ticks.
    fn now(&self) -> u32 {
        (self.clock >> self.tick_log2) as u32
    }

    /// What has happened since [`Simulation::start_counting`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The warm-up is over.
    pub fn start_counting(&mut self) {
        self.counters = Counters::default();
    }

    /// Adds the segments as they are now to the histogram of the volume.
    pub fn sample(&mut self) {
        self.log.sample(&mut self.counters);
    }

    /// A user does this.
    pub fn operate(&mut self, operation: Operation) {
        let block = operation.block();
        if operation.is_delete() {
            self.delete(block);
            return;
        }
        self.clock += 1;
        self.counters.user_writes += 1;
        if self.capacity() == 0 {
            self.write_user(block);
            return;
        }
        self.write_buffered(block);
    }

    fn delete(&mut self, block: u32) {
        let now = self.now();
        if self.buffer.is_copied_out(block) {
            self.log.leave(block);
        }
        self.buffer.remove(block);
        let Some(before) = self.log.history(block) else { return };
        self.log.kill(block, &mut *self.victims, now);
        self.log.forget(block);
        self.grouping.note_write(Some(before), None, now);
    }

    fn candidate(
        &self,
        block: u32,
        history: Option<History>,
        group: Option<u8>,
        cleaning: bool,
    ) -> Candidate {
        Candidate {
            ino: 1,
            block,
            history,
            group,
            cleaning,
            file_write_count: self.clock,
            file_modified: self.now().saturating_sub(1),
        }
    }

    /// The group of a block that is about to be written.
    fn group(&self, block: u32, cleaning: bool) -> u8 {
        let (history, group) = (self.log.history(block), self.log.group(block));
        self.grouping.group(&self.candidate(block, history, group, cleaning), self.now())
    }

    /// A user's block goes to the log.
    fn write_user(&mut self, block: u32) {
        let group = self.group(block, false);
        self.write_user_to(block, group, group);
    }

    fn write_user_to(&mut self, block: u32, head: u8, group: u8) {
        let now = self.now();
        if self.capacity() == 0 {
            self.make_room();
        }
        let before = self.log.history(block);
        if self.buffering.writing == Writing::Coldest
            && let Some((group, before)) = self.log.group(block).zip(before)
        {
            self.lives.note(group, before, now);
        }
        self.log.kill(block, &mut *self.victims, now);
        let after = match &self.future {
            Some(future) => History::plain(1, future.death(block, now)),
            None => self.grouping.history(before, now),
        };
        self.grouping.note_write(before, Some(after), now);
        self.counters.user_blocks += 1;
        self.append(block, after, head, group);
    }

    /// The cleaner's block goes to the log.
    fn write_cleaned_to(&mut self, block: u32, history: History, head: u8, group: u8) {
        let now = self.now();
        self.grouping.note_move(history, now);
        self.counters.moved_blocks += 1;
        self.append(block, history, head, group);
    }

    fn append(&mut self, block: u32, history: History, head: u8, group: u8) {
        let now = self.now();
        if self.log.needs_segment(head) {
            self.log.open(head, group, now);
            self.begin_writing();
        }
        self.counters.group_blocks[usize::from(group % 8)] += 1;
        self.log.append(block, history, head, now);
    }

    /// A segment writing begins.
    fn begin_writing(&mut self) {
        let now = self.now();
        let (entries, segment_blocks) = (self.log.entries(), self.log.segment_blocks());
        self.grouping.begin(entries, segment_blocks, now);
        self.victims.begin(entries, segment_blocks, now);
    }
}
