//! Data that the kernel wrote back and the volume did not take: the volume was full, or the write failed.
//!
//! Lost blocks are recorded for each file. A block that is written, truncated or deleted later does not count as
//! lost any more. While nothing is lost, a write costs one load of a flag.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sfs_core::Volume;
use sfs_device::BLOCK_SIZE;
use sfs_system::Human;

use super::inode_paths;

/// Largest number of blocks that are recorded: 4 GiB.
const BLOCKS_MAX: usize = 1 << 20;

/// Largest number of files that one line names.
const NAMED_MAX: usize = 8;

/// Shortest time between two lines in the log.
const PAUSE: Duration = Duration::from_secs(60);

/// Record of lost blocks.
#[derive(Debug, Default)]
pub(crate) struct LostWriteback {
    /// `true` if there is any lost block.
    any: AtomicBool,
    files: Mutex<LostBlocks>,
}

/// Loss at the end of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossReport {
    /// Number of lost bytes.
    pub(crate) bytes: u64,
    /// Number of files with a loss that was reported to no program, as far as SFS knows: the kernel
    /// does not announce its reports to fsync(2) and close(2).
    #[serde(rename = "untold_count")]
    pub(crate) unreported_count: usize,
    /// Names of the first of these files.
    #[serde(rename = "untold")]
    pub(crate) unreported: Vec<String>,
    /// `true` if some of the data would have fit, and was lost for another reason. Older daemons do
    /// not send this field.
    #[serde(default)]
    pub(crate) has_failures: bool,
}

/// Prints a clause that follows the name of the volume.
impl fmt::Display for LossReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = Human(self.bytes);
        match self.has_failures {
            false => {
                write!(f, "was full: {lost} that programs had written did not fit and is lost")?
            }
            true => write!(
                f,
                "could not take {lost} that programs had written: the data is lost, and the log \
                 has the reason"
            )?,
        }
        if self.unreported_count > 0 {
            write!(
                f,
                "; no program got an error for the lost data of {}",
                self.unreported.join(", ")
            )?;
        }
        match self.unreported_count.saturating_sub(self.unreported.len()) {
            0 => {}
            more => write!(f, " and {more} more files")?,
        }
        f.write_str("; all other data is on the device")
    }
}

#[derive(Debug, Default)]
struct LostBlocks {
    blocks: HashMap<u64, BTreeSet<u64>>,
    /// Files with a loss that was reported to no program, as far as is known.
    unreported: BTreeSet<u64>,
    /// Files with a loss for another reason than a full volume.
    failed: BTreeSet<u64>,
    count: usize,
    last_logged: Option<Instant>,
}

impl LostWriteback {
    /// Returns whether there is any lost block.
    pub(super) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Records that `bytes` of file `ino` did not fit (`is_full`), or could not be written. Returns whether a line in the
    /// log is due.
    pub(super) fn add(&self, ino: u64, bytes: Range<u64>, is_full: bool) -> bool {
        let mut files = self.files.lock();
        self.any.store(true, Ordering::Relaxed);
        files.unreported.insert(ino);
        if !is_full {
            files.failed.insert(ino);
        }
        for block in blocks(&bytes) {
            if files.count < BLOCKS_MAX && files.blocks.entry(ino).or_default().insert(block) {
                files.count += 1;
            }
        }
        let is_due = files.last_logged.is_none_or(|at| at.elapsed() > PAUSE);
        if is_due {
            files.last_logged = Some(Instant::now());
        }
        is_due
    }

    /// Notes that a program which writes file `ino` has got a report.
    pub(super) fn reported(&self, ino: u64) {
        self.files.lock().unreported.remove(&ino);
    }

    /// Notes that `bytes` of file `ino` were written.
    pub(super) fn written(&self, ino: u64, bytes: Range<u64>) {
        self.remove(ino, blocks(&bytes));
    }

    /// Notes that file `ino` was truncated to `size` bytes.
    pub(super) fn truncated(&self, ino: u64, size: u64) {
        self.remove(ino, size.div_ceil(BLOCK_SIZE as u64)..u64::MAX);
    }

    /// Notes that the kernel has forgotten file `ino` of `volume`. Losses of a deleted file do not count.
    pub(super) fn forget(&self, volume: &Volume, ino: u64) {
        if self.is_any() && !has_name(volume, ino) {
            self.truncated(ino, 0);
        }
    }

    /// Returns the loss of those files of `volume` that still have a name.
    pub(crate) fn report(&self, volume: &Volume, dir: &Path) -> LossReport {
        if !self.is_any() {
            return LossReport::default();
        }
        let bytes = self.bytes(|ino| has_name(volume, ino));
        let (mut unreported, failed) = {
            let files = self.files.lock();
            (files.unreported.clone(), files.failed.clone())
        };
        unreported.retain(|ino| has_name(volume, *ino));
        let has_failures = failed.into_iter().any(|ino| has_name(volume, ino));
        let unreported_count = unreported.len();
        let named = unreported.into_iter().take(NAMED_MAX).collect();
        let unreported = inode_paths::of(volume, dir, &named);
        LossReport { bytes, unreported_count, unreported, has_failures }
    }

    fn bytes(&self, counts: impl Fn(u64) -> bool) -> u64 {
        let files = self.files.lock();
        let counted = files.blocks.iter().filter(|(ino, _)| counts(**ino));
        counted.map(|(_, blocks)| blocks.len() as u64 * BLOCK_SIZE as u64).sum()
    }

    /// Removes the blocks `gone` of file `ino` from the record. Blocks that stay are not visited.
    fn remove(&self, ino: u64, gone: Range<u64>) {
        if !self.is_any() {
            return;
        }
        let mut files = self.files.lock();
        let Some(blocks) = files.blocks.get_mut(&ino) else { return };
        let gone: Vec<u64> = blocks.range(gone).copied().collect();
        for block in &gone {
            blocks.remove(block);
        }
        let (gone, is_empty) = (gone.len(), blocks.is_empty());
        files.count -= gone;
        if is_empty {
            files.blocks.remove(&ino);
            files.unreported.remove(&ino);
            files.failed.remove(&ino);
        }
        self.any.store(!files.blocks.is_empty(), Ordering::Relaxed);
    }
}

/// The record of lost blocks, for another program that takes the mount over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandedLosses {
    /// Ranges of lost blocks of each file, as first block and number.
    blocks: BTreeMap<u64, Vec<(u64, u64)>>,
    unreported: BTreeSet<u64>,
    failed: BTreeSet<u64>,
}

impl LostWriteback {
    /// Returns the record for another program.
    pub(crate) fn handed(&self) -> HandedLosses {
        let files = self.files.lock();
        let blocks = files.blocks.iter().map(|(ino, blocks)| (*ino, ranges(blocks))).collect();
        HandedLosses { blocks, unreported: files.unreported.clone(), failed: files.failed.clone() }
    }

    /// Adopts the record of another program.
    pub(crate) fn adopt(&self, handed: HandedLosses) {
        let mut files = self.files.lock();
        // Bounded, whatever the other program says.
        let all = handed.blocks.into_iter().flat_map(|(ino, ranges)| {
            let blocks =
                ranges.into_iter().flat_map(|(first, count)| first..first.saturating_add(count));
            blocks.map(move |block| (ino, block))
        });
        for (ino, block) in all.take(BLOCKS_MAX) {
            if files.blocks.entry(ino).or_default().insert(block) {
                files.count += 1;
            }
        }
        files.unreported.extend(handed.unreported);
        files.failed.extend(handed.failed);
        self.any.store(!files.blocks.is_empty(), Ordering::Relaxed);
    }
}

/// Returns the ranges of adjacent blocks in `blocks`, as first block and number.
fn ranges(blocks: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &block in blocks {
        match ranges.last_mut() {
            Some((first, count)) if *first + *count == block => *count += 1,
            _ => ranges.push((block, 1)),
        }
    }
    ranges
}

fn has_name(volume: &Volume, ino: u64) -> bool {
    volume.attributes(ino).is_ok_and(|inode| inode.links > 0)
}

/// Returns the blocks that `bytes` touch.
fn blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_SIZE as u64..bytes.end.div_ceil(BLOCK_SIZE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_block_counts_once_and_until_it_is_written_truncated_or_deleted() {
        let lost = LostWriteback::default();
        let all = || lost.bytes(|_| true);
        lost.written(7, 0..MIB);
        assert_eq!(all(), 0);
        assert!(lost.add(7, 0..MIB, true), "the first is logged");
        assert!(!lost.add(7, 4096..8192, true), "the next is not logged, for a while");
        lost.add(8, 100..200, true);
        assert_eq!(all(), MIB + 4096);
        lost.written(7, 8192..MIB / 2);
        assert_eq!(all(), MIB / 2 + 8192 + 4096);
        lost.truncated(7, MIB / 2 + 1);
        assert_eq!(all(), 4096 + 8192 + 4096);
        assert_eq!(lost.bytes(|ino| ino == 8), 4096);
        lost.truncated(8, 0);
        lost.truncated(7, 0);
        assert_eq!(all(), 0);
        assert!(!lost.is_any());
    }

    #[test]
    fn another_program_knows_the_lost_blocks() {
        let lost = LostWriteback::default();
        lost.add(7, 0..MIB, true);
        lost.written(7, 8192..12288);
        lost.add(8, 4096..8192, false);
        let text = serde_json::to_string(&lost.handed()).expect("JSON");
        let next = LostWriteback::default();
        next.adopt(serde_json::from_str(&text).expect("the same JSON"));
        assert_eq!(next.handed(), lost.handed());
        assert_eq!(next.bytes(|_| true), MIB);
        next.written(7, 0..MIB);
        assert_eq!(next.bytes(|_| true), 4096);
        let forged = HandedLosses {
            blocks: [(7, vec![(0, u64::MAX), (u64::MAX - 1, 9)])].into(),
            ..HandedLosses::default()
        };
        let bounded = LostWriteback::default();
        bounded.adopt(forged);
        assert_eq!(bounded.bytes(|_| true), BLOCKS_MAX as u64 * BLOCK_SIZE as u64);
    }

    #[test]
    fn the_record_is_bounded() {
        let lost = LostWriteback::default();
        lost.add(7, 0..8192 * MIB, true);
        assert_eq!(lost.bytes(|_| true), 4096 * MIB);
        lost.truncated(7, 0);
        lost.add(7, 0..MIB, true);
        assert_eq!(lost.bytes(|_| true), MIB);
    }

    /// Regression: a search of all lost blocks made each write take milliseconds.
    #[test]
    fn recorded_losses_do_not_slow_writes() {
        let lost = LostWriteback::default();
        lost.add(7, 0..4096 * MIB, true);
        let start = Instant::now();
        for no in 0..20_000 {
            lost.written(7, no * 8192..no * 8192 + 4096);
        }
        assert_eq!(lost.bytes(|_| true), 4096 * MIB - 20_000 * 4096);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
