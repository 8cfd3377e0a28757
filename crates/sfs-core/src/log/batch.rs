//! Layout of a batch: chunks of one commit or checkpoint, spread over the heads.
//!
//! [`Batch::reserve`] gives every block its address and opens segments; [`Batch::fill`] adds the content;
//! [`Batch::finish`] numbers the chunks and computes their summaries. The layout writes nothing to the
//! device.

use std::sync::Arc;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::{FromZeros, IntoBytes};

use super::LogState;
use super::heads::CHUNK_BLOCKS_MIN;
use crate::format::{
    ChunkHeader, ChunkSummary, DeltaForm, Head, Layout, SummaryEntry, summary_blocks, summary_len,
};
use crate::io::{Append, Chunk};
use crate::segments::UsageTable;

/// One chunk's share of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkShare {
    /// `true` if the chunk begins a segment.
    opens: bool,
    entry_count: usize,
    delta_len: usize,
}

/// Splits `entry_count` blocks and `delta_len` bytes into chunks for a head with `room` blocks left.
fn chunk_shares(
    mut room: u32,
    segment_blocks: u32,
    mut entry_count: usize,
    mut delta_len: usize,
) -> Vec<ChunkShare> {
    let mut shares = Vec::new();
    while entry_count > 0 || delta_len > 0 {
        let opens = room < CHUNK_BLOCKS_MIN;
        if opens {
            room = segment_blocks;
        }
        let entries = entry_count.min(entries_max(room as usize));
        entry_count -= entries;
        let delta_room = (room as usize - entries) * BLOCK_SIZE - summary_len(entries);
        let delta = if entry_count == 0 { delta_len.min(delta_room) } else { 0 };
        delta_len -= delta;
        room -= (entries + summary_blocks(entries, delta)) as u32;
        shares.push(ChunkShare { opens, entry_count: entries, delta_len: delta });
    }
    shares
}

/// Returns the largest number of blocks that a chunk of `room` blocks can hold beside its summary.
fn entries_max(room: usize) -> usize {
    let mut count = room - 1;
    while count + summary_blocks(count, 0) > room {
        count = room - summary_blocks(count, 0);
    }
    count
}

struct Planned {
    head: Head,
    address: u64,
    entry_count: usize,
    delta: Vec<u8>,
    appends: Vec<Append>,
}

/// Chunks of a batch that is being built.
#[derive(Default)]
pub(crate) struct Batch {
    planned: Vec<Planned>,
    filled: usize,
}

impl Batch {
    /// Returns the number of segments that `head` would open to append `entry_count` blocks and `delta_len` bytes.
    pub(crate) fn opens(
        log: &LogState,
        layout: &Layout,
        head: Head,
        entry_count: usize,
        delta_len: usize,
    ) -> usize {
        let room = log.heads.room_blocks(head, layout);
        chunk_shares(room, layout.segment_blocks, entry_count, delta_len)
            .iter()
            .filter(|extent| extent.opens)
            .count()
    }

    /// Returns the number of blocks that `head` can append without opening a segment.
    pub(crate) fn head_room_blocks(log: &LogState, layout: &Layout, head: Head) -> usize {
        match log.heads.room_blocks(head, layout) {
            0 | 1 => 0,
            room => entries_max(room as usize),
        }
    }

    /// Returns the number of blocks that an empty segment takes beside their summary.
    pub(crate) fn segment_data_blocks(layout: &Layout) -> usize {
        entries_max(layout.segment_blocks as usize)
    }

    /// Reserves space at `head` for `entry_count` blocks and for `delta`, and returns the addresses of the blocks.
    /// [`Batch::fill`] has to follow.
    ///
    /// # Panics
    ///
    /// If fewer segments are Clean than [`Batch::opens`] returns.
    pub(crate) fn reserve(
        &mut self,
        log: &mut LogState,
        layout: &Layout,
        usage: &mut UsageTable,
        head: Head,
        entry_count: usize,
        mut delta: &[u8],
    ) -> Vec<u64> {
        let room = log.heads.room_blocks(head, layout);
        let mut addresses = Vec::with_capacity(entry_count);
        for extent in chunk_shares(room, layout.segment_blocks, entry_count, delta.len()) {
            let sequence = log.next_sequence + self.planned.len() as u64;
            let (address, _) = log
                .heads
                .ready(head, layout, usage, sequence)
                .expect("the number of Clean segments was checked");
            let (piece, rest) = delta.split_at(extent.delta_len);
            delta = rest;
            let summary = summary_blocks(extent.entry_count, piece.len());
            log.heads.advance(head, (summary + extent.entry_count) as u32, layout);
            let first = address + summary as u64;
            addresses.extend(first..first + extent.entry_count as u64);
            self.planned.push(Planned {
                head,
                address,
                entry_count: extent.entry_count,
                delta: piece.to_vec(),
                appends: Vec::new(),
            });
        }
        addresses
    }

    /// Adds the blocks for which space was reserved, in the order of their addresses.
    pub(crate) fn fill(&mut self, appends: Vec<Append>) {
        let mut appends = appends.into_iter();
        for planned in &mut self.planned[self.filled..] {
            planned.appends = appends.by_ref().take(planned.entry_count).collect();
            assert_eq!(planned.appends.len(), planned.entry_count);
        }
        assert!(appends.next().is_none());
        self.filled = self.planned.len();
    }

    /// Numbers the chunks and encodes their summaries.
    pub(crate) fn finish(self, log: &mut LogState, volume: u64, time: u32) -> Vec<Arc<Chunk>> {
        assert_eq!(self.filled, self.planned.len());
        let last = self.planned.len().saturating_sub(1);
        let mut chunks = Vec::with_capacity(self.planned.len());
        for (index, planned) in self.planned.into_iter().enumerate() {
            let header = ChunkHeader {
                volume,
                sequence: log.next_sequence,
                address: planned.address,
                previous: log.previous,
                time,
                head: planned.head,
                end: index == last,
                form: DeltaForm::Tagged,
            };
            let entries: Vec<SummaryEntry> = planned.appends.iter().map(|a| a.entry).collect();
            let count = summary_blocks(entries.len(), planned.delta.len());
            let mut summary = Block::new_vec_zeroed(count).expect("memory for a summary");
            let bytes = summary.as_mut_bytes();
            let delta = &planned.delta;
            log.previous = ChunkSummary::encode_in_era(&header, log.era, &entries, delta, bytes);
            log.next_sequence += 1;
            log.blocks_since_checkpoint += (count + entries.len()) as u64;
            let Planned { head, address, appends, .. } = planned;
            chunks.push(Arc::new(Chunk { address, head, summary, appends }));
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_shares_fill_segments_and_lose_no_block() {
        for room in [0, 1, 2, 3, 31, 32] {
            for entries in [0, 1, 29, 30, 31, 32, 33, 200, 5000] {
                for delta in [0, 1, 3000, 4032, 4033, 9000, 300_000] {
                    let extents = chunk_shares(room, 2048, entries, delta);
                    let sum = |f: fn(&ChunkShare) -> usize| extents.iter().map(f).sum::<usize>();
                    assert_eq!(sum(|e| e.entry_count), entries);
                    assert_eq!(sum(|e| e.delta_len), delta);
                    let mut left = room as usize;
                    for extent in &extents {
                        left = if extent.opens { 2048 } else { left };
                        let used = extent.entry_count
                            + summary_blocks(extent.entry_count, extent.delta_len);
                        assert!(used >= 1 && used <= left, "{extent:?} in {left}");
                        assert!(extent.entry_count + extent.delta_len > 0);
                        left -= used;
                    }
                }
            }
        }
    }
}
