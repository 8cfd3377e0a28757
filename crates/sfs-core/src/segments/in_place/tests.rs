//! The allocator against a simple model, and properties of the schemes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::InPlaceAllocator;
use super::bitmap::Bitmap;
use super::greedy::{ENTRY_LEN, GreedySpace};
use super::scheme::{FreeSpaceView, Scheme as _};
use crate::format::{DataLayout, Layout, SegmentState, UsageEntry};

/// The state of a taken block in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockUse {
    Live,
    /// Dead; the chunk with this number records the death.
    Freed(u64),
}

/// One operation on the allocator.
#[derive(Clone, Debug)]
enum AllocatorStep {
    Take { ino: u64, most: u32 },
    Free { nth: usize, count: usize },
    Flush,
    Leave { nth: usize },
}

fn step() -> impl Strategy<Value = AllocatorStep> {
    prop_oneof![
        4 => (0u64..200, prop_oneof![1u32..90, 90u32..600])
            .prop_map(|(ino, most)| AllocatorStep::Take { ino, most }),
        3 => (0usize..4000, 1usize..70).prop_map(|(nth, count)| AllocatorStep::Free { nth, count }),
        2 => Just(AllocatorStep::Flush),
        1 => (0usize..64).prop_map(|nth| AllocatorStep::Leave { nth }),
    ]
}

struct Fixture {
    layout: Layout,
    entries: Vec<UsageEntry>,
    allocator: InPlaceAllocator,
    blocks: BTreeMap<u64, BlockUse>,
    sequence: u64,
}

impl Fixture {
    fn new(data_layout: DataLayout, segment_blocks: u64) -> Self {
        let layout =
            Layout::new(40 * segment_blocks + 100, segment_blocks, 0).expect("the layout fits");
        let entries = vec![UsageEntry::NEW; layout.segment_count as usize];
        let allocator =
            InPlaceAllocator::new(data_layout, layout).expect("the layout is not the log");
        Self { layout, entries, allocator, blocks: BTreeMap::new(), sequence: 1 }
    }

    fn free(&self, segment: u32) -> u32 {
        let first = self.layout.segment_address(segment);
        let end = first + u64::from(self.layout.segment_blocks);
        self.layout.segment_blocks - self.blocks.range(first..end).count() as u32
    }

    fn in_place(&self) -> Vec<u32> {
        let numbered = (0..).zip(&self.entries);
        numbered.filter(|(_, e)| e.state == SegmentState::InPlace).map(|(no, _)| no).collect()
    }

    /// Takes blocks, with up to `clean_max` segments in place.
    fn take(&mut self, ino: u64, most: u32, clean_max: usize) {
        let is_clean = |(_, entry): &(u32, &UsageEntry)| entry.state == SegmentState::Clean;
        let clean = (0..).zip(&self.entries).find(is_clean).map(|(no, entry)| (entry.stamp, no));
        let clean = clean.filter(|_| self.in_place().len() < clean_max);
        let Some(segment) = self.allocator.choose(&self.entries, clean, 500, ino) else {
            assert!(
                clean.is_none() && self.in_place().iter().all(|segment| self.free(*segment) == 0)
            );
            return;
        };
        if self.entries[segment as usize].state == SegmentState::Clean {
            assert!(clean.is_some());
            self.entries[segment as usize].state = SegmentState::InPlace;
            self.allocator.add_empty(segment);
        }
        let (first, count) =
            self.allocator.take(segment, most).expect("the segment was chosen for a free block");
        assert!(count <= most);
        assert_eq!(
            self.layout.segment_of(first),
            self.layout.segment_of(first + u64::from(count) - 1)
        );
        for address in first..first + u64::from(count) {
            assert_eq!(
                self.blocks.insert(address, BlockUse::Live),
                None,
                "block {address} was taken"
            );
        }
        let base = self.layout.segment_address(segment);
        assert!(
            (base..first).all(|at| self.blocks.contains_key(&at)),
            "the first free blocks are taken"
        );
    }

    fn step(&mut self, step: &AllocatorStep) {
        match *step {
            AllocatorStep::Take { ino, most } => self.take(ino, most, 12),
            AllocatorStep::Free { nth, count } => {
                let live = self.blocks.iter_mut().filter(|(_, block)| **block == BlockUse::Live);
                for (address, block) in live.skip(nth % 300).take(count) {
                    *block = BlockUse::Freed(self.sequence);
                    self.allocator.free_later(*address, self.sequence);
                }
                self.sequence += 1;
            }
            AllocatorStep::Flush => {
                let durable = |block: &mut BlockUse| matches!(block, BlockUse::Freed(s) if *s + 1 < self.sequence);
                self.blocks.retain(|_, block| !durable(block));
                let flushed = self.sequence.saturating_sub(1);
                let state = |segment: u32| self.entries[segment as usize].state;
                self.allocator.apply_durable_frees(flushed, |segment| {
                    state(segment) == SegmentState::InPlace
                });
                for entry in &mut self.entries {
                    if entry.state == SegmentState::Drained && entry.stamp < flushed {
                        entry.state = SegmentState::Clean;
                    }
                }
            }
            AllocatorStep::Leave { nth } => {
                let in_place = self.in_place();
                let Some(segment) = in_place.get(nth % in_place.len().max(1)).copied() else {
                    return;
                };
                let first = self.layout.segment_address(segment);
                let end = first + u64::from(self.layout.segment_blocks);
                self.blocks.retain(|address, _| !(first..end).contains(address));
                let entry = &mut self.entries[segment as usize];
                (entry.state, entry.stamp) = (SegmentState::Drained, self.sequence);
                self.allocator.remove(segment);
            }
        }
        let in_place = self.in_place();
        for segment in &in_place {
            assert_eq!(
                self.allocator.taken(*segment),
                self.layout.segment_blocks - self.free(*segment)
            );
        }
        let free: u64 = in_place.iter().map(|segment| u64::from(self.free(*segment))).sum();
        assert_eq!(self.allocator.free_blocks(), free);
    }
}

proptest! {
    #[test]
    fn no_block_is_allocated_twice_or_before_its_free_is_durable(
        data_layout in prop::sample::select(&DataLayout::ALL[1..]),
        segment_blocks in prop::sample::select(&[32u64, 64, 128, 512][..]),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut fixture = Fixture::new(data_layout, segment_blocks);
        steps.iter().for_each(|step| fixture.step(step));
    }

    /// The runs often begin or end at the edge of a word.
    #[test]
    fn the_first_free_run_is_found(
        taken in prop::collection::vec(
            (0u32..8, prop_oneof![0u32..4, 60u32..64, 0u32..64], 1u32..130),
            0..12,
        ),
        most in prop_oneof![1u32..600, Just(u32::MAX)],
    ) {
        let mut bitmap = Bitmap::new(3, 512);
        let mut blocks = [false; 512];
        for (word, bit, count) in taken {
            let first = word * 64 + bit;
            let count = count.min(512 - first);
            bitmap.take(1, first, count);
            blocks[first as usize..(first + count) as usize].fill(true);
        }
        let expected = blocks.iter().position(|taken| !taken).map(|first| {
            let run = blocks[first..].iter().take_while(|taken| !**taken).count();
            (first as u32, (run as u32).min(most))
        });
        prop_assert_eq!(bitmap.first_free(1, most), expected);
    }

    #[test]
    fn the_heap_yields_the_emptiest_segment(
        changes in prop::collection::vec((0u32..20, 0u32..9), 1..300),
    ) {
        let mut greedy = GreedySpace::new(20);
        let mut free = [0; 20];
        let bitmap = Bitmap::new(20, 32);
        let space = FreeSpaceView { bitmap: &bitmap, entries: &[], clean: None, load: 0 };
        for (segment, count) in changes {
            greedy.note_free(segment, count);
            free[segment as usize] = count;
            let most = *free.iter().max().expect("twenty counts");
            let expected = free.iter().position(|count| *count == most && most > 0);
            prop_assert_eq!(greedy.choose(&space, 0), expected.map(|segment| segment as u32));
        }
    }
}

/// The paper's table 2 allows 36 bytes for each logical block.
#[test]
fn greedy_space_has_less_state_than_in_the_paper() {
    let greedy = GreedySpace::new(8192);
    assert_eq!(ENTRY_LEN, 12);
    assert!(greedy.state_len() <= 8192 * ENTRY_LEN);
}

/// Consecutive writes stay together: files share a segment until it is full.
#[test]
fn a_chosen_segment_is_filled_up() {
    for data_layout in [DataLayout::GreedySpace, DataLayout::ClockSpace] {
        let mut fixture = Fixture::new(data_layout, 32);
        for ino in 16..48 {
            fixture.take(ino, 1, 12);
            assert_eq!(fixture.in_place().len(), 1, "{data_layout:?}");
        }
        fixture.take(48, 1, 12);
        assert_eq!(fixture.in_place().len(), 2);
    }
}

/// Files of one inode group share a segment until it is full.
#[test]
fn block_groups_follow_the_inode() {
    let mut fixture = Fixture::new(DataLayout::BlockGroup, 32);
    // The first Clean segment is segment 0, so all Clean segments may be taken.
    for (ino, segment) in [(16 * 3, 3), (16 * 7 + 5, 7), (16 * 3 + 1, 3)] {
        fixture.take(ino, 30, 12);
        assert!(fixture.in_place().contains(&segment), "{ino}");
    }
    assert_eq!(fixture.free(3), 0);
    assert_eq!(fixture.free(4), 32);
    fixture.take(16 * 3, 1, 12);
    assert_eq!(fixture.free(4), 31, "the next segment");
}

/// On a forged volume two mappings may lead to one block.
#[test]
fn a_block_freed_twice_counts_once() {
    let mut fixture = Fixture::new(DataLayout::GreedySpace, 32);
    fixture.take(16, 5, 12);
    let first = *fixture.blocks.keys().next().expect("a block was taken");
    for sequence in 1..3 {
        fixture.allocator.free_later(first, sequence);
        fixture.allocator.apply_durable_frees(sequence + 1, |_| true);
        assert_eq!(fixture.allocator.free_blocks(), 28);
    }
}
