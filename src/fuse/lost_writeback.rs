//! What the kernel wanted to write back and a full volume did not take.
//!
//! Owns: which blocks of which files that was.
//! Promises: what was written, cut off or deleted later does not count.
//! Never: costs a write anything while everything fits.

use std::collections::{BTreeSet, HashMap};
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

/// What does not fit beyond it is not counted: 4 GiB.
const BLOCKS_MAX: usize = 1 << 20;

/// LostBlocks that are named in one line.
const NAMED_MAX: usize = 8;

/// Between two lines in the log.
const PAUSE: Duration = Duration::from_secs(60);

/// The blocks that did not fit.
#[derive(Debug, Default)]
pub(crate) struct LostWriteback {
    /// Whether there are any.
    any: AtomicBool,
    files: Mutex<LostBlocks>,
}

/// What is missing in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossReport {
    /// ReplyBytes.
    pub(crate) bytes: u64,
    /// LostBlocks of which something is missing that no program has been told of, as far as that is known: what the
    /// kernel answers to fsync(2) or close(2) it does not say.
    #[serde(rename = "untold_count")]
    pub(crate) unreported_count: usize,
    /// What the first of them are called.
    #[serde(rename = "untold")]
    pub(crate) unreported: Vec<String>,
}

/// Goes on after the name of the volume.
impl fmt::Display for LossReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = Human(self.bytes);
        write!(f, "was full: {lost} that programs had written did not fit and is lost")?;
        if self.unreported_count > 0 {
            write!(f, "; nobody was told of what was lost of {}", self.unreported.join(", "))?;
        }
        match self.unreported_count.saturating_sub(self.unreported.len()) {
            0 => {}
            more => write!(f, " and {more} more files")?,
        }
        f.write_str("; all else is on it")
    }
}

#[derive(Debug, Default)]
struct LostBlocks {
    blocks: HashMap<u64, BTreeSet<u64>>,
    /// LostBlocks of which something is missing that no program has been told of, as far as that is known.
    unreported: BTreeSet<u64>,
    count: usize,
    said: Option<Instant>,
}

impl LostWriteback {
    /// Whether there is anything.
    pub(super) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// `bytes` of file `ino` did not fit. Says whether the log should be told.
    pub(super) fn add(&self, ino: u64, bytes: Range<u64>) -> bool {
        let mut files = self.files.lock();
        self.any.store(true, Ordering::Relaxed);
        files.unreported.insert(ino);
        for block in blocks(&bytes) {
            if files.count < BLOCKS_MAX && files.blocks.entry(ino).or_default().insert(block) {
                files.count += 1;
            }
        }
        let is_due = files.said.is_none_or(|said| said.elapsed() > PAUSE);
        if is_due {
            files.said = Some(Instant::now());
        }
        is_due
    }

    /// A program that writes file `ino` has been told.
    pub(super) fn reported(&self, ino: u64) {
        self.files.lock().unreported.remove(&ino);
    }

    /// `bytes` of file `ino` have been written.
    pub(super) fn written(&self, ino: u64, bytes: Range<u64>) {
        self.remove(ino, blocks(&bytes));
    }

    /// File `ino` has `size` bytes now.
    pub(super) fn cut(&self, ino: u64, size: u64) {
        self.remove(ino, size.div_ceil(BLOCK_SIZE as u64)..u64::MAX);
    }

    /// The kernel has forgotten file `ino` of `volume`: nobody misses what did not fit of one that is
    /// deleted.
    pub(super) fn forget(&self, volume: &Volume, ino: u64) {
        if self.is_any() && !has_name(volume, ino) {
            self.cut(ino, 0);
        }
    }

    /// What did not fit, of the files of `volume` that still have a name.
    pub(crate) fn report(&self, volume: &Volume, dir: &Path) -> LossReport {
        if !self.is_any() {
            return LossReport::default();
        }
        let bytes = self.bytes(|ino| has_name(volume, ino));
        let mut unreported = self.files.lock().unreported.clone();
        unreported.retain(|ino| has_name(volume, *ino));
        let unreported_count = unreported.len();
        let named = unreported.into_iter().take(NAMED_MAX).collect();
        LossReport { bytes, unreported_count, unreported: inode_paths::of(volume, dir, &named) }
    }

    fn bytes(&self, counts: impl Fn(u64) -> bool) -> u64 {
        let files = self.files.lock();
        let counted = files.blocks.iter().filter(|(ino, _)| counts(**ino));
        counted.map(|(_, blocks)| blocks.len() as u64 * BLOCK_SIZE as u64).sum()
    }

    /// `gone` of file `ino` is not missed any more. Costs nothing for what is still missed.
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
        }
        self.any.store(!files.blocks.is_empty(), Ordering::Relaxed);
    }
}

fn has_name(volume: &Volume, ino: u64) -> bool {
    volume.attributes(ino).is_ok_and(|inode| inode.links > 0)
}

/// The blocks that `bytes` touch.
fn blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_SIZE as u64..bytes.end.div_ceil(BLOCK_SIZE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_block_counts_once_and_until_it_is_written_cut_or_deleted() {
        let lost = LostWriteback::default();
        let all = || lost.bytes(|_| true);
        lost.written(7, 0..MIB);
        assert_eq!(all(), 0);
        assert!(lost.add(7, 0..MIB), "the first is said");
        assert!(!lost.add(7, 4096..8192), "the next is not, for a while");
        lost.add(8, 100..200);
        assert_eq!(all(), MIB + 4096);
        lost.written(7, 8192..MIB / 2);
        assert_eq!(all(), MIB / 2 + 8192 + 4096);
        lost.cut(7, MIB / 2 + 1);
        assert_eq!(all(), 4096 + 8192 + 4096);
        assert_eq!(lost.bytes(|ino| ino == 8), 4096);
        lost.cut(8, 0);
        lost.cut(7, 0);
        assert_eq!(all(), 0);
        assert!(!lost.is_any());
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let lost = LostWriteback::default();
        lost.add(7, 0..8192 * MIB);
        assert_eq!(lost.bytes(|_| true), 4096 * MIB);
        lost.cut(7, 0);
        lost.add(7, 0..MIB);
        assert_eq!(lost.bytes(|_| true), MIB);
    }

    /// A look at all that was missed made each write take milliseconds.
    #[test]
    fn what_is_missed_costs_the_next_writes_nothing() {
        let lost = LostWriteback::default();
        lost.add(7, 0..4096 * MIB);
        let start = Instant::now();
        for no in 0..20_000 {
            lost.written(7, no * 8192..no * 8192 + 4096);
        }
        assert_eq!(lost.bytes(|_| true), 4096 * MIB - 20_000 * 4096);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
