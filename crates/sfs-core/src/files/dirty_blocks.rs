//! Dirty blocks of one file: blocks in memory that are not on the device yet.
//!
//! Each block is stored once, in a run of the same size as the runs of mappings (decision 3). A commit walks
//! over all blocks in ascending order; the entries of a run are adjacent in memory for this walk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use smallvec::SmallVec;

use crate::format::RUN_BLOCKS;
use crate::memory::BlockRef;

/// Content of a dirty block.
#[derive(Clone, Debug)]
pub(crate) struct DirtyBlock {
    pub(crate) memory: BlockRef,
    /// CRC-32C of the content.
    pub(crate) checksum: u32,
}

/// Dirty blocks of a file, by block number.
#[derive(Debug, Default)]
pub(crate) struct DirtyBlocks {
    /// Runs by block number divided by [`RUN_BLOCKS`]. No run is empty.
    runs: BTreeMap<u32, DirtyRun>,
    len: usize,
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
        let is_new = run.insert(block, dirty);
        self.len += usize::from(is_new);
        is_new
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

    /// Removes the blocks from `block` on.
    pub(crate) fn truncate(&mut self, block: u32) {
        let beyond = self.runs.split_off(&block.div_ceil(RUN_BLOCKS));
        self.len -= beyond.values().map(|run| run.blocks.len()).sum::<usize>();
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
        self.len -= run.get_mut().remove(gone);
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

    fn insert(&mut self, block: u32, dirty: DirtyBlock) -> bool {
        let rank = self.rank(block);
        let is_new = !self.holds(block);
        if is_new {
            self.present |= bit(block);
            self.blocks.insert(rank, dirty);
        } else {
            self.blocks[rank] = dirty;
        }
        is_new
    }

    /// Removes the blocks in the bitmap `gone`; returns how many of them were dirty.
    fn remove(&mut self, gone: u32) -> usize {
        let before = self.blocks.len();
        let mut present = bits(self.present);
        self.blocks.retain(|_| present.next().is_some_and(|no| gone & bit(no) == 0));
        self.present &= !gone;
        before - self.blocks.len()
    }

    /// Returns the blocks with their numbers, the run beginning at block `first`.
    fn iter(&self, first: u32) -> impl Iterator<Item = (u32, &DirtyBlock)> {
        bits(self.present).map(move |no| first + no).zip(&self.blocks)
    }
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
            1 => Just(Edit::Clear),
        ]
    }

    fn new_block(checksum: u32, pool: &Pool) -> DirtyBlock {
        let memory =
            DirtyBuf::new(1, pool).expect("memory").share().next().expect("a buffer of one block");
        DirtyBlock { memory, checksum }
    }

    proptest! {
        #[test]
        fn dirty_blocks_equal_a_map(steps in prop::collection::vec(edit(), 1..30)) {
            let pool = Pool::default();
            let mut dirty = DirtyBlocks::default();
            let mut model = BTreeMap::new();
            for (no, step) in (0..).zip(steps) {
                match step {
                    Edit::Insert { block, count } => {
                        for block in block..=block.saturating_add(count - 1) {
                            let is_new = model.insert(block, no).is_none();
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
                    Edit::Clear => {
                        model.clear();
                        dirty.clear();
                    }
                }
                let all: Vec<_> = dirty.iter().map(|(at, dirty)| (at, dirty.checksum)).collect();
                prop_assert!(all.iter().copied().eq(model.clone()), "{:?} {:?}", all, model);
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
