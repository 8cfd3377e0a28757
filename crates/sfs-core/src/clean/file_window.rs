//! A window of a file: whether its blocks are in order on the device, and reading them to be moved.
//!
//! Order is within a group: the best state of a window is a run of blocks for each of its groups.

use super::cleaner::Cleaner;
use super::live_block::{LiveBlock, STEP_BLOCKS};
use crate::Result;
use crate::format::{ItemKind, Key, Mapping, MappingRun, run_key};
use crate::log::Batch;
use crate::metadata::{Metadata, run_base};
use crate::policy::GROUPS_MAX;
use crate::writeback::MovedBlock;

/// Number of blocks in a window: 4 MiB. Readers look up as much at once.
const WINDOW_BLOCKS: u32 = 1024;

/// Largest number of blocks between two blocks of a window that one request reads along: 64 KiB.
const READ_ALONG_BLOCKS: u64 = 16;

/// A window needs no move while reading it takes at most one block more than its own for each `BLOCKS_PER_GAP`: 5 %.
const BLOCKS_PER_GAP: u64 = 20;

/// A window of a file.
#[derive(Debug, Default)]
pub(crate) struct FileWindow {
    /// Inode number.
    ino: u64,
    /// Mapped blocks of the window that are in the log, ascending.
    blocks: Vec<(u32, Mapping)>,
    /// Number of groups whose segments hold the blocks.
    groups: u64,
    /// First block of the next window; `None` if the file has no mapped block there.
    pub(crate) next: Option<u32>,
}

/// The requests that read a window, where gaps are read along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowReading {
    /// Number of requests.
    pub(crate) requests: u64,
    /// Number of blocks that they read, gaps included.
    pub(crate) blocks: u64,
}

impl WindowReading {
    /// Returns the requests that read blocks at `addresses`, in any order, and gaps of up to `gap` blocks between them.
    fn of(mut addresses: Vec<u64>, gap: u64) -> Self {
        addresses.sort_unstable();
        let is_near = |a: &u64, b: &u64| b - a <= gap + 1;
        let near = addresses.chunk_by(is_near);
        let requests = near.map(|near| near[near.len() - 1] - near[0] + 1);
        let add =
            |sum: Self, blocks| Self { requests: sum.requests + 1, blocks: sum.blocks + blocks };
        requests.fold(Self::default(), add)
    }
}

impl FileWindow {
    /// Returns the number of mapped blocks.
    pub(crate) fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Returns the requests that read the window.
    pub(crate) fn reading(&self) -> WindowReading {
        WindowReading::of(self.addresses(), READ_ALONG_BLOCKS)
    }

    fn addresses(&self) -> Vec<u64> {
        self.blocks.iter().map(|(_, mapping)| mapping.address).collect()
    }

    /// Returns whether a move would not help reading: the window is as one commit would leave it, or better. Segments have
    /// room for `segment_blocks` blocks.
    fn is_in_order(&self, segment_blocks: u64) -> bool {
        let WindowReading { requests, blocks } = self.reading();
        let count = self.block_count();
        // The blocks of a group may go to the rest of a segment, and to others.
        let most = 2 * self.groups + count / segment_blocks;
        let runs = WindowReading::of(self.addresses(), 0).requests;
        runs <= most || requests <= most && blocks <= count + count / BLOCKS_PER_GAP
    }
}

impl Cleaner {
    /// Returns the window of `ino` that begins at block `from` or, after a hole, with the mapped block after it. A window
    /// begins at a multiple of its length, except the first that is asked for.
    ///
    /// # Errors
    ///
    /// Those of reading the tree.
    pub(crate) fn file_window(&self, ino: u64, from: u32) -> Result<FileWindow> {
        let len = u64::from(self.window_blocks());
        let mut window = self.metadata.read_txn(|txn| {
            let mut window = FileWindow { ino, ..FileWindow::default() };
            let last = Key::new(ino, ItemKind::Mapping, u64::MAX);
            let mut end = None;
            for item in txn.tree().range(run_key(ino, from)..=last) {
                let (key, value) = item?;
                let base = run_base(&key)?;
                let end = *end.get_or_insert((u64::from(base.max(from)) / len + 1) * len);
                if u64::from(base) >= end {
                    window.next = Some(base);
                    break;
                }
                let run = MappingRun::decode(value, &key, txn.tolerance())?;
                let wanted = |(block, mapping): &(u32, Mapping)| {
                    *block >= from && u64::from(*block) < end && mapping.checksum.is_some()
                };
                window.blocks.extend(run.iter(base).filter(wanted));
                // A window may be shorter than a mapping run.
                if run.iter(base).any(|(block, _)| u64::from(block) >= end) {
                    window.next = u32::try_from(end).ok();
                    break;
                }
            }
            Ok(window)
        })?;
        window.groups = count_groups(&self.metadata.read(), &window.blocks);
        Ok(window)
    }

    /// Returns the number of blocks in a window: as many as a commit moves at once.
    fn window_blocks(&self) -> u32 {
        let segment_blocks = self.superblock.layout().segment_blocks as usize;
        let most = self.moved_blocks_max.max(segment_blocks);
        (most as u64).min(WINDOW_BLOCKS.into()) as u32
    }

    /// Returns whether `window` is in order, so that a move would not help reading.
    pub(crate) fn is_in_order(&self, window: &FileWindow) -> bool {
        window.is_in_order(Batch::segment_data_blocks(&self.superblock.layout()) as u64)
    }

    /// Reads and verifies the blocks of `window` in steps of up to 1 MiB. `goes_on` is asked before each step; `None` if it
    /// returns `false`. A damaged block is left out, and noted.
    ///
    /// # Errors
    ///
    /// Those of the device, and of memory.
    pub(crate) fn read_window(
        &self,
        window: &FileWindow,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<MovedBlock>>> {
        let live = |(block, mapping): &(u32, Mapping)| LiveBlock {
            named: (window.ino, *block),
            address: mapping.address,
            checksum: mapping.checksum,
        };
        let mut live: Vec<LiveBlock> = window.blocks.iter().map(live).collect();
        live.sort_unstable_by_key(|live| live.address);
        let mut moves = Vec::with_capacity(live.len());
        for step in live.chunks(STEP_BLOCKS as usize) {
            if !goes_on() {
                return Ok(None);
            }
            self.read_live(step, &mut moves).1?;
        }
        Ok(Some(moves))
    }
}

/// Returns the number of groups whose segments hold `blocks`.
fn count_groups(metadata: &Metadata, blocks: &[(u32, Mapping)]) -> u64 {
    let mut seen = [false; GROUPS_MAX as usize];
    let groups = blocks.iter().filter_map(|(_, mapping)| metadata.group_of(mapping));
    groups.for_each(|group| seen[group.index()] = true);
    seen.iter().filter(|seen| **seen).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(groups: u64, addresses: &[u64]) -> FileWindow {
        let blocks = (0..).zip(addresses.iter().map(|address| Mapping::in_place(*address)));
        FileWindow { groups, blocks: blocks.collect(), ..FileWindow::default() }
    }

    #[test]
    fn a_window_is_in_order_with_two_requests_for_each_group() {
        let apart = |count: u64| (0..count).map(|no| 100 + no * 18).collect::<Vec<_>>();
        let reading = WindowReading::of(apart(5), READ_ALONG_BLOCKS);
        assert_eq!(reading, WindowReading { requests: 5, blocks: 5 });
        assert!(window(2, &apart(4)).is_in_order(500));
        assert!(!window(2, &apart(5)).is_in_order(500));
        assert!(window(2, &apart(5)).is_in_order(5), "the blocks of a whole segment more");
        let in_a_row: Vec<u64> = (0..100).rev().collect();
        assert!(window(1, &in_a_row).is_in_order(500), "readers sort by address");
    }

    #[test]
    fn a_window_whose_gaps_are_long_is_not_in_order() {
        let with_gaps: Vec<u64> = (0..100).map(|no| 100 + no * 2).collect();
        assert_eq!(window(1, &with_gaps).reading().requests, 1);
        assert!(!window(1, &with_gaps).is_in_order(500));
        let with_one: Vec<u64> = (100..150).chain(155..205).collect();
        assert!(window(1, &with_one).is_in_order(500));
    }
}
