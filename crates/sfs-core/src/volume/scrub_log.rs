//! Scrub of the summaries: a walk over the chunks of each segment that holds something.
//!
//! A walk ends where no further chunk begins, and damage of a summary looks like that, too. It is told from the end of the log
//! by the place up to which the head of an Open segment has written, and in other segments by a live block behind the
//! end: the walk notes the ends, and the scrub of the tree compares.

use sfs_device::Block;
use zerocopy::IntoBytes;

use super::Volume;
use crate::Result;
use crate::format::{ChunkSummary, ErrorKind, SegmentState, SummaryCheck};
use crate::log::CHUNK_BLOCKS_MIN;
use crate::request::{SCRUB_STEP_BLOCKS, ScrubDamage, ScrubStep};

/// Maximum number of segments without content that one step passes.
const SKIPPED_MAX: u32 = 4096;

/// Ends of the chunks in the segments that were walked, by segment.
#[derive(Default)]
pub(super) struct WalkedSegments(Vec<Walked>);

/// End of the chunks of a segment that was not Open.
#[derive(Clone, Copy)]
struct Walked {
    /// Lowest bits of the stamp of the segment, which changes when it is written anew.
    stamp: u32,
    /// Number of blocks that the chunks take; [`Walked::UNKNOWN`] if no block can be behind them.
    end: u32,
}

impl Walked {
    const UNKNOWN: Self = Self { stamp: 0, end: u32::MAX };
}

impl WalkedSegments {
    /// Notes the end of the chunks of `segment`, which has `stamp`.
    fn note(&mut self, segment: u32, stamp: u64, end: u32) {
        self.0.resize(self.0.len().max(segment as usize + 1), Walked::UNKNOWN);
        self.0[segment as usize] = Walked { stamp: stamp as u32, end };
    }

    /// Returns the end of the chunks of `segment`, if a live block `block` of the segment, which has `stamp`, is behind it. The
    /// end is returned once.
    pub(super) fn missing(&mut self, segment: u32, stamp: u64, block: u32) -> Option<u32> {
        let walked = self.0.get_mut(segment as usize)?;
        let is_behind = walked.stamp == stamp as u32 && block >= walked.end;
        is_behind.then(|| std::mem::replace(walked, Walked::UNKNOWN).end)
    }
}

/// Position of the walk.
#[derive(Default)]
pub(super) struct LogWalk {
    segment: u32,
    /// The walk over the chunks of `segment`; `None` before its begin.
    chunks: Option<ChunkWalk>,
}

/// Walk over the chunks of a segment.
struct ChunkWalk {
    stamp: u64,
    /// End of the chunks that an Open segment must have.
    written: Option<u32>,
    /// Next block of the segment.
    next: u32,
    /// Sequence number of the last chunk.
    sequence: u64,
    /// Check of a summary of several blocks, and the number of its blocks that were read.
    check: Option<(SummaryCheck, u32)>,
    /// `true` if no chunk was found here once: the next attempt is the last one.
    is_again: bool,
}

impl Volume {
    /// Verifies the next summary, or a part of a long one. Returns whether the walk is over.
    pub(super) fn scrub_log(
        &self,
        walk: &mut LogWalk,
        walked: &mut WalkedSegments,
        memory: &mut [Block],
        step: &mut ScrubStep,
    ) -> bool {
        let Some(chunks) = &mut walk.chunks else {
            return self.next_segment(walk);
        };
        let before = (chunks.next, step.counts);
        let goes_on = match self.walk_on(walk.segment, chunks, memory, step) {
            Ok(goes_on) => goes_on,
            Err(error) if chunks.is_again => {
                let at = self.layout().segment_address(walk.segment) + u64::from(chunks.next);
                Self::note_scrub_error(step, at, &error);
                // Reported already: not once more by the scrub of the tree.
                chunks.written = Some(0);
                false
            }
            Err(_) => false,
        };
        if chunks.is_again {
            // Blocks that are read a second time count once.
            step.counts = before.1;
        }
        if goes_on {
            if chunks.is_again && chunks.next > before.0 {
                chunks.is_again = false;
                if self.was_there(walk.segment, chunks, before.0) {
                    let at = self.layout().segment_address(walk.segment) + u64::from(before.0);
                    self.health.note_error(ErrorKind::Retry, at);
                }
            }
            return false;
        }
        chunks.check = None;
        if !std::mem::replace(&mut chunks.is_again, true) {
            return false;
        }
        let ChunkWalk { stamp, written, next, .. } = *chunks;
        match written {
            Some(written) if next < written => {
                // The segment may have been drained, and have other content by now.
                if self.has_stamp(walk.segment, stamp) {
                    self.note_lost_summary(step, walk.segment, next);
                }
            }
            Some(_) => {}
            None => walked.note(walk.segment, stamp, next),
        }
        walk.segment += 1;
        walk.chunks = None;
        false
    }

    /// Returns whether the chunk at block `at` of `segment` was written before the walk began.
    fn was_there(&self, segment: u32, chunks: &ChunkWalk, at: u32) -> bool {
        chunks.written.is_none_or(|written| at < written) && self.has_stamp(segment, chunks.stamp)
    }

    /// Returns whether `segment` has been neither drained nor opened since it had the stamp `stamp`.
    fn has_stamp(&self, segment: u32, stamp: u64) -> bool {
        let metadata = self.metadata.read();
        let entry = metadata.usage.entries().get(segment as usize);
        entry.is_some_and(|entry| entry.stamp == stamp)
    }

    /// Counts a summary that is damaged, at block `next` of `segment`.
    pub(super) fn note_lost_summary(&self, step: &mut ScrubStep, segment: u32, next: u32) {
        let at = self.layout().segment_address(segment) + u64::from(next);
        self.health.note_error(ErrorKind::Log, at);
        step.damage.push(ScrubDamage { kind: ErrorKind::Log, at, owner: None });
    }

    /// Begins the walk over the next segment that holds chunks. Returns whether there is none.
    fn next_segment(&self, walk: &mut LogWalk) -> bool {
        // After a failed write nobody knows which chunks are on the device.
        if self.health.has_stopped() {
            return true;
        }
        let last = walk.segment.saturating_add(SKIPPED_MAX);
        let (stamp, state) = {
            let metadata = self.metadata.read();
            let entries = metadata.usage.entries();
            loop {
                let Some(entry) = entries.get(walk.segment as usize) else { return true };
                let is_used = entry.state == SegmentState::Open
                    || entry.state == SegmentState::Sealed && entry.live_blocks > 0;
                if is_used {
                    break (entry.stamp, entry.state);
                }
                walk.segment += 1;
                if walk.segment == last {
                    return false;
                }
            }
        };
        // A segment is sealed while a batch is built. The chunks are on the device once their writer unlocks the log.
        let written = match state {
            SegmentState::Open => Some(self.written_blocks(walk.segment)),
            _ => {
                drop(self.log.lock());
                None
            }
        };
        walk.chunks =
            Some(ChunkWalk { stamp, written, next: 0, sequence: 0, check: None, is_again: false });
        false
    }

    /// Returns the number of blocks that a head has written to `segment`; 0 if none is known to be on the device. Chunks are
    /// on the device when their writer unlocks the log.
    fn written_blocks(&self, segment: u32) -> u32 {
        let log = self.log.lock();
        let head = log.heads.iter().find(|(_, at)| at.segment == segment);
        let is_certain = !self.health.has_stopped();
        head.filter(|_| is_certain).map_or(0, |(_, at)| at.next_block)
    }

    /// Reads the next summary of `segment`, or a part of it; returns whether a chunk was there.
    fn walk_on(
        &self,
        segment: u32,
        chunks: &mut ChunkWalk,
        memory: &mut [Block],
        step: &mut ScrubStep,
    ) -> Result<bool> {
        let layout = self.layout();
        let address = layout.segment_address(segment) + u64::from(chunks.next);
        let (check, read) = match &mut chunks.check {
            Some((check, read)) => {
                let count = (check.summary_blocks - *read).min(SCRUB_STEP_BLOCKS as u32);
                let memory = &mut memory[..count as usize];
                self.io.read_stored(address + u64::from(*read), memory)?;
                step.counts.summary_blocks += u64::from(count);
                check.add(memory.as_bytes());
                *read += count;
                (*check, *read)
            }
            None => {
                let room = layout.segment_blocks.saturating_sub(chunks.next);
                if room < CHUNK_BLOCKS_MIN {
                    return Ok(false);
                }
                let first = &mut memory[..1];
                self.io.read_stored(address, first)?;
                step.counts.summary_blocks += 1;
                let volume = self.superblock.volume();
                let begun =
                    ChunkSummary::begin_check(first.as_bytes(), volume, address, room.into());
                match begun {
                    Ok(check) if check.sequence > chunks.sequence => (check, 1),
                    _ => return Ok(false),
                }
            }
        };
        if read < check.summary_blocks {
            chunks.check = Some((check, read));
            return Ok(true);
        }
        chunks.check = None;
        if !check.is_sound() {
            return Ok(false);
        }
        chunks.next += check.blocks;
        chunks.sequence = check.sequence;
        Ok(true)
    }
}
