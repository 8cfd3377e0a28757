//! The path of blocks into the log: groups, histories, and the reports to the policies.
//!
//! Every block that a user or the cleaner writes goes through [`SimulatedLogWriter::write_user`] or
//! [`SimulatedLogWriter::write_moved`], which report it to the policies as a volume does. The writer never
//! cleans: its caller provides the clean segments.

use std::sync::Arc;

use sfs_core::format::{Group, Head, History};
use sfs_core::policy::{Candidate, GroupingPolicy, VictimPolicy};

use super::counters::SimulationCounters;
use super::log::{GROUP_HEADS, SegmentLog};
use super::no_room::NoRoom;
use super::oracle::WriteSchedule;
use super::space::VolumeSize;

/// The log, its policies and its clock.
pub(super) struct SimulatedLogWriter {
    grouping: Box<dyn GroupingPolicy>,
    victims: Box<dyn VictimPolicy>,
    pub(super) log: SegmentLog,
    pub(super) counters: SimulationCounters,
    /// Number of blocks that users wrote since the volume was empty.
    clock_blocks: u64,
    /// Binary logarithm of the number of blocks in a tick.
    tick_log2: u32,
    schedule: Option<Arc<WriteSchedule>>,
    lifetimes: Option<GroupLifetimes>,
}

impl SimulatedLogWriter {
    /// Returns the writer of an empty log.
    pub(super) fn new(
        space: &VolumeSize,
        grouping: Box<dyn GroupingPolicy>,
        victims: Box<dyn VictimPolicy>,
        tick_log2: u32,
    ) -> Self {
        Self {
            grouping,
            victims,
            log: SegmentLog::new(space),
            counters: SimulationCounters::default(),
            clock_blocks: 0,
            tick_log2,
            schedule: None,
            lifetimes: None,
        }
    }

    /// Replaces histories by the times of death in `schedule`, for a policy that knows the future.
    pub(super) fn set_schedule(&mut self, schedule: Option<Arc<WriteSchedule>>) {
        self.schedule = schedule;
    }

    /// Starts to measure the lifetimes of each group's blocks.
    pub(super) fn track_lifetimes(&mut self) {
        self.lifetimes = Some(GroupLifetimes::default());
    }

    /// Compares the mean lifetimes of two groups.
    pub(super) fn compare_lifetimes(&self, a: Group, b: Group) -> std::cmp::Ordering {
        self.lifetimes.as_ref().map_or(std::cmp::Ordering::Equal, |means| means.compare(a, b))
    }

    /// Returns the time in ticks.
    pub(super) fn now(&self) -> u32 {
        (self.clock_blocks >> self.tick_log2) as u32
    }

    /// Returns the number of blocks that users wrote.
    pub(super) fn clock_blocks(&self) -> u64 {
        self.clock_blocks
    }

    /// Advances the clock by a user's write.
    pub(super) fn tick(&mut self) {
        self.clock_blocks += 1;
        self.counters.user_writes += 1;
    }

    /// Returns the group of a block that is about to be written.
    pub(super) fn group(&self, block: u32, cleaning: bool) -> Group {
        self.group_of(block, self.log.history(block), self.log.group(block), cleaning)
    }

    /// Returns the group for a block that the cleaner moves out of a segment of `group`.
    pub(super) fn group_moved(&self, block: u32, history: History, group: Option<Group>) -> Group {
        self.group_of(block, Some(history), group, true)
    }

    /// Returns the group of neighbours that are about to be written; `None` if they have none of their own.
    pub(super) fn group_of_neighbours(
        &self,
        blocks: &mut dyn ExactSizeIterator<Item = u32>,
    ) -> Option<Group> {
        let count = blocks.len();
        let mut histories = blocks.map(|block| self.log.history(block));
        self.grouping.group_of_neighbours(count, &mut histories, self.now())
    }

    /// Tells the policy that users overwrite neighbours.
    pub(super) fn note_neighbours(&mut self, blocks: &mut dyn ExactSizeIterator<Item = u32>) {
        let (count, now) = (blocks.len(), self.now());
        let mut histories = blocks.map(|block| self.log.history(block));
        self.grouping.note_neighbours(count, &mut histories, now);
    }

    /// Returns the expected lifetime of a block that is about to be written, as the policy predicts it.
    pub(super) fn lifetime(&self, block: u32) -> Option<f64> {
        let (history, group) = (self.log.history(block), self.log.group(block));
        self.grouping.lifetime(&self.candidate(block, history, group, false), self.now())
    }

    fn group_of(
        &self,
        block: u32,
        history: Option<History>,
        group: Option<Group>,
        cleaning: bool,
    ) -> Group {
        self.grouping.group(&self.candidate(block, history, group, cleaning), self.now())
    }

    fn candidate(
        &self,
        block: u32,
        history: Option<History>,
        group: Option<Group>,
        cleaning: bool,
    ) -> Candidate {
        Candidate {
            ino: 1,
            block,
            history,
            group,
            cleaning,
            file_write_count: self.clock_blocks,
            file_modified: self.now().saturating_sub(1),
        }
    }

    /// Writes a user's block to `head`; `group` is the group of the block.
    pub(super) fn write_user(
        &mut self,
        block: u32,
        head: Head,
        group: Group,
    ) -> Result<(), NoRoom> {
        let now = self.now();
        let before = self.log.history(block);
        if let Some(lifetimes) = &mut self.lifetimes
            && let Some((group, before)) = self.log.group(block).zip(before)
        {
            lifetimes.note_overwrite(group, before, now);
        }
        self.log.kill(block, &mut *self.victims, now);
        let after = match &self.schedule {
            Some(schedule) => History::plain(1, schedule.death(block, now)),
            None => self.grouping.history(before, now),
        };
        self.grouping.note_write(before, Some(after), now);
        self.counters.user_blocks += 1;
        self.append(block, after, head, group)
    }

    /// Writes a block that the cleaner moves.
    pub(super) fn write_moved(
        &mut self,
        block: u32,
        history: History,
        head: Head,
        group: Group,
    ) -> Result<(), NoRoom> {
        let now = self.now();
        self.grouping.note_move(history, now);
        self.counters.moved_blocks += 1;
        self.append(block, history, head, group)
    }

    /// Removes a block that a user deletes.
    pub(super) fn delete(&mut self, block: u32) {
        let now = self.now();
        let Some(before) = self.log.history(block) else { return };
        self.log.kill(block, &mut *self.victims, now);
        self.log.forget(block);
        self.grouping.note_write(Some(before), None, now);
    }

    fn append(
        &mut self,
        block: u32,
        history: History,
        head: Head,
        group: Group,
    ) -> Result<(), NoRoom> {
        let now = self.now();
        if self.log.needs_segment(head) {
            self.begin_writing();
            self.log.open(head, group, now)?;
        }
        self.counters.group_blocks[group.index() % GROUP_HEADS] += 1;
        self.log.append(block, history, head, now);
        Ok(())
    }

    /// Tells the policies that blocks are about to be written, and closes the heads of unused
    /// groups.
    pub(super) fn begin_writing(&mut self) {
        let now = self.now();
        let (entries, segment_blocks) = (self.log.entries(), self.log.segment_blocks());
        self.grouping.begin(entries, segment_blocks, now);
        self.victims.begin(entries, segment_blocks, now);
        self.log.close_unused(|group| self.grouping.is_in_use(group), now);
    }

    /// Takes the victim with the highest score out of the Sealed segments. Returns its number and its
    /// usage entry.
    pub(super) fn take_victim(&mut self) -> Result<(u32, sfs_core::format::UsageEntry), NoRoom> {
        let now = self.now();
        let victim = self.log.best_victim(&*self.victims, now)?;
        let entry = self.log.take(victim);
        self.grouping.note_cleaning(&entry, now);
        Ok((victim, entry))
    }
}

/// Mean lifetime of each group's blocks: a moving mean of the logarithm, in octaves of ticks.
#[derive(Default)]
struct GroupLifetimes([f64; GROUP_HEADS]);

impl GroupLifetimes {
    /// Number of overwrites over which the moving mean extends.
    const OVERWRITES: f64 = 1024.0;

    /// Counts the overwrite of a block of `group`.
    fn note_overwrite(&mut self, group: Group, before: History, now: u32) {
        let octaves = f64::from(now.saturating_sub(before.modified).max(1)).log2();
        let mean = &mut self.0[group.index()];
        *mean += (octaves - *mean) / Self::OVERWRITES;
    }

    fn compare(&self, a: Group, b: Group) -> std::cmp::Ordering {
        self.0[a.index()].total_cmp(&self.0[b.index()])
    }
}
