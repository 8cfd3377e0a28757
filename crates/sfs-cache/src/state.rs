//! State of an open cache: its sections, and the content that waits to be added to them.

use std::collections::VecDeque;
use std::ops::Range;

use sfs_device::{Block, Moment};

use crate::DISK_OBJECT;
use crate::header::CacheHeader;
use crate::memory::IndexMemory;
use crate::mutant::{Mutant, mutated};
use crate::recent_writes::RecentWrites;
use crate::section::Section;
use crate::streams::Streams;
use crate::summary::BlockKey;

/// Largest number of blocks that wait: 16 MiB. More are not cached.
const WAITING_BLOCKS_MAX: usize = 4096;

/// Content of adjacent blocks that is to be added.
pub(crate) struct Waiting {
    pub(crate) first: u64,
    pub(crate) blocks: Box<[Block]>,
    /// Section that has got the blocks before these of one range.
    section: Option<usize>,
}

impl Waiting {
    fn range(&self) -> Range<u64> {
        self.first..self.first + self.blocks.len() as u64
    }
}

/// Numbers of what the cache has done since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) old_copies: u64,
    pub(crate) added: u64,
    pub(crate) moved: u64,
    pub(crate) bypassed: u64,
    pub(crate) crowded_out: u64,
    pub(crate) invalidated: u64,
    pub(crate) bytes_written: u64,
}

/// Part of a mount in which a cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The volume is being opened: what is read waits.
    Opening,
    /// The header of this mount is on the device: what waits is written.
    Writing,
    /// The cache is closed, or not used any more: nothing is taken.
    Ended,
}

/// State of an open cache.
pub(crate) struct State {
    pub(crate) sections: Vec<Section>,
    memory: IndexMemory,
    pub(crate) waiting: VecDeque<Waiting>,
    waiting_blocks: usize,
    streams: Streams,
    recent: RecentWrites,
    pub(crate) phase: Phase,
    /// Reason why the cache is not used any more.
    pub(crate) dropped: Option<String>,
    pub(crate) counts: Counts,
    pub(crate) sequence: u64,
}

fn sections(header: &CacheHeader, memory: IndexMemory) -> Vec<Section> {
    (0..header.sections.len()).map(|no| Section::new(header, no, memory)).collect()
}

impl State {
    /// Returns the state of an empty cache.
    pub(crate) fn new(header: &CacheHeader, memory: IndexMemory) -> Self {
        Self {
            sections: sections(header, memory),
            memory,
            waiting: VecDeque::new(),
            waiting_blocks: 0,
            streams: Streams::default(),
            recent: RecentWrites::default(),
            phase: Phase::Opening,
            dropped: None,
            counts: Counts::default(),
            sequence: 0,
        }
    }

    /// Forgets everything that is cached, for a cache that is not used any more.
    pub(crate) fn clear(&mut self, header: &CacheHeader) {
        self.sections = sections(header, self.memory);
        self.waiting.clear();
        (self.waiting_blocks, self.phase) = (0, Phase::Ended);
    }

    /// Begins writing, unless the use of the cache has ended.
    pub(crate) fn begin_writing(&mut self) {
        if self.phase == Phase::Opening {
            self.phase = Phase::Writing;
        }
    }

    /// Returns whether content waits that can be written.
    pub(crate) fn has_work(&self) -> bool {
        self.phase == Phase::Writing && !self.waiting.is_empty()
    }

    /// Returns the present moment.
    pub(crate) fn now(&self) -> Moment {
        self.recent.now()
    }

    /// Takes content that was read from the disk after `moment`, unless it belongs to a stream, is too old, or too much waits.
    /// Returns whether the content was taken.
    pub(crate) fn offer(&mut self, moment: Moment, first: u64, blocks: &[Block]) -> bool {
        if self.phase == Phase::Ended || blocks.is_empty() {
            return false;
        }
        let range = first..first + blocks.len() as u64;
        if self.streams.note(first, blocks.len() as u64) {
            self.counts.bypassed += blocks.len() as u64;
            return false;
        }
        let is_current =
            self.recent.is_unwritten_since(moment, &range) || mutated(Mutant::OfferAfterWrite);
        if !is_current {
            return false;
        }
        if self.waiting_blocks + blocks.len() > WAITING_BLOCKS_MAX {
            self.counts.crowded_out += blocks.len() as u64;
            return false;
        }
        self.waiting_blocks += blocks.len();
        self.waiting.push_back(Waiting { first, blocks: blocks.into(), section: None });
        true
    }

    /// Notes that the disk's blocks `range` are written, and forgets their copies.
    pub(crate) fn note_write(&mut self, range: Range<u64>) {
        self.recent.note(range.clone());
        let overlaps = |waiting: &Waiting| {
            let other = waiting.range();
            other.start < range.end && range.start < other.end
        };
        if !mutated(Mutant::OfferAfterWrite) {
            self.waiting.retain(|waiting| !overlaps(waiting));
            self.waiting_blocks = self.waiting.iter().map(|waiting| waiting.blocks.len()).sum();
        }
        for section in &mut self.sections {
            self.counts.invalidated += section.forget(DISK_OBJECT, range.clone());
        }
    }

    /// Adds the content that has waited longest to the section that takes the fewest extents for it; of several, to the one with the
    /// smallest. Returns whether any waited.
    pub(crate) fn add_waiting(&mut self, filling: u64) -> bool {
        let Some(waiting) = self.waiting.pop_front() else { return false };
        self.waiting_blocks -= waiting.blocks.len();
        let range = waiting.range();
        let cost = |section: &Section| (section.extents_of(&range), section.plan().extent_blocks);
        let chosen = (0..self.sections.len()).min_by_key(|no| cost(&self.sections[*no]));
        let Some(chosen) = waiting.section.or(chosen) else { return true };
        for (block, content) in range.zip(&waiting.blocks) {
            let key = BlockKey { object: DISK_OBJECT, block };
            for (no, section) in self.sections.iter_mut().enumerate() {
                if no != chosen {
                    section.forget(DISK_OBJECT, block..block + 1);
                }
            }
            match self.sections[chosen].insert(key, content, self.sequence + 1, filling) {
                true => self.counts.added += 1,
                false => self.counts.crowded_out += 1,
            }
            // A segment that is opened takes the next number.
            self.sequence = self.sequence.max(self.sections[chosen].newest_sequence());
            if !self.sections[chosen].has_room() {
                self.put_back(block + 1, &waiting, chosen);
                break;
            }
        }
        true
    }

    /// Lets the rest of `waiting`, from `block` on, wait for room in a section.
    fn put_back(&mut self, block: u64, waiting: &Waiting, section: usize) {
        let rest = &waiting.blocks[(block - waiting.first) as usize..];
        if !rest.is_empty() {
            self.waiting_blocks += rest.len();
            self.waiting.push_front(Waiting {
                first: block,
                blocks: rest.into(),
                section: Some(section),
            });
        }
    }
}
