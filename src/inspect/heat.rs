//! The hottest files and parts of files, and those that were written most.
//!
//! Hotness is that of the SFS paper (section 3.2): writes over the ticks of the write clock since the last write, and for
//! several blocks the mean count over the mean age. Only what was written back counts; a walk over a volume that is
//! written meanwhile sees each file once, as it is when the walk reaches it.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sfs_core::Volume;
use sfs_core::format::Key;
use sfs_core::request::{WriteHistory, WriteTime};
use sfs_device::BLOCK_SIZE;

use super::position::TreePosition;

/// Largest number of files and of ranges in a report.
pub(crate) const TOP_MAX: usize = 100;

/// A file with its writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HotFile {
    /// Inode number.
    pub(crate) inode: u64,
    /// Path from the root of the volume, with control characters and invalid UTF-8 escaped; null for a file that the
    /// bounded search did not find.
    pub(crate) path: Option<String>,
    /// Bytes written to the file since it was made, in whole blocks; what cleaning moved does not count.
    pub(crate) written_bytes: u64,
    /// Length in bytes.
    pub(crate) size_bytes: u64,
    /// Writes of blocks over the ticks since the last one.
    pub(crate) hotness: f64,
    /// Bytes that programs have written to the volume since the last write to the file.
    pub(crate) idle_bytes: u64,
}

/// A part of a file of up to 128 KiB with its writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HotRange {
    /// Inode number.
    pub(crate) inode: u64,
    /// As in [`HotFile`].
    pub(crate) path: Option<String>,
    /// Offset of the range in the file.
    pub(crate) offset_bytes: u64,
    /// Bytes of the range that are on the device.
    pub(crate) mapped_bytes: u64,
    /// Mean number of writes of a block. With the default policy a block counts up to 7.
    pub(crate) mean_writes: f64,
    /// Mean number of writes over the mean number of ticks since the last one.
    pub(crate) hotness: f64,
    /// Bytes that programs have written to the volume since the mean last write.
    pub(crate) idle_bytes: u64,
}

/// The hottest files and ranges, and the files that were written most, each list with the largest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeatReport {
    /// 1; see docs/sfs-ctl.md.
    pub(crate) version: u32,
    /// Bytes that programs write in a tick.
    pub(crate) tick_bytes: u64,
    /// Number of files that were looked at: those that were ever written.
    pub(crate) files: u64,
    /// Bytes written to all of them.
    pub(crate) written_bytes: u64,
    /// Number of ranges that were looked at.
    pub(crate) ranges: u64,
    /// `true` if a part of the tree could not be read, whose files are left out.
    pub(crate) is_damaged: bool,
    /// Files by hotness.
    pub(crate) hottest_files: Vec<HotFile>,
    /// Ranges by hotness.
    pub(crate) hottest_ranges: Vec<HotRange>,
    /// Files by the bytes written to them.
    pub(crate) most_written_files: Vec<HotFile>,
}

/// A part of a report, and the position of the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeatPart {
    /// Position from which the next part goes on; null at the end.
    pub(crate) next: Option<TreePosition>,
    /// Files and ranges of this part.
    pub(crate) report: HeatReport,
}

impl HeatPart {
    /// Looks at leaf after leaf from `from` on, until `end`. Keeps the first `top` of each list.
    pub(crate) fn of(volume: &Volume, from: TreePosition, top: usize, end: Instant) -> Self {
        let time = volume.write_time();
        let tick_bytes = time.tick_blocks.saturating_mul(BLOCK_SIZE as u64);
        let mut report = HeatReport { version: 1, tick_bytes, ..HeatReport::default() };
        let mut next = Some(Key::from(from));
        while let Some(key) = next {
            let step = volume.write_histories(&key, &mut |history| report.count(&history, time));
            report.is_damaged |= step.is_damaged;
            report.cut(top);
            next = step.next;
            if Instant::now() >= end {
                break;
            }
        }
        Self { next: next.map(TreePosition::from), report }
    }
}

impl HeatReport {
    /// Adds the files and ranges of another part of the volume.
    pub(crate) fn add(&mut self, part: Self, top: usize) {
        self.version = part.version;
        self.tick_bytes = part.tick_bytes;
        self.files += part.files;
        self.written_bytes = self.written_bytes.saturating_add(part.written_bytes);
        self.ranges += part.ranges;
        self.is_damaged |= part.is_damaged;
        self.hottest_files.extend(part.hottest_files);
        self.hottest_ranges.extend(part.hottest_ranges);
        self.most_written_files.extend(part.most_written_files);
        self.cut(top);
    }

    /// Returns the inode numbers that the report names.
    pub(crate) fn inodes(&self) -> BTreeSet<u64> {
        let files = self.hottest_files.iter().chain(&self.most_written_files);
        let files = files.map(|file| file.inode);
        files.chain(self.hottest_ranges.iter().map(|range| range.inode)).collect()
    }

    /// Fills the paths in.
    pub(crate) fn name(&mut self, path_of: impl Fn(u64) -> Option<String>) {
        for file in self.hottest_files.iter_mut().chain(&mut self.most_written_files) {
            file.path = path_of(file.inode);
        }
        for range in &mut self.hottest_ranges {
            range.path = path_of(range.inode);
        }
    }

    fn count(&mut self, history: &WriteHistory, time: WriteTime) {
        let block = BLOCK_SIZE as u64;
        match *history {
            WriteHistory::File { ino, write_count, modified, size } => {
                let age = time.ticks.saturating_sub(modified);
                let file = HotFile {
                    inode: ino,
                    path: None,
                    written_bytes: write_count.saturating_mul(block),
                    size_bytes: size,
                    hotness: write_count as f64 / f64::from(age.max(1)),
                    idle_bytes: u64::from(age).saturating_mul(self.tick_bytes),
                };
                self.files += 1;
                self.written_bytes = self.written_bytes.saturating_add(file.written_bytes);
                self.hottest_files.push(file.clone());
                self.most_written_files.push(file);
            }
            WriteHistory::Range { ino, block: first, mapped, write_count_sum, modified_sum } => {
                let age_sum = u64::from(mapped)
                    .saturating_mul(u64::from(time.ticks))
                    .saturating_sub(modified_sum);
                let mean_age = age_sum as f64 / f64::from(mapped);
                let mean_writes = write_count_sum as f64 / f64::from(mapped);
                self.ranges += 1;
                self.hottest_ranges.push(HotRange {
                    inode: ino,
                    path: None,
                    offset_bytes: u64::from(first) * block,
                    mapped_bytes: u64::from(mapped) * block,
                    mean_writes,
                    hotness: mean_writes / mean_age.max(1.0),
                    idle_bytes: (mean_age * self.tick_bytes as f64) as u64,
                });
            }
        }
    }

    /// Sorts the lists and keeps their first `top`.
    fn cut(&mut self, top: usize) {
        let by = |a: f64, b: f64| b.partial_cmp(&a).unwrap_or(Ordering::Equal);
        self.hottest_files.sort_by(|a, b| by(a.hotness, b.hotness).then(a.inode.cmp(&b.inode)));
        self.hottest_ranges.sort_by(|a, b| {
            by(a.hotness, b.hotness).then((a.inode, a.offset_bytes).cmp(&(b.inode, b.offset_bytes)))
        });
        self.most_written_files
            .sort_by(|a, b| b.written_bytes.cmp(&a.written_bytes).then(a.inode.cmp(&b.inode)));
        self.hottest_files.truncate(top);
        self.hottest_ranges.truncate(top);
        self.most_written_files.truncate(top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: WriteTime = WriteTime { ticks: 1000, tick_blocks: 1 };

    fn file(ino: u64, write_count: u64, modified: u32) -> WriteHistory {
        WriteHistory::File { ino, write_count, modified, size: 1 }
    }

    #[test]
    fn parts_give_the_same_lists_as_the_whole() {
        let histories: Vec<WriteHistory> = (16..60)
            .flat_map(|ino| {
                let count = ino * 7919 % 101 + 1;
                let modified = (ino * 31 % 1000) as u32;
                let (mapped, block) = (4, 32);
                let (write_count_sum, modified_sum) = (count, u64::from(modified) * 4);
                let range =
                    WriteHistory::Range { ino, block, mapped, write_count_sum, modified_sum };
                [file(ino, count, modified), range]
            })
            .collect();
        let of = |histories: &[WriteHistory]| {
            let mut report = HeatReport { version: 1, tick_bytes: 4096, ..HeatReport::default() };
            histories.iter().for_each(|history| report.count(history, TIME));
            report.cut(5);
            report
        };
        let whole = of(&histories);
        let mut sum = HeatReport::default();
        histories.chunks(9).for_each(|part| sum.add(of(part), 5));
        assert_eq!(sum, whole);
        let most = whole.most_written_files.iter().map(|file| file.written_bytes / 4096);
        let mut counts: Vec<u64> = (16..60).map(|ino| ino * 7919 % 101 + 1).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(most.collect::<Vec<_>>(), counts[..5]);
    }

    #[test]
    fn hotness_is_writes_over_age() {
        let mut report = HeatReport { tick_bytes: 4096, ..HeatReport::default() };
        report.count(&file(16, 30, 990), TIME);
        report.count(&file(17, 400, 0), TIME);
        report.count(&file(18, 2, 1000), TIME);
        report.cut(9);
        let seen: Vec<_> = report.hottest_files.iter().map(|f| (f.inode, f.hotness)).collect();
        assert_eq!(seen, [(16, 3.0), (18, 2.0), (17, 0.4)]);
        assert_eq!(report.hottest_files[0].idle_bytes, 40_960);
        assert_eq!(report.most_written_files[0].inode, 17);
    }
}
