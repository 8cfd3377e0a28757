//! Pacing: when cleaning is due, and who does it (Rajimwale et al., section 3.6).
//!
//! Owns: the watermarks, and what writers owe.
//! Promises: below the low watermark the background cleans while no request is under way; below the
//! critical one it does not yield, and writers clean in proportion to what they write, so that they
//! slow down smoothly.
//! Never: cleans itself (see `cleaner`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Volume;
use super::cleaner::Step;
use super::space::unless_full;
use crate::log::{Batch, Log};
use crate::meta::Meta;
use crate::request::Work;
use crate::{Error, Result};

/// Low watermark: one in so many segments, Clean or waiting for a checkpoint to be.
const LOW_SHARE: usize = 20;

/// Critical watermark, likewise.
const CRITICAL_SHARE: usize = 50;

/// So many segments are a checkpoint's worth for one who waits.
const GAIN_SEGMENTS: usize = 4;

/// A checkpoint lets go segments for so many times the nodes that it writes, if there is room.
const METADATA_SHARE: usize = 12;

/// Of the segments that are not in use, one in so many may wait for that.
const SPARE_SHARE: usize = 4;

/// Rounds in a row without gain after which cleaning, or a commit that has no room, is given up.
const VAIN_ROUNDS_MAX: u32 = 6;

/// Who yields looks again after this time.
const YIELD: Duration = Duration::from_millis(5);

/// Blocks that a writer owes before it cleans for them.
const DEBT_BLOCKS: u64 = 64;

/// How urgent cleaning is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Enough segments are Clean, or soon will be.
    None,
    /// Below the low watermark.
    Background,
    /// Below the critical watermark.
    Critical,
}

/// Watches whether cleaning gains anything. It is reckoned over several rounds, for one may gain
/// what the checkpoint after it takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vain {
    /// Most room so far.
    most: usize,
    /// Rounds in a row that did not bring more.
    rounds: u32,
}

impl Vain {
    /// There is so much `room` now; says whether another round is worth while.
    pub(super) fn note(&mut self, room: usize) -> bool {
        self.rounds = if room > self.most { 0 } else { self.rounds + 1 };
        self.most = self.most.max(room);
        self.rounds < VAIN_ROUNDS_MAX
    }
}

/// Blocks that nothing lives in, in segments that are in use: all that cleaning can gain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dead {
    pub(super) blocks: u64,
    /// Of a segment.
    room: u64,
}

impl Dead {
    /// Whether there is a segment's worth more than the `least` that there were, which is remembered.
    pub(super) fn is_more(self, least: &mut u64) -> bool {
        *least = self.blocks.min(*least);
        self.blocks >= *least + self.room
    }
}

/// Who has asked for what.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Requests of users so far.
    requests: AtomicU64,
    /// What `requests` was when the background last looked.
    seen: AtomicU64,
    /// Blocks written that no cleaning has been done for.
    debt: AtomicU64,
}

impl Pace {
    /// A user asks for something: the background yields.
    pub(super) fn note_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether anybody has asked for anything since the last time.
    fn is_busy(&self) -> bool {
        let now = self.requests.load(Ordering::Relaxed);
        self.seen.swap(now, Ordering::Relaxed) != now
    }
}

impl Volume {
    /// What cleaning can gain.
    pub(super) fn dead(&self, meta: &Meta) -> Dead {
        let layout = &self.superblock.layout;
        let room = Batch::segment_room(layout) as u64;
        let used = u64::from(layout.segment_count).saturating_sub(free_count(meta) as u64);
        Dead { blocks: (used * room).saturating_sub(meta.usage.live_blocks()), room }
    }

    /// How urgent cleaning is. What is Drained counts: it takes little to make it Clean, or a
    /// checkpoint where that is worth it.
    pub(super) fn cleaning_need(&self, meta: &Meta) -> Need {
        let segments = self.superblock.layout.segment_count as usize;
        let critical = (segments / CRITICAL_SHARE).max(self.comfort(meta) + GAIN_SEGMENTS);
        let low = (segments / LOW_SHARE).max(critical + critical / 4);
        let pinned = if self.is_checkpoint_worth_it(meta) { meta.usage.pinned_count() } else { 0 };
        let to_be_had = meta.usage.clean_count() + meta.usage.releasable_count() + pinned;
        if to_be_had < critical {
            Need::Critical
        } else if to_be_had < low {
            Need::Background
        } else {
            Need::None
        }
    }

    /// Whether so many segments wait for a checkpoint that the nodes it writes are little beside
    /// what the segments will take, or a good part of what is not in use at all.
    fn is_checkpoint_worth_it(&self, meta: &Meta) -> bool {
        let layout = &self.superblock.layout;
        let nodes = meta.nodes_written.max(meta.tree.dirty_count());
        let worth = nodes * METADATA_SHARE / layout.segment_blocks as usize;
        let used = meta.usage.live_blocks() / Batch::segment_room(layout) as u64;
        let spare = u64::from(layout.segment_count).saturating_sub(used);
        let pinned = meta.usage.pinned_count();
        pinned > 0 && pinned >= worth.min(spare as usize / SPARE_SHARE)
    }

    /// Makes Clean what is Drained before somebody has to wait for it.
    pub(super) fn release_if_due(&self, log: &mut Log) -> Result<()> {
        let short = |meta: &Meta| meta.usage.clean_count() < self.comfort(meta);
        if short(&self.meta.read()) {
            self.release(log)?;
        }
        let due = {
            let meta = self.meta.read();
            short(&meta) && self.is_checkpoint_worth_it(&meta)
        };
        if due { unless_full(self.checkpoint(log, false)) } else { Ok(()) }
    }

    /// One step of background cleaning, if there is need and nobody is to be yielded to.
    pub(super) fn pace_cleaning(&self) -> Result<Option<Work>> {
        let (need, dead) = {
            let meta = self.meta.read();
            (self.cleaning_need(&meta), self.dead(&meta))
        };
        let Some(mut cleaner) = self.cleaner.try_lock() else { return Ok(None) };
        if need == Need::None && cleaner.is_idle() {
            return Ok(None);
        }
        let yields = self.options.yield_cleaning && need < Need::Critical;
        if yields && self.pace.is_busy() {
            return Ok(Some(Work::Idle(YIELD)));
        }
        if need == Need::None {
            self.finish_round(&mut cleaner)?;
            return Ok(Some(Work::More));
        }
        if self.clock.is_cleaning_futile(dead) {
            return Ok(None);
        }
        match self.clean_step(&mut cleaner)? {
            Step::Nothing => {
                let dead = self.dead(&self.meta.read());
                self.clock.note_futile(dead);
                Ok(None)
            }
            Step::Read | Step::Written => Ok(Some(Work::More)),
        }
    }

    /// A writer that has put `blocks` into the write buffer does its share of the cleaning if
    /// segments are short.
    pub(super) fn pay(&self, blocks: u64) -> Result<()> {
        self.pace.note_request();
        let (due, dead) = {
            let Some(meta) = self.meta.try_read() else { return Ok(()) };
            if self.cleaning_need(&meta) < Need::Critical {
                self.pace.debt.store(0, Ordering::Relaxed);
                return Ok(());
            }
            let due = self.pace.debt.fetch_add(blocks, Ordering::Relaxed) + blocks;
            (due, self.dead(&meta))
        };
        if due < DEBT_BLOCKS || self.clock.is_cleaning_futile(dead) {
            return Ok(());
        }
        self.pace.debt.fetch_sub(DEBT_BLOCKS, Ordering::Relaxed);
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let mut cleaner = self.cleaner.lock();
        match self.clean_step(&mut cleaner) {
            Err(error) if self.has_failed() => Err(error),
            // What others have does not keep him from writing.
            _ => Ok(()),
        }
    }

    /// Makes segments Clean for one who cannot go on without: what is Drained, and what cleaning
    /// drains, by a checkpoint where nothing less will do. Says whether there are more than before.
    pub(super) fn make_room(&self, log: &mut Log) -> Result<bool> {
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let clean = || self.meta.read().usage.clean_count();
        let before = clean();
        if self.free_durably(log)? || self.release(log)? {
            return Ok(true);
        }
        let mut vain = Vain::default();
        loop {
            let cleaned = self.clean_for_release(log, before + GAIN_SEGMENTS)?;
            if !self.release(log)? || clean() <= before {
                self.checkpoint(log, false)?;
            }
            if clean() > before {
                return Ok(true);
            }
            if !cleaned || !vain.note(self.room_to_be_had(log)) {
                return Ok(false);
            }
        }
    }

    /// Cleans until `enough` segments are to be had, as far as there is room to clean into. Says
    /// whether anything was cleaned.
    fn clean_for_release(&self, log: &mut Log, enough: usize) -> Result<bool> {
        let mut cleaned = false;
        let mut vain = Vain::default();
        while self.to_be_had() < enough && vain.note(self.room_to_be_had(log)) {
            match self.clean_round(log) {
                Ok(true) => cleaned = true,
                Ok(false) | Err(Error::NoSpace) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(cleaned)
    }

    /// Segments that will be Clean after a checkpoint, which takes some itself.
    fn to_be_had(&self) -> usize {
        let meta = self.meta.read();
        free_count(&meta).saturating_sub(self.checkpoint_reserve(&meta, 0))
    }

    /// Blocks that can be written after a checkpoint, in the open heads, too.
    pub(super) fn room_to_be_had(&self, log: &Log) -> usize {
        let layout = &self.superblock.layout;
        let room = |(head, _)| Batch::head_room(log, layout, head);
        let heads: usize = log.heads.iter().map(room).sum();
        let meta = self.meta.read();
        let all = free_count(&meta) * Batch::segment_room(layout) + heads;
        all.saturating_sub(meta.tree.dirty_count())
    }
}

/// Segments that are Clean or Drained.
fn free_count(meta: &Meta) -> usize {
    meta.usage.clean_count() + meta.usage.releasable_count() + meta.usage.pinned_count()
}
