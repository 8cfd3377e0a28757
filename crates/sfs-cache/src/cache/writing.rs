//! The steps of the thread that writes: full segments, then room for more, then what waits.

use sfs_device::{Block, DeviceError, Stream};

use super::Cache;
use crate::mutant::{Mutant, mutated};
use crate::section::FilledSegment;
use crate::state::Phase;
use crate::summary::Summary;

impl Cache {
    /// Does one step of [`Cache::work`].
    pub(super) fn step(&self) -> bool {
        match self.write_filled(false) {
            Ok(false) => {}
            Ok(true) => return true,
            Err(_) => return false,
        }
        if let Some((no, segment, live)) = self.victim() {
            return self.reclaim(no, segment, live);
        }
        let filling = self.header.lock().filling;
        let mut state = self.state.lock();
        state.phase == Phase::Writing && state.add_waiting(filling)
    }

    /// Writes the first segment that is full or, with `partly`, all. Returns whether there was one.
    pub(super) fn write_filled(&self, partly: bool) -> Result<bool, DeviceError> {
        let mut was_any = false;
        let count = self.state.lock().sections.len();
        for no in 0..count {
            let (segment, address, summary_blocks) = {
                let mut state = self.state.lock();
                if state.phase != Phase::Writing || no >= state.sections.len() {
                    return Ok(was_any);
                }
                let section = &mut state.sections[no];
                let Some(segment) = section.take_filled(partly) else { continue };
                let address = section.segment_address(segment.no);
                (segment, address, section.summary_blocks())
            };
            was_any = true;
            let written = self.write_segment(&segment, address, summary_blocks);
            if let Err(error) = written {
                self.end_use(&error.to_string());
                return Err(error);
            }
            let mut state = self.state.lock();
            state.counts.bytes_written += written.unwrap_or(0);
            if let Some(section) = state.sections.get_mut(no) {
                section.note_written();
            }
        }
        Ok(was_any)
    }

    fn write_segment(
        &self,
        segment: &FilledSegment,
        address: u64,
        summary_blocks: u32,
    ) -> Result<u64, DeviceError> {
        let summary = segment.summary.encode(summary_blocks);
        let used = &segment.blocks[..segment.summary.entries.len()];
        self.device.write(address, &[&summary, used], Stream::default())?;
        Ok(((summary.len() + used.len()) * sfs_device::BLOCK_SIZE) as u64)
    }

    /// Returns a section that lacks free segments while blocks wait, the segment that is to become free, and its live blocks.
    fn victim(&self) -> Option<(usize, u32, u32)> {
        let state = self.state.lock();
        if state.phase != Phase::Writing || state.waiting.is_empty() {
            return None;
        }
        let victim = |(no, section): (usize, &crate::section::Section)| {
            let (segment, live) = section.victim()?;
            Some((no, segment, live))
        };
        state.sections.iter().enumerate().find_map(victim)
    }

    /// Frees a segment.
    fn reclaim(&self, no: usize, segment: u32, live: u32) -> bool {
        let read = match live {
            0 => Ok(None),
            _ => self.read_segment(no, segment).map(Some),
        };
        let content = match read {
            Ok(content) => content,
            Err(error) => {
                self.end_use(&error.to_string());
                return false;
            }
        };
        if content.as_ref().is_some_and(Option::is_none) {
            self.end_use(&format!("the summary of segment {segment} is damaged"));
            return false;
        }
        let content = content.flatten();
        let filling = self.header.lock().filling;
        let is_right = {
            let mut state = self.state.lock();
            let sequence = state.sequence + 1;
            let Some(section) = state.sections.get_mut(no) else { return false };
            let content = content.as_ref().map(|(summary, blocks)| (summary, &blocks[..]));
            let moved = section.reclaim(segment, content, (sequence, filling));
            let newest = section.newest_sequence();
            state.sequence = state.sequence.max(newest);
            state.counts.moved += moved.unwrap_or(0);
            moved.is_some()
        };
        if !is_right && !mutated(Mutant::LieForgiven) {
            self.end_use("a block of the cache is not what was written");
        }
        is_right
    }

    /// Reads a segment; `None` without a sound summary.
    #[expect(clippy::type_complexity, reason = "a summary and its blocks, or nothing")]
    fn read_segment(
        &self,
        no: usize,
        segment: u32,
    ) -> Result<Option<(Summary, Box<[Block]>)>, DeviceError> {
        let (address, summary_blocks, data_blocks) = {
            let state = self.state.lock();
            let section = &state.sections[no];
            (section.segment_address(segment), section.summary_blocks(), section.data_blocks())
        };
        let mut memory = Block::zeroed((summary_blocks + data_blocks) as usize);
        self.device.read(address, &mut memory)?;
        let (summary, blocks) = memory.split_at(summary_blocks as usize);
        Ok(Summary::decode(summary, data_blocks).map(|summary| (summary, blocks.into())))
    }
}
