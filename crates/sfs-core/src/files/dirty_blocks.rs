//! Dirty blocks of one file: blocks in memory that are not on the device yet.
//!
//! Each block is stored once, in a run of the same size as the runs of mappings (decision 3). A commit walks
//! over all blocks in ascending order; the entries of a run are adjacent in memory for this walk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::format::RUN_BLOCKS;
use crate::memory::BlockRef;

/// Content of a dirty block.
#[derive(Clone, Debug)]
pub(crate) struct DirtyBlock {
    pub(crate) memory: BlockRef,
    /// CRC-32C of the content.
    pub(crate) checksum: u32,
    /// `true` if the block is reserved: it takes no space beside the reservation.
    pub(crate) is_covered: bool,
}

/// Dirty blocks of a file, by block number.
#[derive(Debug, Default)]
pub(crate) struct DirtyBlocks {
    /// Runs by block number divided by [`RUN_BLOCKS`]. No run is empty.
    runs: BTreeMap<u32, DirtyRun>,
    len: usize,
    /// Number of dirty blocks that are not reserved.
    uncovered: usize,
}

/// Dirty blocks among [`RUN_BLOCKS`] neighbouring blocks: a bitmap, and one entry for each bit set.
#[derive(Debug, Default)]
struct DirtyRun {
    present: u32,
    /// Blocks in ascending order. After random writes most runs have one block.
    blocks: SmallVec<[DirtyBlock; 1]>,
}

const _: () = assert!(RUN_BLOCKS == u32::BITS);

impl DirtyBlocks {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of dirty blocks that are not reserved.
    pub(crate) fn uncovered(&self) -> usize {
        self.uncovered
    }

    pub(crate) fn get(&self, block: u32) -> Option<&DirtyBlock> {
        let run = self.runs.get(&(block / RUN_BLOCKS))?;
        run.holds(block).then(|| &run.blocks[run.rank(block)])
    }

    pub(crate) fn contains(&self, block: u32) -> bool {
        self.get(block).is_some()
    }

    /// Makes `block` dirty, or replaces its dirty content; returns whether it was clean before.
    pub(crate) fn insert(&mut self, block: u32, dirty: DirtyBlock) -> bool {
        let run = self.runs.entry(block / RUN_BLOCKS).or_default();
        self.uncovered += usize::from(!dirty.is_covered);
        let old = run.insert(block, dirty);
        self.uncovered -= usize::from(old.as_ref().is_some_and(|old| !old.is_covered));
        self.len += usize::from(old.is_none());
        old.is_none()
    }

    /// Notes that all `blocks` are reserved now.
    pub(crate) fn cover(&mut self, blocks: RangeInclusive<u32>) {
        let (first, last) = blocks.into_inner();
        for (no, run) in self.runs.range_mut(first / RUN_BLOCKS..=last / RUN_BLOCKS) {
            let numbers = bits(run.present).map(|bit| no * RUN_BLOCKS + bit);
            for (_, dirty) in numbers
                .zip(&mut run.blocks)
                .filter(|(at, dirty)| (first..=last).contains(at) && !dirty.is_covered)
            {
                dirty.is_covered = true;
                self.uncovered -= 1;
            }
        }
    }

    /// Returns all dirty blocks in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &DirtyBlock)> {
        self.range_from(0)
    }

    /// Returns the dirty blocks from `block` on, in ascending order.
    pub(crate) fn range_from(&self, block: u32) -> impl Iterator<Item = (u32, &DirtyBlock)> {
        let runs = self.runs.range(block / RUN_BLOCKS..);
        runs.flat_map(|(no, run)| run.iter(no * RUN_BLOCKS)).skip_while(move |(at, _)| *at < block)
    }

    /// Removes `blocks`. Any order is allowed; ascending order is fast.
    pub(crate) fn remove(&mut self, blocks: impl Iterator<Item = u32>) {
        let mut blocks = blocks.peekable();
        while let Some(first) = blocks.next() {
            let no = first / RUN_BLOCKS;
            let mut gone = bit(first);
            while let Some(next) = blocks.next_if(|next| next / RUN_BLOCKS == no) {
                gone |= bit(next);
            }
            self.remove_of(no, gone);
        }
    }

    /// Removes the blocks in `blocks`.
    pub(crate) fn remove_range(&mut self, blocks: RangeInclusive<u32>) {
        let gone: Vec<u32> = self
            .range_from(*blocks.start())
            .map(|(block, _)| block)
            .take_while(|block| blocks.contains(block))
            .collect();
        self.remove(gone.into_iter());
    }

    /// Removes the blocks from `block` on.
    pub(crate) fn truncate(&mut self, block: u32) {
        let beyond = self.runs.split_off(&block.div_ceil(RUN_BLOCKS));
        self.len -= beyond.values().map(|run| run.blocks.len()).sum::<usize>();
        self.uncovered -= beyond.values().map(|run| uncovered(&run.blocks)).sum::<usize>();
        if !block.is_multiple_of(RUN_BLOCKS) {
            self.remove_of(block / RUN_BLOCKS, u32::MAX << (block % RUN_BLOCKS));
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes the blocks in the bitmap `gone` from run number `no`.
    fn remove_of(&mut self, no: u32, gone: u32) {
        let Entry::Occupied(mut run) = self.runs.entry(no) else { return };
        let (removed, uncovered) = run.get_mut().remove(gone);
        self.len -= removed;
        self.uncovered -= uncovered;
        if run.get().present == 0 {
            run.remove();
        }
    }
}

impl DirtyRun {
    fn holds(&self, block: u32) -> bool {
        self.present & bit(block) != 0
    }

    /// Returns the number of dirty blocks before `block`.
    fn rank(&self, block: u32) -> usize {
        (self.present & (bit(block) - 1)).count_ones() as usize
    }

    /// Returns the dirty content that `dirty` replaces.
    fn insert(&mut self, block: u32, dirty: DirtyBlock) -> Option<DirtyBlock> {
        let rank = self.rank(block);
        if self.holds(block) {
            return Some(std::mem::replace(&mut self.blocks[rank], dirty));
        }
        self.present |= bit(block);
        self.blocks.insert(rank, dirty);
        None
    }

    /// Removes the blocks in the bitmap `gone`; returns how many of them were dirty, and how many of these not
    /// reserved.
    fn remove(&mut self, gone: u32) -> (usize, usize) {
        let before = (self.blocks.len(), uncovered(&self.blocks));
        let mut present = bits(self.present);
        self.blocks.retain(|_| present.next().is_some_and(|no| gone & bit(no) == 0));
        self.present &= !gone;
        (before.0 - self.blocks.len(), before.1 - uncovered(&self.blocks))
    }

    /// Returns the blocks with their numbers, the run beginning at block `first`.
    fn iter(&self, first: u32) -> impl Iterator<Item = (u32, &DirtyBlock)> {
        bits(self.present).map(move |no| first + no).zip(&self.blocks)
    }
}

/// Returns the number of `blocks` that are not reserved.
fn uncovered(blocks: &[DirtyBlock]) -> usize {
    blocks.iter().filter(|dirty| !dirty.is_covered).count()
}

/// Returns the bit of `block` in its run's bitmap.
fn bit(block: u32) -> u32 {
    1 << (block % RUN_BLOCKS)
}

/// Returns the numbers of the bits set in `bitmap`.
fn bits(mut bitmap: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let no = bitmap.trailing_zeros();
        bitmap &= bitmap.checked_sub(1)?;
        Some(no)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::{DirtyBuf, Pool};

    /// A change of the dirty blocks of a file.
    #[derive(Clone, Debug)]
    enum Edit {
        Insert { block: u32, count: u32 },
        Remove { block: u32, count: u32, each: usize },
        Truncate { block: u32 },
        Cover { block: u32, count: u32 },
        Clear,
    }

    /// Block numbers near the start, and at the end of the largest file.
    fn block() -> impl Strategy<Value = u32> {
        prop_oneof![4 => 0u32..200, 1 => u32::MAX - 40..=u32::MAX]
    }

    fn edit() -> impl Strategy<Value = Edit> {
        prop_oneof![
            8 => (block(), 1u32..100).prop_map(|(block, count)| Edit::Insert { block, count }),
            4 => (block(), 1u32..100, 1usize..4)
                .prop_map(|(block, count, each)| Edit::Remove { block, count, each }),
            2 => block().prop_map(|block| Edit::Truncate { block }),
            2 => (block(), 1u32..100).prop_map(|(block, count)| Edit::Cover { block, count }),
            1 => Just(Edit::Clear),
        ]
    }

    fn new_block(checksum: u32, pool: &Pool) -> DirtyBlock {
        let memory =
            DirtyBuf::new(1, pool).expect("memory").share().next().expect("a buffer of one block");
        DirtyBlock { memory, checksum, is_covered: checksum.is_multiple_of(3) }
    }

    proptest! {
        #[test]
        fn dirty_blocks_equal_a_map(steps in prop::collection::vec(edit(), 1..30)) {
            let pool = Pool::default();
            let mut dirty = DirtyBlocks::default();
            let mut model = BTreeMap::new();
            let mut covered = std::collections::BTreeSet::new();
            for (no, step) in (0u32..).zip(steps) {
                match step {
                    Edit::Insert { block, count } => {
                        for block in block..=block.saturating_add(count - 1) {
                            let is_new = model.insert(block, no).is_none();
                            covered.remove(&block);
                            covered.extend(no.is_multiple_of(3).then_some(block));
                            prop_assert_eq!(dirty.insert(block, new_block(no, &pool)), is_new);
                        }
                    }
                    Edit::Remove { block, count, each } => {
                        let gone = block..=block.saturating_add(count - 1);
                        model.retain(|at, _| !gone.clone().step_by(each).any(|block| block == *at));
                        dirty.remove(gone.step_by(each));
                    }
                    Edit::Truncate { block } => {
                        model.retain(|at, _| *at < block);
                        dirty.truncate(block);
                    }
                    Edit::Cover { block, count } => {
                        let blocks = block..=block.saturating_add(count - 1);
                        covered.extend(model.range(blocks.clone()).map(|(at, _)| *at));
                        dirty.cover(blocks);
                    }
                    Edit::Clear => {
                        model.clear();
                        dirty.clear();
                    }
                }
                let all: Vec<_> = dirty.iter().map(|(at, dirty)| (at, dirty.checksum)).collect();
                prop_assert!(all.iter().copied().eq(model.clone()), "{:?} {:?}", all, model);
                covered.retain(|at| model.contains_key(at));
                prop_assert_eq!(dirty.uncovered(), model.len() - covered.len());
                prop_assert_eq!(dirty.len(), model.len());
                prop_assert_eq!(dirty.is_empty(), model.is_empty());
                prop_assert!(dirty.runs.values().all(|run| run.present != 0));
                for block in [0, 31, 32, 77, 199, u32::MAX] {
                    let found = dirty.get(block).map(|dirty| dirty.checksum);
                    prop_assert_eq!(found, model.get(&block).copied());
                    let first = dirty.range_from(block).next().map(|(at, _)| at);
                    prop_assert_eq!(first, model.range(block..).next().map(|(at, _)| *at));
                }
            }
        }
    }
}
