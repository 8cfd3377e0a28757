//! Places against a model that is too simple to be wrong.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::greedy::{ENTRY_LEN, GreedySpace};
use super::*;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Live,
    /// The chunk with this number says that it is dead.
    Freed(u64),
}

/// What is done.
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
    places: InPlaceAllocator,
    blocks: BTreeMap<u64, Block>,
    sequence: u64,
}

impl Fixture {
    fn new(data_layout: DataLayout, segment_blocks: u64) -> Self {
        let layout = Layout::new(40 * segment_blocks + 100, segment_blocks, 0).expect("it fits");
        let entries = vec![UsageEntry::NEW; layout.segment_count as usize];
        let places = InPlaceAllocator::new(data_layout, layout).expect("not the log");
        Self { layout, entries, places, blocks: BTreeMap::new(), sequence: 1 }
    }

    fn free(&self, segment: u32) -> u32 {
        let first = self.layout.segment_address(segment);
        let end = first + u64::from(self.layout.segment_blocks);
        self.layout.segment_blocks - self.blocks.range(first..end).count() as u32
    }

    fn placed(&self) -> Vec<u32> {
        let numbered = (0..).zip(&self.entries);
        numbered.filter(|(_, e)| e.state == SegmentState::InPlace).map(|(no, _)| no).collect()
    }

    /// Takes blocks, of up to `clean_max` segments.
    fn take(&mut self, ino: u64, most: u32, clean_max: usize) {
        let is_clean = |(_, entry): &(u32, &UsageEntry)| entry.state == SegmentState::Clean;
        let clean = (0..).zip(&self.entries).find(is_clean).map(|(no, entry)| (entry.stamp, no));
        let clean = clean.filter(|_| self.placed().len() < clean_max);
        let Some(segment) = self.places.choose(&self.entries, clean, 500, ino) else {
            assert!(
                clean.is_none() && self.placed().iter().all(|segment| self.free(*segment) == 0)
            );
            return;
        };
        if self.entries[segment as usize].state == SegmentState::Clean {
            assert!(clean.is_some());
            self.entries[segment as usize].state = SegmentState::InPlace;
            self.places.begin(segment);
        }
        let (first, count) =
            self.places.take(segment, most).expect("it was chosen for a free block");
        assert!(count <= most);
        assert_eq!(
            self.layout.segment_of(first),
            self.layout.segment_of(first + u64::from(count) - 1)
        );
        for address in first..first + u64::from(count) {
            assert_eq!(self.blocks.insert(address, Block::Live), None, "block {address} was taken");
        }
        let base = self.layout.segment_address(segment);
        assert!((base..first).all(|at| self.blocks.contains_key(&at)), "the first that are free");
    }

    fn step(&mut self, step: &AllocatorStep) {
        match *step {
            AllocatorStep::Take { ino, most } => self.take(ino, most, 12),
            AllocatorStep::Free { nth, count } => {
                let live = self.blocks.iter_mut().filter(|(_, block)| **block == Block::Live);
                for (address, block) in live.skip(nth % 300).take(count) {
                    *block = Block::Freed(self.sequence);
                    self.places.free_later(*address, self.sequence);
                }
                self.sequence += 1;
            }
            AllocatorStep::Flush => {
                let durable =
                    |block: &mut Block| matches!(block, Block::Freed(s) if *s + 1 < self.sequence);
                self.blocks.retain(|_, block| !durable(block));
                let flushed = self.sequence.saturating_sub(1);
                let state = |segment: u32| self.entries[segment as usize].state;
                self.places.settle(flushed, |segment| state(segment) == SegmentState::InPlace);
                for entry in &mut self.entries {
                    if entry.state == SegmentState::Drained && entry.stamp < flushed {
                        entry.state = SegmentState::Clean;
                    }
                }
            }
            AllocatorStep::Leave { nth } => {
                let placed = self.placed();
                let Some(segment) = placed.get(nth % placed.len().max(1)).copied() else { return };
                let first = self.layout.segment_address(segment);
                let end = first + u64::from(self.layout.segment_blocks);
                self.blocks.retain(|address, _| !(first..end).contains(address));
                let entry = &mut self.entries[segment as usize];
                (entry.state, entry.stamp) = (SegmentState::Drained, self.sequence);
                self.places.leave(segment);
            }
        }
        let placed = self.placed();
        for segment in &placed {
            assert_eq!(
                self.places.taken(*segment),
                self.layout.segment_blocks - self.free(*segment)
            );
        }
        let free: u64 = placed.iter().map(|segment| u64::from(self.free(*segment))).sum();
        assert_eq!(self.places.free_blocks(), free);
    }
}

proptest! {
    #[test]
    fn no_block_is_given_out_twice_nor_before_its_freeing_is_durable(
        data_layout in prop::sample::select(&DataLayout::ALL[1..]),
        segment_blocks in prop::sample::select(&[32u64, 64, 128, 512][..]),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut fixture = Fixture::new(data_layout, segment_blocks);
        steps.iter().for_each(|step| fixture.step(step));
    }

    /// With gaps at the edges of words, where a run goes on or ends.
    #[test]
    fn the_first_free_blocks_are_a_run(
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
    fn the_first_of_the_heap_is_the_emptiest(
        changes in prop::collection::vec((0u32..20, 0u32..9), 1..300),
    ) {
        let mut greedy = GreedySpace::new(20);
        let mut free = [0; 20];
        let bitmap = Bitmap::new(20, 32);
        let space = SpaceView { bitmap: &bitmap, entries: &[], clean: None, load: 0 };
        for (segment, count) in changes {
            greedy.note_free(segment, count);
            free[segment as usize] = count;
            let most = *free.iter().max().expect("twenty");
            let expected = free.iter().position(|count| *count == most && most > 0);
            prop_assert_eq!(greedy.choose(&space, 0), expected.map(|segment| segment as u32));
        }
    }
}

/// The paper's table 2: 36 bytes for each logical block.
#[test]
fn greedy_space_remembers_less_than_the_paper_allows() {
    let greedy = GreedySpace::new(8192);
    assert_eq!(ENTRY_LEN, 12);
    assert!(greedy.state_len() <= 8192 * ENTRY_LEN);
}

/// What is written in a row stays together: files share a segment until it is full.
#[test]
fn a_chosen_segment_is_filled_up() {
    for data_layout in [DataLayout::GreedySpace, DataLayout::ClockSpace] {
        let mut fixture = Fixture::new(data_layout, 32);
        for ino in 16..48 {
            fixture.take(ino, 1, 12);
            assert_eq!(fixture.placed().len(), 1, "{data_layout:?}");
        }
        fixture.take(48, 1, 12);
        assert_eq!(fixture.placed().len(), 2);
    }
}

/// Each file goes near its inode, until there is no room.
#[test]
fn block_groups_follow_the_inode() {
    let mut fixture = Fixture::new(DataLayout::BlockGroup, 32);
    // Only the first Clean segment may be taken where none but it is: all may here.
    for (ino, segment) in [(16 * 3, 3), (16 * 7 + 5, 7), (16 * 3 + 1, 3)] {
        fixture.take(ino, 30, 12);
        assert!(fixture.placed().contains(&segment), "{ino}");
    }
    assert_eq!(fixture.free(3), 0);
    assert_eq!(fixture.free(4), 32);
    fixture.take(16 * 3, 1, 12);
    assert_eq!(fixture.free(4), 31, "onward");
}

/// As on a forged volume, where two mappings lead to one block.
#[test]
fn a_block_that_dies_twice_is_free_once() {
    let mut fixture = Fixture::new(DataLayout::GreedySpace, 32);
    fixture.take(16, 5, 12);
    let first = *fixture.blocks.keys().next().expect("it was taken");
    for sequence in 1..3 {
        fixture.places.free_later(first, sequence);
        fixture.places.settle(sequence + 1, |_| true);
        assert_eq!(fixture.places.free_blocks(), 28);
    }
}
