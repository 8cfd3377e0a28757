//! Where the blocks of a file are, and how fragmented it is.

use serde::{Deserialize, Serialize};
use sfs_core::format::{InodeFlags, Reservation};
use sfs_core::request::{BlockRun, FileBlocks};
use sfs_core::{Result, Volume};
use sfs_device::BLOCK_SIZE;

/// Number of reserved ranges that a report lists at most.
const RESERVED_MAX: usize = 1000;

/// Number of runs after which a part ends.
const PART_RUNS: usize = 2000;

/// Blocks that follow each other on the device as in the file, within one segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRun {
    /// Offset in the file.
    pub(crate) offset_bytes: u64,
    /// Number of blocks.
    pub(crate) blocks: u64,
    /// Block address on the device.
    pub(crate) address: u64,
    /// Number of the segment; null for an address outside of all segments, which only damage causes.
    pub(crate) segment: Option<u32>,
    /// Number of the group of the segment, as in `sfs-ctl stat`.
    pub(crate) group: Option<u8>,
    /// State of the segment.
    pub(crate) state: Option<String>,
}

/// A range of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRange {
    /// Offset in the file.
    pub(crate) offset_bytes: u64,
    /// Length.
    pub(crate) length_bytes: u64,
}

/// A part of the map of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FilePart {
    pub(crate) size_bytes: u64,
    pub(crate) inline: bool,
    pub(crate) dirty_blocks: u64,
    pub(crate) runs: Vec<FileRun>,
    /// Preallocated ranges, in the first part.
    pub(crate) reserved: Vec<FileRange>,
    /// First block of the next part; `None` after the last one.
    pub(crate) next: Option<u32>,
}

/// Map of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FileReport {
    /// 1; see docs/sfs-ctl.md.
    pub(crate) version: u32,
    /// Path as it was given.
    pub(crate) path: String,
    /// Inode number.
    pub(crate) inode: u64,
    /// Length in bytes.
    pub(crate) size_bytes: u64,
    /// Bytes in a block.
    pub(crate) block_bytes: u64,
    /// `true` if the content is in the tree, and has no blocks.
    pub(crate) inline: bool,
    /// Number of blocks on the device.
    pub(crate) blocks: u64,
    /// Number of blocks in memory that are not written yet.
    pub(crate) dirty_blocks: u64,
    /// Number of runs.
    pub(crate) run_count: u64,
    /// Mean length of a run; null without runs.
    pub(crate) mean_run_bytes: Option<u64>,
    /// Share of the neighbouring blocks of the file that are not neighbours on the device, 0 to 1; null if no two blocks
    /// are neighbours in the file.
    pub(crate) fragmentation: Option<f64>,
    /// Ranges below the end of the file without blocks on the device, and neither inline nor preallocated.
    pub(crate) holes: Vec<FileRange>,
    /// Preallocated ranges that were not written yet.
    pub(crate) preallocated: Vec<FileRange>,
    /// Runs in the order of the file.
    pub(crate) runs: Vec<FileRun>,
}

impl FilePart {
    /// Returns the part of the map of file `ino` from block `from` on.
    pub(crate) fn of(volume: &Volume, ino: u64, from: u32) -> Result<Self> {
        let mut part = Self::step(volume, ino, from)?;
        while let Some(next) = part.next
            && part.runs.len() < PART_RUNS
        {
            let step = Self::step(volume, ino, next)?;
            append_runs(&mut part.runs, step.runs);
            part.next = step.next;
        }
        Ok(part)
    }

    fn step(volume: &Volume, ino: u64, from: u32) -> Result<Self> {
        let FileBlocks { inode, runs, reserved, dirty_blocks, next } =
            volume.file_blocks(ino, from, RESERVED_MAX)?;
        let inline = inode.flags.contains(InodeFlags::INLINE) && inode.size > 0;
        let runs = runs.iter().map(FileRun::from).collect();
        let reserved = reserved.into_iter().map(FileRange::from).collect();
        Ok(Self { size_bytes: inode.size, inline, dirty_blocks, runs, reserved, next })
    }
}

/// Appends `more`; a run that goes on is joined.
fn append_runs(runs: &mut Vec<FileRun>, more: Vec<FileRun>) {
    for run in more {
        match runs.last_mut() {
            Some(last) if last.goes_on_with(&run) => last.blocks += run.blocks,
            _ => runs.push(run),
        }
    }
}

impl FileReport {
    /// Begins the report on file `inode`, which was named `path`.
    pub(crate) fn begin(path: String, inode: u64, part: FilePart) -> Self {
        let FilePart { size_bytes, inline, dirty_blocks, runs, reserved, .. } = part;
        Self {
            version: 1,
            path,
            inode,
            size_bytes,
            block_bytes: BLOCK_SIZE as u64,
            inline,
            blocks: 0,
            dirty_blocks,
            run_count: 0,
            mean_run_bytes: None,
            fragmentation: None,
            holes: Vec::new(),
            preallocated: reserved,
            runs,
        }
    }

    /// Adds the next part.
    pub(crate) fn add(&mut self, part: FilePart) {
        self.size_bytes = part.size_bytes;
        append_runs(&mut self.runs, part.runs);
    }

    /// Computes what follows from all runs.
    pub(crate) fn finish(mut self) -> Self {
        let block = BLOCK_SIZE as u64;
        self.blocks = self.runs.iter().map(|run| run.blocks).sum();
        self.run_count = self.runs.len() as u64;
        self.mean_run_bytes = (self.blocks * block).checked_div(self.run_count);
        let is_neighbour = |pair: &&[FileRun]| pair[0].end() == pair[1].offset_bytes;
        let is_joined = |pair: &&[FileRun]| pair[0].address + pair[0].blocks == pair[1].address;
        let between = || self.runs.windows(2).filter(is_neighbour);
        let within = self.blocks - self.run_count;
        let neighbours = within + between().count() as u64;
        let broken = between().filter(|pair| !is_joined(pair)).count();
        self.fragmentation = (neighbours > 0).then(|| broken as f64 / neighbours as f64);
        self.holes = self.find_holes();
        self
    }

    /// Returns the ranges below the end that are neither in runs nor preallocated.
    fn find_holes(&self) -> Vec<FileRange> {
        if self.inline {
            return Vec::new();
        }
        let runs = self.runs.iter().map(|run| (run.offset_bytes, run.end()));
        let reserved = self.preallocated.iter();
        let reserved =
            reserved.map(|range| (range.offset_bytes, range.offset_bytes + range.length_bytes));
        let mut taken: Vec<(u64, u64)> = runs.chain(reserved).collect();
        taken.sort_unstable();
        let (mut holes, mut at) = (Vec::new(), 0);
        for (start, end) in taken.into_iter().chain([(u64::MAX, u64::MAX)]) {
            let hole_end = start.min(self.size_bytes);
            if at < hole_end {
                holes.push(FileRange { offset_bytes: at, length_bytes: hole_end - at });
            }
            at = at.max(end);
        }
        holes
    }
}

impl FileRun {
    fn end(&self) -> u64 {
        self.offset_bytes + self.blocks * BLOCK_SIZE as u64
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        self.end() == next.offset_bytes
            && self.address + self.blocks == next.address
            && self.segment == next.segment
    }
}

impl From<&BlockRun> for FileRun {
    fn from(run: &BlockRun) -> Self {
        Self {
            offset_bytes: u64::from(run.block) * BLOCK_SIZE as u64,
            blocks: run.count.into(),
            address: run.address,
            segment: run.segment.map(|segment| segment.number),
            group: run.segment.map(|segment| segment.head.0),
            state: run.segment.map(|segment| segment.state.to_string().to_lowercase()),
        }
    }
}

impl From<Reservation> for FileRange {
    fn from(range: Reservation) -> Self {
        let block = BLOCK_SIZE as u64;
        Self { offset_bytes: u64::from(range.first) * block, length_bytes: range.blocks() * block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(block: u64, blocks: u64, address: u64) -> FileRun {
        let (segment, group, state) = (Some(address as u32 / 100), None, None);
        FileRun { offset_bytes: block * 4096, blocks, address, segment, group, state }
    }

    fn part(size_bytes: u64, runs: Vec<FileRun>, reserved: Vec<FileRange>) -> FilePart {
        FilePart { size_bytes, inline: false, dirty_blocks: 0, runs, reserved, next: None }
    }

    #[test]
    fn fragmentation_counts_neighbours_that_are_apart() {
        let runs = vec![run(0, 4, 100), run(4, 2, 210), run(10, 3, 330)];
        let reserved = vec![FileRange { offset_bytes: 8 * 4096, length_bytes: 4096 }];
        let mut report = FileReport::begin("f".into(), 16, part(1, runs, reserved));
        report.add(part(15 * 4096 + 1, vec![run(13, 1, 333), run(14, 1, 334)], Vec::new()));
        let report = report.finish();
        // 0-1-2-3|4-5 10-11-12-13-14: nine pairs of neighbours, one of them apart.
        assert_eq!((report.blocks, report.run_count), (11, 3));
        let fragmentation = report.fragmentation.expect("neighbours");
        assert!((fragmentation - 1.0 / 9.0).abs() < 1e-12, "{fragmentation}");
        assert_eq!(report.mean_run_bytes, Some(11 * 4096 / 3));
        let range = |block: u64, blocks: u64, tail: u64| FileRange {
            offset_bytes: block * 4096,
            length_bytes: blocks * 4096 + tail,
        };
        assert_eq!(report.holes, [range(6, 2, 0), range(9, 1, 0), range(15, 0, 1)]);
    }

    #[test]
    fn a_file_without_blocks_has_no_fragmentation() {
        let report = FileReport::begin("f".into(), 16, part(0, Vec::new(), Vec::new())).finish();
        assert_eq!((report.fragmentation, report.mean_run_bytes), (None, None));
        assert_eq!(report.holes, []);
        let inline = FilePart { inline: true, ..part(9, Vec::new(), Vec::new()) };
        assert_eq!(FileReport::begin("f".into(), 16, inline).finish().holes, []);
    }
}
