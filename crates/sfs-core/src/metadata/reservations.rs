//! Reserved ranges of a file in the tree: search, and the ranges that are left when blocks are taken out.
//!
//! The ranges of a file do not overlap, and contain no mapped block. A transaction adds and removes ranges in bounded
//! steps; a commit takes the blocks out that it maps.

use std::ops::RangeInclusive;

use super::changes::Unmap;
use super::metadata_error::MetadataError;
use super::state::Effects;
use super::txn::{Txn, run_base};
use crate::format::{Inode, InodeFlags, ItemKind, Key, Mapping, MappingRun, Reservation, run_key};
use crate::mutant::{Mutant, mutated};
use crate::tree::{NodeNotCached, Tree};

/// Maximum number of mapping runs, and of ranges, that one step examines.
const ITEMS_MAX: usize = 128;

/// Part of a range of blocks that one step has dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Number of blocks, of the kind that the step counts.
    pub(crate) blocks: u64,
    /// Number of ranges that the blocks form.
    pub(crate) ranges: u64,
    /// First block that the next step has to deal with; `None` if nothing is left.
    pub(crate) next: Option<u32>,
}

/// Returns the reserved ranges of `ino` that have blocks in `blocks`, ascending.
pub(crate) fn overlapping(
    tree: &Tree,
    ino: u64,
    blocks: RangeInclusive<u32>,
) -> impl Iterator<Item = Result<Reservation, MetadataError>> {
    let after = Key::new(ino, ItemKind::Reservation, u64::from(*blocks.start()) + 1);
    let end = Key::new(ino, ItemKind::Reservation, u64::from(*blocks.end()));
    let before = || -> Result<Option<Reservation>, MetadataError> {
        let first = Key::new(ino, ItemKind::Reservation, 0);
        let found = tree.last_before(&after)?.filter(|(key, _)| *key >= first);
        let range = found.map(|(key, value)| Reservation::decode(&key, value)).transpose()?;
        Ok(range.filter(|range| range.last >= *blocks.start()))
    };
    let decode = |item: Result<(Key, &[u8]), NodeNotCached>| {
        let (key, value) = item?;
        Ok(Reservation::decode(&key, value)?)
    };
    let within = (after <= end).then(|| tree.range(after..=end).map(decode));
    before().transpose().into_iter().chain(within.into_iter().flatten())
}

/// Returns the reserved range of `ino` that contains `block`.
pub(crate) fn reservation_of(
    tree: &Tree,
    ino: u64,
    block: u32,
) -> Result<Option<Reservation>, MetadataError> {
    overlapping(tree, ino, block..=block).next().transpose()
}

/// Returns the parts of `range` that are left without `taken`, which ascends.
pub(crate) fn without(range: Reservation, taken: impl Iterator<Item = u32>) -> Vec<Reservation> {
    let mut left = Vec::new();
    let mut first = Some(range.first);
    for block in taken.filter(|block| range.contains(*block)) {
        if let Some(first) = first.filter(|first| *first < block) {
            left.push(Reservation { first, last: block - 1 });
        }
        first = block.checked_add(1);
    }
    if let Some(first) = first.filter(|first| *first <= range.last) {
        left.push(Reservation { first, last: range.last });
    }
    left
}

impl Txn<'_> {
    /// Returns whether `block` of `ino` is reserved, without this transaction's changes.
    pub(crate) fn is_reserved(&self, ino: u64, block: u32) -> Result<bool, MetadataError> {
        Ok(reservation_of(self.tree(), ino, block)?.is_some())
    }

    /// Unmaps a bounded number of blocks of `ino` from `first` on, and removes their reservations; returns whether
    /// none is left. The caller puts `inode`.
    pub(crate) fn cut_from(
        &mut self,
        ino: u64,
        inode: &mut Inode,
        first: u32,
    ) -> Result<bool, MetadataError> {
        let (unmapped, all) = self.unmap_from(ino, first)?;
        inode.blocks = inode.blocks.saturating_sub(unmapped);
        if !inode.flags.contains(InodeFlags::RESERVED) || mutated(Mutant::CutReservationKept) {
            return Ok(all);
        }
        let step = self.unreserve(ino, first..=u32::MAX)?;
        inode.blocks = inode.blocks.saturating_sub(step.blocks);
        if step.next.is_none() && first == 0 {
            inode.flags.set(InodeFlags::RESERVED, false);
        }
        Ok(all && step.next.is_none())
    }

    /// Removes the blocks in `blocks` from the reserved ranges of `ino`, in a bounded number of ranges, and counts
    /// the removed blocks. One call in a transaction for each file.
    pub(crate) fn unreserve(
        &mut self,
        ino: u64,
        blocks: RangeInclusive<u32>,
    ) -> Result<Step, MetadataError> {
        let mut step = Step { blocks: 0, ranges: 0, next: None };
        let mut found = overlapping(self.tree(), ino, blocks.clone());
        while let Some(range) = found.next().transpose()? {
            if step.ranges == ITEMS_MAX as u64 {
                step.next = Some(range.first);
                break;
            }
            let cut = Reservation {
                first: range.first.max(*blocks.start()),
                last: range.last.min(*blocks.end()),
            };
            self.delete(range.key(ino));
            if range.first < cut.first {
                self.put_range(ino, Reservation { last: cut.first - 1, ..range });
            }
            if range.last > cut.last {
                self.put_range(ino, Reservation { first: cut.last + 1, ..range });
            }
            step.blocks += cut.blocks();
            step.ranges += 1;
        }
        Ok(step)
    }

    /// Returns the number of blocks in a first part of `blocks` that are neither mapped nor reserved, and the number
    /// of ranges that they form.
    pub(crate) fn unreserved(
        &self,
        ino: u64,
        blocks: RangeInclusive<u32>,
    ) -> Result<Step, MetadataError> {
        let Part { gaps, next, .. } = self.part(ino, blocks, true)?;
        let count = gaps.iter().map(|gap| gap.blocks()).sum();
        Ok(Step { blocks: count, ranges: gaps.len() as u64, next })
    }

    /// Reserves the blocks in a first part of `blocks` that are neither mapped nor reserved. Returns them, and the
    /// first block after the part unless the part is everything. One call in a transaction for each file.
    pub(crate) fn reserve(
        &mut self,
        ino: u64,
        blocks: RangeInclusive<u32>,
    ) -> Result<(Vec<Reservation>, Option<u32>), MetadataError> {
        let part = self.part(ino, blocks, true)?;
        let next = part.next;
        Ok((self.fill_gaps(ino, part), next))
    }

    /// Unmaps the mapped blocks in a first part of `blocks`, and reserves all blocks of the part. Returns the number of
    /// unmapped blocks, and then as [`Txn::reserve`].
    pub(crate) fn zero(
        &mut self,
        ino: u64,
        blocks: RangeInclusive<u32>,
    ) -> Result<(u64, Vec<Reservation>, Option<u32>), MetadataError> {
        let (first, end) = blocks.clone().into_inner();
        let part = self.part(ino, blocks, false)?;
        let next = part.next;
        let last = next.map_or(end, |next| next - 1);
        let (unmapped, left) = self.unmap_range(ino, first..=last)?;
        debug_assert_eq!(left, None, "a part has fewer runs than a step unmaps");
        Ok((unmapped, self.fill_gaps(ino, part), next))
    }

    /// Reserves the gaps of `part`, and returns them.
    fn fill_gaps(&mut self, ino: u64, part: Part) -> Vec<Reservation> {
        let Part { gaps, reserved, .. } = part;
        if gaps.is_empty() {
            return gaps;
        }
        let mut all = [gaps.as_slice(), &reserved].concat();
        all.sort_unstable_by_key(|range| range.first);
        let joined = joined(&all);
        for old in reserved.iter().filter(|old| !joined.contains(old)) {
            self.delete(old.key(ino));
        }
        for new in joined.into_iter().filter(|new| !reserved.contains(new)) {
            self.put_range(ino, new);
        }
        gaps
    }

    fn put_range(&mut self, ino: u64, range: Reservation) {
        self.put(range.key(ino), range.encode().to_vec());
    }

    /// Returns a first part of `blocks`, in which a bounded number of items lie. Mapped blocks are no gaps if
    /// `spares_mapped`.
    fn part(
        &self,
        ino: u64,
        blocks: RangeInclusive<u32>,
        spares_mapped: bool,
    ) -> Result<Part, MetadataError> {
        let (start, end) = blocks.clone().into_inner();
        let mut last = end;
        // Neighbours of the part are joined with it.
        let around = start.saturating_sub(1)..=end.saturating_add(1);
        let mut reserved: Vec<Reservation> = Vec::new();
        for range in overlapping(self.tree(), ino, around) {
            let range = range?;
            if reserved.len() == ITEMS_MAX {
                last = range.first - 1;
                break;
            }
            reserved.push(range);
        }
        let mut taken = reserved.clone();
        let runs = self.tree().range(run_key(ino, start)..=run_key(ino, last));
        for (count, item) in runs.enumerate() {
            let (key, value) = item?;
            let base = run_base(&key)?;
            if count == ITEMS_MAX - 1 {
                last = last.min(base - 1);
                break;
            }
            if !spares_mapped {
                continue;
            }
            let run = MappingRun::decode(value, &key, self.tolerance())?;
            taken
                .extend(run.iter(base).map(|(block, _)| Reservation { first: block, last: block }));
        }
        taken.sort_unstable_by_key(|range| range.first);
        reserved.retain(|range| range.first <= last.saturating_add(1));
        let mut gaps = Vec::new();
        let mut at = Some(start);
        for range in joined(&taken) {
            let Some(from) = at.filter(|from| *from <= last) else { break };
            if from < range.first {
                gaps.push(Reservation { first: from, last: last.min(range.first - 1) });
            }
            at = range.last.checked_add(1).map(|after| after.max(from));
        }
        if let Some(from) = at.filter(|from| *from <= last) {
            gaps.push(Reservation { first: from, last });
        }
        let next = (last < end).then(|| last + 1);
        Ok(Part { gaps, reserved, next })
    }

    /// Unmaps the blocks in `blocks` in a bounded number of runs, the last ones first, and returns the number of
    /// mappings removed and the blocks that are left to unmap.
    pub(crate) fn unmap_range(
        &mut self,
        ino: u64,
        blocks: RangeInclusive<u32>,
    ) -> Result<(u64, Option<RangeInclusive<u32>>), MetadataError> {
        let (start, end) = blocks.into_inner();
        let mut before = Key::new(ino, ItemKind::Mapping, run_key(ino, end).offset + 1);
        let (mut count, least) = (0, run_key(ino, start));
        for _ in 0..ITEMS_MAX {
            let found = self.tree().last_before(&before)?.filter(|(key, _)| *key >= least);
            let Some((key, value)) = found else { return Ok((count, None)) };
            count += self.unmap_in_run(&key, value, start..=end)?;
            before = key;
        }
        let left = u32::try_from(before.offset).ok().map(run_first);
        let left = left.filter(|first| *first > start).map(|first| start..=first - 1);
        Ok((count, left))
    }

    /// Unmaps the blocks of one run that are in `blocks`; returns their number.
    fn unmap_in_run(
        &mut self,
        key: &Key,
        value: &[u8],
        blocks: RangeInclusive<u32>,
    ) -> Result<u64, MetadataError> {
        let mut run = MappingRun::decode(value, key, self.tolerance())?;
        let base = run_base(key)?;
        let gone: Vec<(u32, Mapping)> =
            run.iter(base).filter(|(block, _)| blocks.contains(block)).collect();
        let (Some((first, _)), Some((last, _))) = (gone.first(), gone.last()) else {
            return Ok(0);
        };
        let effects: &mut Effects = self.effects_mut();
        for (block, mapping) in &gone {
            run.set(*block, None);
            effects.freed.push(*mapping);
        }
        let value = (!run.is_empty()).then(|| {
            let mut value = Vec::new();
            run.encode(&mut value);
            value
        });
        effects.runs.push((*key, value));
        if !mutated(Mutant::PunchUnsaid) {
            effects.unmaps.push(Unmap { ino: key.ino, first: *first, last: *last });
        }
        Ok(gone.len() as u64)
    }
}

/// A first part of a range of blocks. The runs of mappings in it are fewer than a step unmaps.
struct Part {
    /// Ranges of blocks in the part that are neither mapped nor reserved.
    gaps: Vec<Reservation>,
    /// Reserved ranges in the part and right beside it.
    reserved: Vec<Reservation>,
    /// First block after the part; `None` if the part is everything.
    next: Option<u32>,
}

fn run_first(offset: u32) -> u32 {
    offset.saturating_mul(crate::format::RUN_BLOCKS)
}

/// Joins neighbours among `ranges`, which ascend.
fn joined(ranges: &[Reservation]) -> Vec<Reservation> {
    let mut joined: Vec<Reservation> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.last.saturating_add(1) >= range.first => {
                last.last = last.last.max(range.last);
            }
            _ => joined.push(*range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, last: u32) -> Reservation {
        Reservation { first, last }
    }

    #[test]
    fn blocks_are_taken_out_of_a_range() {
        let of = |taken: &[u32]| without(range(10, 20), taken.iter().copied());
        assert_eq!(of(&[]), [range(10, 20)]);
        assert_eq!(of(&[9, 10, 11, 21]), [range(12, 20)]);
        assert_eq!(of(&[20]), [range(10, 19)]);
        assert_eq!(of(&[12, 15]), [range(10, 11), range(13, 14), range(16, 20)]);
        assert_eq!(without(range(u32::MAX, u32::MAX), [u32::MAX].into_iter()), []);
        assert_eq!(without(range(0, 0), [0].into_iter()), []);
    }

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(joined(&[range(1, 2), range(3, 5), range(7, 7)]), [range(1, 5), range(7, 7)]);
        assert_eq!(joined(&[range(1, 9), range(3, 5)]), [range(1, 9)]);
        let end = u32::MAX;
        assert_eq!(joined(&[range(0, end), range(end, end)]), [range(0, end)]);
    }
}
