//! FAST and BAST over sequences that were worked out by hand: the merges, the copies, the erases.
//!
//! A clustered block has four pages; page `4 b + i` is page `i` of logical block `b`. "Filled"
//! means that all its pages are in the data block, so that the next write goes to a log block.

use crate::rig::{ssd, trim_page, write_page};
use sfs_ssd::Ssd;
use sfs_ssd::ftl::{Layer, WearLevelling};

const PAGES: u32 = 4;

/// Eight logical blocks, all filled; nothing counted so far.
fn filled(layer: Layer) -> Ssd {
    let mut ssd = ssd(layer, WearLevelling::None, 16, PAGES, 1000);
    (0..8 * PAGES).for_each(|page| write_page(&mut ssd, page, 0));
    assert_eq!(ssd.counters().erases, 0, "a first writing goes to the data blocks");
    ssd.reset_counters();
    ssd
}

fn fast(log_blocks: u32) -> Ssd {
    filled(Layer::Fast { log_blocks })
}

fn bast(log_blocks: u32) -> Ssd {
    filled(Layer::Bast { log_blocks })
}

/// Writes pages of (logical block, index), one after the other.
fn write(ssd: &mut Ssd, places: &[(u32, u32)]) {
    places.iter().for_each(|&(block, index)| write_page(ssd, block * PAGES + index, 0));
}

/// Switch, partial and full merges, pages moved, erases.
fn counts(ssd: &Ssd) -> [u64; 5] {
    let c = ssd.counters();
    [c.merges_switch, c.merges_partial, c.merges_full, c.pages_moved, c.erases]
}

#[test]
fn fast_switches_a_whole_log_block() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 0), (0, 1), (0, 2), (0, 3)]);
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 0], "it waits in the sequential log block");
    write(&mut ssd, &[(1, 0)]);
    assert_eq!(counts(&ssd), [1, 0, 0, 0, 1], "the old data block of 0 is erased");
}

#[test]
fn fast_completes_a_log_block_that_was_begun() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 0), (0, 1), (3, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 2, 1], "pages 2 and 3 are copied behind 0 and 1");
}

#[test]
fn fast_takes_the_rest_from_the_random_log_if_that_is_newer() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 3), (0, 0), (1, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 3, 1]);
    // The random log block holds nothing live any more: pages 1 to 3 of block 2 fill it, two more
    // the other one, and making room for the seventh erases it and merges 2 by copying all.
    write(&mut ssd, &[(2, 1), (2, 2), (2, 3), (3, 1), (3, 1), (3, 1), (3, 1)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 3, 1]);
    write(&mut ssd, &[(3, 1)]);
    assert_eq!(counts(&ssd), [0, 1, 1, 3 + 4, 1 + 2]);
}

#[test]
fn fast_merges_when_the_sequence_of_its_owner_breaks() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 0), (0, 2)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 3, 1], "0 is completed, and a log block begun at 2");
    write(&mut ssd, &[(0, 3), (1, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 1, 3 + 4, 1 + 2], "that is merged in full");
}

#[test]
fn fast_merges_every_block_of_the_oldest_random_log_block() {
    let mut ssd = fast(2);
    let scattered = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)];
    write(&mut ssd, &scattered);
    assert_eq!(counts(&ssd), [0; 5]);
    write(&mut ssd, &[(0, 2)]);
    // Four logical blocks of four pages each; their data blocks and the log block.
    assert_eq!(counts(&ssd), [0, 0, 4, 16, 5]);
}

#[test]
fn fast_does_not_merge_for_pages_that_are_newer_elsewhere() {
    let mut ssd = fast(2);
    write(&mut ssd, &[(0, 1), (0, 1), (0, 1), (1, 1)]);
    write(&mut ssd, &[(0, 1), (1, 1), (2, 1), (2, 2)]);
    write(&mut ssd, &[(3, 1)]);
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 1], "the oldest was dead as a whole");
}

#[test]
fn fast_drops_the_sequential_log_block_of_a_block_merged_in_full() {
    let mut ssd = fast(1);
    write(&mut ssd, &[(0, 3), (1, 1), (1, 2), (1, 3), (0, 0)]);
    assert_eq!(counts(&ssd), [0; 5]);
    write(&mut ssd, &[(2, 1)]);
    // Blocks 0 and 1 in full; two data blocks, the log block, the sequential one.
    assert_eq!(counts(&ssd), [0, 0, 2, 8, 4]);
}

#[test]
fn fast_has_no_merge_to_do_after_a_whole_block_was_trimmed() {
    let mut ssd = fast(2);
    (0..PAGES).for_each(|page| trim_page(&mut ssd, page));
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 1]);
    write(&mut ssd, &[(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]);
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 1], "it went to a new data block");
}

#[test]
fn fast_writes_free_places_in_the_data_block() {
    let layer = Layer::Fast { log_blocks: 2 };
    let mut ssd = ssd(layer, WearLevelling::None, 16, PAGES, 1000);
    write(&mut ssd, &[(0, 1), (0, 3), (0, 2)]);
    // Page 2 comes after page 3, and pages are programmed in ascending order: the random log.
    let (slot, _) = ssd.look_up(2).expect("written");
    assert_ne!(slot / PAGES, ssd.look_up(3).expect("written").0 / PAGES);
    assert_eq!(ssd.look_up(1).expect("written").0 / PAGES, ssd.look_up(3).unwrap().0 / PAGES);
}

#[test]
fn bast_switches_completes_and_merges() {
    let mut ssd = bast(1);
    write(&mut ssd, &[(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]);
    assert_eq!(counts(&ssd), [1, 0, 0, 0, 1]);
    write(&mut ssd, &[(1, 1), (2, 2)]);
    assert_eq!(counts(&ssd), [1, 1, 0, 2, 2]);
    write(&mut ssd, &[(3, 0)]);
    assert_eq!(counts(&ssd), [1, 1, 1, 2 + 4, 2 + 2]);
}

#[test]
fn bast_thrashes_where_fast_does_not() {
    let scattered: Vec<(u32, u32)> = (0..8).map(|no| (no % 4, 1)).collect();
    let mut bast = bast(2);
    write(&mut bast, &scattered);
    assert_eq!(counts(&bast), [0, 0, 6, 24, 12]);
    let mut fast = fast(2);
    write(&mut fast, &scattered);
    assert_eq!(counts(&fast), [0; 5]);
}

#[test]
fn bast_gives_up_the_log_block_that_rested_longest() {
    let mut ssd = bast(2);
    write(&mut ssd, &[(0, 0), (1, 0), (0, 1), (2, 0)]);
    assert_eq!(counts(&ssd), [0, 1, 0, 3, 1], "block 1, whose log has one page");
    write(&mut ssd, &[(0, 2), (0, 3), (0, 0)]);
    assert_eq!(counts(&ssd), [1, 1, 0, 3, 2], "a full log block makes room for its own");
}

#[test]
fn bast_drops_the_log_block_of_what_was_trimmed() {
    let mut ssd = bast(2);
    write(&mut ssd, &[(0, 0)]);
    (0..PAGES).for_each(|page| trim_page(&mut ssd, page));
    assert_eq!(counts(&ssd), [0, 0, 0, 0, 2]);
}
