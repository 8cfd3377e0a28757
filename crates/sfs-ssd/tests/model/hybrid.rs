//! Tests of FAST, BAST and superblocks on sequences worked out by hand: merges, copies and erases.
//!
//! A clustered block has four pages; page `4 b + i` is page `i` of logical block `b`. A logical block is
//! filled if all its pages are in the data block, so that its next write goes to a log block.

use crate::fixture::{ssd, trim_page, write_page};
use sfs_ssd::Ssd;
use sfs_ssd::ftl::{Layer, WearLevelling};

const PAGES: u32 = 4;

/// Makes a device with eight filled logical blocks and zero counters.
fn filled(layer: Layer) -> Ssd {
    let mut ssd = ssd(layer, WearLevelling::None, 16, PAGES, 1000);
    (0..8 * PAGES).for_each(|page| write_page(&mut ssd, page, 0));
    assert_eq!(ssd.counters().erases, 0, "first writes go to the data blocks");
    ssd.reset_counters();
    ssd
}

fn fast(log_blocks: u32) -> Ssd {
    filled(Layer::Fast { log_blocks })
}

fn bast(log_blocks: u32) -> Ssd {
    filled(Layer::Bast { log_blocks })
}

/// Superblocks of four logical blocks each.
fn superblock(log_blocks: u32) -> Ssd {
    filled(Layer::Superblock { log_blocks, width: 4 })
}

/// Writes the pages at (logical block, index), one after the other.
fn write(ssd: &mut Ssd, places: &[(u32, u32)]) {
    places.iter().for_each(|&(block, index)| write_page(ssd, block * PAGES + index, 0));
}

/// Returns switch merges, partial merges, full merges, pages moved and erases.
fn counts(ssd: &Ssd) -> [u64; 5] {
    let c = ssd.counters();
    [c.merges_switch, c.merges_partial, c.merges_full, c.pages_moved, c.erases]
}

#[test]
fn fast_switch_merges_a_complete_sequential_log_block() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 0), (0, 1), (0, 2), (0, 3)]);
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 0], "the pages are in the sequential log block");
    write(&mut ssd, &[(1, 0)]);
    assert_eq!(counts(&ssd), [1, 0, 0, 0, 1], "the old data block of block 0 is erased");
}

#[test]
fn fast_partial_merges_an_incomplete_sequential_log_block() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 0), (0, 1), (3, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 2, 1], "pages 2 and 3 are copied after 0 and 1");
}

#[test]
fn fast_partial_merge_copies_newer_pages_from_the_random_log() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 3), (0, 0), (1, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 3, 1]);
    // The random log block has no live page any more. Pages 1 to 3 of block 2 fill it, and the first writes
    // of block 3 fill the second one. The last write needs a log block: the first is erased after a full
    // merge of block 2.
    write(&mut ssd, &[(2, 1), (2, 2), (2, 3), (3, 1), (3, 1), (3, 1), (3, 1)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 3, 1]);
    write(&mut ssd, &[(3, 1)]);
    assert_eq!(counts(&ssd), [0, 1, 1, 3 + 4, 1 + 2]);
}

#[test]
fn fast_merges_the_sequential_log_block_when_its_sequence_breaks() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 0), (0, 2)]);
    assert_eq!(
        counts(&ssd),
        [0, 1, 0, 3, 1],
        "a partial merge, and a new log block from page 2 on"
    );
    write(&mut ssd, &[(0, 3), (1, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 1, 3 + 4, 1 + 2], "the new log block is merged in full");
}

#[test]
fn fast_full_merges_every_logical_block_in_the_oldest_random_log_block() {
    let mut ssd = fast(2);
    let scattered = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)];
    write(&mut ssd, &scattered);
    assert_eq!(counts(&ssd), [0; 5]);
    write(&mut ssd, &[(0, 2)]);
    // Four logical blocks of four pages each are moved. Their data blocks and the log block are
    // erased.
    assert_eq!(counts(&ssd), [0, 0, 4, 16, 5]);
}

#[test]
fn fast_does_not_merge_for_outdated_pages_of_the_oldest_log_block() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 1), (0, 1), (0, 1), (1, 1)]);
    write(&mut ssd, &[(0, 1), (1, 1), (2, 1), (2, 2)]);
    write(&mut ssd, &[(3, 1)]);
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 1], "the oldest log block had no live page");
}

#[test]
fn fast_full_merge_erases_the_sequential_log_block_of_its_logical_block() {
    let mut ssd = fast(1);
    write(&mut ssd, &[(0, 3), (1, 1), (1, 2), (1, 3), (0, 0)]);
    assert_eq!(counts(&ssd), [0; 5]);
    write(&mut ssd, &[(2, 1)]);
    // Blocks 0 and 1 are merged in full; two data blocks, the random and the sequential log block are erased.
    assert_eq!(counts(&ssd), [0, 0, 2, 8, 4]);
}

#[test]
fn fast_writes_a_trimmed_logical_block_without_a_merge() {
    let mut ssd = fast(2);
    (0..PAGES).for_each(|page| trim_page(&mut ssd, page));
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 1]);
    write(&mut ssd, &[(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]);
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 1], "the pages went to a new data block");
}

#[test]
fn fast_writes_erased_slots_of_the_data_block_in_ascending_order() {
    let layer = Layer::Fast { log_blocks: 2 };
    let mut ssd = ssd(layer, WearLevelling::None, 16, PAGES, 1000);
    write(&mut ssd, &[(0, 1), (0, 3), (0, 2)]);
    // Page 2 is written after page 3, so its slot cannot be programmed any more, and page 2 goes to
    // the random log.
    let (slot, _) = ssd.look_up(2).expect("written");
    assert_ne!(slot / PAGES, ssd.look_up(3).expect("written").0 / PAGES);
    assert_eq!(ssd.look_up(1).expect("written").0 / PAGES, ssd.look_up(3).unwrap().0 / PAGES);
}

#[test]
fn bast_does_switch_partial_and_full_merges() {
    let mut ssd = bast(1);
    write(&mut ssd, &[(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]);
    assert_eq!(counts(&ssd), [1, 0, 0, 0, 1]);
    write(&mut ssd, &[(1, 1), (2, 2)]);
    assert_eq!(counts(&ssd), [1, 1, 0, 2, 2]);
    write(&mut ssd, &[(3, 0)]);
    assert_eq!(counts(&ssd), [1, 1, 1, 2 + 4, 2 + 2]);
}

#[test]
fn bast_merges_for_scattered_writes_that_fast_takes_without_a_merge() {
    let scattered: Vec<(u32, u32)> = (0..8).map(|no| (no % 4, 1)).collect();
    let mut bast = bast(2);
    write(&mut bast, &scattered);
    assert_eq!(counts(&bast), [0, 0, 6, 24, 12]);
    let mut fast = fast(2);
    write(&mut fast, &scattered);
    assert_eq!(counts(&fast), [0; 5]);
}

#[test]
fn bast_merges_the_least_recently_written_log_block() {
    let mut ssd = bast(2);
    write(&mut ssd, &[(0, 0), (1, 0), (0, 1), (2, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 3, 1], "the log block of block 1, with one page, is merged");
    write(&mut ssd, &[(0, 2), (0, 3), (0, 0)]);
    assert_eq!(counts(&ssd), [1, 1, 0, 3, 2], "a full log block is replaced by a new one");
}

#[test]
fn bast_erases_the_log_block_of_a_trimmed_logical_block() {
    let mut ssd = bast(2);
    write(&mut ssd, &[(0, 0)]);
    (0..PAGES).for_each(|page| trim_page(&mut ssd, page));
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 2]);
}

#[test]
fn a_superblock_shares_a_log_block_and_bounds_the_merge() {
    let mut ssd = superblock(2);
    write(&mut ssd, &[(0, 1), (1, 1), (2, 1), (3, 1)]);
    assert_eq!(counts(&ssd), [0; 5], "four logical blocks share a log block");
    write(&mut ssd, &[(4, 1), (5, 1)]);
    assert_eq!(counts(&ssd), [0; 5], "the other superblock has a log block of its own");
    write(&mut ssd, &[(0, 2)]);
    assert_eq!(
        counts(&ssd),
        [0, 0, 4, 16, 5],
        "the full log block, but nothing of the other superblock"
    );
}

#[test]
fn a_superblock_merges_the_least_recently_written_log_block() {
    let mut ssd = superblock(1);
    write(&mut ssd, &[(0, 0), (0, 1), (4, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 2, 1], "one logical block in order: a partial merge");
    write(&mut ssd, &[(4, 1), (4, 2), (4, 3), (5, 0)]);
    assert_eq!(counts(&ssd), [1, 1, 0, 2, 2], "a whole logical block in order: a switch");
    write(&mut ssd, &[(6, 0), (0, 0)]);
    assert_eq!(counts(&ssd), [1, 1, 2, 2 + 8, 2 + 3], "pages of two logical blocks");
}

#[test]
fn a_superblock_keeps_the_pages_of_others_when_a_logical_block_is_trimmed() {
    let mut ssd = superblock(2);
    write(&mut ssd, &[(0, 0), (1, 0)]);
    (0..PAGES).for_each(|page| trim_page(&mut ssd, page));
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 1], "the data block");
    write(&mut ssd, &[(2, 0), (2, 1), (2, 2)]);
    assert_eq!(counts(&ssd), [0, 0, 2, 8, 1 + 3], "blocks 1 and 2 are merged, block 0 has no page");
    let mut ssd = superblock(2);
    write(&mut ssd, &[(0, 0), (0, 1)]);
    (0..PAGES).for_each(|page| trim_page(&mut ssd, page));
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 2], "the log block in order, too");
}
