//! The runs in which a file lies on the device after the job of the traces `peers/`: what a sequential read would have met.
//!
//! A trace has no content. But an fsync of these filesystems writes the pages that are dirty in ascending order, before anything else, so
//! that the first blocks of its requests are those of the pages, which the job names. F2FS in place proves it: there an fsync writes
//! as many blocks as pages are dirty, and one more. Where a cleaner writes between them, only the order is known.

use std::collections::HashSet;

use anyhow::{Result, ensure};
use sfs_ssd::RequestKind;

use super::recorded_job::{FILE_BYTES, SYNC_WRITES};
use crate::block_trace::{BlockTrace, TraceRecord};

/// Length of a page and of a block, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Number of blocks of a segment of F2FS.
const SEGMENT_BLOCKS: u64 = 512;

/// Address for the first page of a file that was not overwritten: no overwritten page follows on it.
const UNTOUCHED: u64 = 1 << 40;

/// Places of the pages of the file, in an order of their own: those that were not overwritten lie in one run.
struct Places(Vec<u64>);

impl Places {
    fn new() -> Self {
        Self((0..FILE_BYTES / BLOCK_BYTES).map(|page| UNTOUCHED + page).collect())
    }

    /// Notes the places of pages, in order.
    fn put(&mut self, pages: &[u32], places: impl Iterator<Item = u64>) {
        pages.iter().zip(places).for_each(|(page, place)| self.0[*page as usize] = place);
    }

    fn runs(&self) -> u64 {
        let breaks = self.0.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        breaks as u64 + 1
    }
}

/// Returns the pages that each fsync finds dirty, ascending.
fn dirty_pages(pages: &[u32]) -> impl Iterator<Item = Vec<u32>> {
    pages.chunks(SYNC_WRITES).map(|window| {
        let mut dirty = window.to_vec();
        dirty.sort_unstable();
        dirty.dedup();
        dirty
    })
}

/// Returns the number of runs after a job of these pages, if every fsync writes its pages in one run, and cleaning leaves
/// runs as they are.
pub fn runs_by_order(pages: &[u32]) -> u64 {
    let (mut places, mut next) = (Places::new(), 0);
    for dirty in dirty_pages(pages) {
        places.put(&dirty, next..);
        // The nodes.
        next += dirty.len() as u64 + 1;
    }
    places.runs()
}

/// Returns the number of runs after the random phase of a filesystem that writes out of place without a cleaner.
///
/// # Errors
///
/// If an fsync has written fewer blocks than pages were dirty.
pub fn runs_of_trace(random: &BlockTrace, pages: &[u32]) -> Result<u64> {
    let mut places = Places::new();
    for_each_fsync(random, pages, |dirty, data| {
        places.put(dirty, in_order_of_allocation(data).into_iter());
    })?;
    Ok(places.runs())
}

/// Returns whether the random phase wrote each page to one place again and again, so that the file lies as it was filled.
///
/// # Errors
///
/// If an fsync has written fewer blocks than pages were dirty.
pub fn is_in_place(random: &BlockTrace, pages: &[u32]) -> Result<bool> {
    let (mut overwritten, mut places) = (HashSet::new(), HashSet::new());
    for_each_fsync(random, pages, |dirty, data| {
        overwritten.extend(dirty.iter().copied());
        places.extend(data);
    })?;
    Ok(places.len() <= overwritten.len())
}

/// Calls `take` with the pages that each fsync found dirty, and with the blocks that it wrote for them.
fn for_each_fsync(
    random: &BlockTrace,
    pages: &[u32],
    mut take: impl FnMut(&[u32], Vec<u64>),
) -> Result<()> {
    let mut flushes = random.records.split(|record| record.kind == RequestKind::Flush);
    for (no, dirty) in dirty_pages(pages).enumerate() {
        // A flush with less before it is that of a checkpoint.
        let written = flushes.by_ref().map(blocks).find(|blocks| blocks.len() >= dirty.len());
        ensure!(written.is_some(), "the trace ends at fsync {no}");
        let mut data = written.unwrap_or_default();
        data.truncate(dirty.len());
        take(&dirty, data);
    }
    Ok(())
}

/// Returns the addresses of the blocks that these requests write, in their order.
fn blocks(requests: &[TraceRecord]) -> Vec<u64> {
    let writes = requests.iter().filter(|record| record.kind == RequestKind::Write);
    writes.flat_map(|record| record.offset / BLOCK_BYTES..record.end() / BLOCK_BYTES).collect()
}

/// Sorts blocks as they were allocated: one segment after the other, ascending in each. The kernel sends the requests of a
/// batch last to first.
fn in_order_of_allocation(mut data: Vec<u64>) -> Vec<u64> {
    let mut segments: Vec<u64> = Vec::new();
    for block in &data {
        let segment = block / SEGMENT_BLOCKS;
        if !segments.contains(&segment) {
            segments.push(segment);
        }
    }
    let rank = |segment| segments.iter().position(|seen| *seen == segment);
    data.sort_by_cached_key(|block| (rank(block / SEGMENT_BLOCKS), *block));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An undisturbed file is one run, and each overwritten page makes up to two more.
    #[test]
    fn neighbours_that_one_fsync_writes_stay_neighbours() {
        let mut pages = vec![10; SYNC_WRITES];
        assert_eq!(runs_by_order(&pages), 3);
        pages[5] = 11;
        assert_eq!(runs_by_order(&pages), 3);
        pages.push(11);
        assert_eq!(runs_by_order(&pages), 4, "the next fsync wrote it elsewhere");
    }

    #[test]
    fn the_first_blocks_of_an_fsync_are_the_pages() {
        let pages: Vec<u32> = [20, 21, 40].into_iter().cycle().take(SYNC_WRITES).collect();
        // Two pages in one run, the third apart; a node; the checkpoint's own flush before the next fsync.
        let csv = "op,offset,len\nW,4096000,8192\nW,4120576,4096\nW,40960,4096\nF,0,0\n";
        let trace = BlockTrace::parse(csv).expect("a trace");
        assert_eq!(runs_of_trace(&trace, &pages).expect("one fsync"), 5);
        let twice = [&pages[..], &pages].concat();
        assert!(runs_of_trace(&trace, &twice).is_err(), "the second fsync is missing");
        let csv = |second: &str| format!("{csv}W,{second},4096\nF,0,0\n");
        let in_place = |second| {
            let trace = BlockTrace::parse(&csv(second)).expect("a trace");
            is_in_place(&trace, &[&pages[..], &[21]].concat()).expect("two fsyncs")
        };
        assert!(in_place("4100096") && !in_place("8192"));
        assert_eq!(in_order_of_allocation(vec![700, 699, 5, 4]), [699, 700, 4, 5]);
    }
}
