//! Tests of the flash array: times, counters, and the rules of NAND.

use super::*;

const GEOMETRY: FlashGeometry = FlashGeometry {
    channels: 2,
    packages: 1,
    dies: 2,
    planes: 1,
    blocks: 3,
    flash_pages: 4,
    flash_page_size: 4096,
    gang: 4,
    stripe: 1,
    spare_permille: 500,
};

const TIMING: Timing = Timing {
    read_ns: 25,
    program_ns: 200,
    erase_ns: 1500,
    transfer_ns: 100,
    command_ns: 0,
    link_kib_ns: 0,
};

fn flash() -> Flash {
    Flash::new(GEOMETRY, TIMING)
}

fn spare(page: u32) -> Spare {
    Spare { page, version: 1 }
}

#[test]
fn transfers_on_one_channel_wait_for_each_other_but_programming_overlaps() {
    let mut flash = flash();
    // Elements 0 and 2 are on one channel: the second transfer waits for the first.
    let ends: Vec<u64> = (0..4).map(|slot| flash.program(slot, spare(slot), 0)).collect();
    assert_eq!(ends, [300, 300, 400, 400]);
    // The second page of element 0 waits for the first.
    assert_eq!(flash.program(4, spare(4), 0), 600);
    assert_eq!(flash.counters.flash_pages_programmed, 5);
}

#[test]
fn a_read_takes_the_read_time_and_then_the_transfer_time() {
    let mut flash = flash();
    flash.program(0, spare(7), 0);
    assert_eq!(flash.read(0, 1000), 1125);
    assert_eq!(flash.spare(0), Some(spare(7)));
    assert_eq!(flash.free_ns(0), 1125);
    assert_eq!(flash.free_ns(1), 0);
}

#[test]
fn a_copy_reads_before_it_programs_and_copies_the_spare_area() {
    let mut flash = flash();
    flash.program(0, spare(7), 0);
    assert_eq!(flash.copy(0, 16, 1000), 1425);
    assert_eq!(flash.spare(16), Some(spare(7)));
    assert_eq!((flash.counters.pages_moved, flash.counters.moving_ns), (1, 425));
}

#[test]
fn an_erase_occupies_all_elements_of_the_gang() {
    let mut flash = flash();
    flash.program(0, spare(7), 0);
    assert_eq!(flash.erase(0, 0), 1800);
    assert_eq!(flash.free_ns(1), 1500);
    assert_eq!((flash.spare(0), flash.filled(0)), (None, 0));
    assert_eq!(flash.erases(), [1, 0, 0]);
}

#[test]
fn a_striped_page_occupies_all_its_elements() {
    let mut flash = Flash::new(FlashGeometry { stripe: 4, ..GEOMETRY }, TIMING);
    assert_eq!(flash.program(0, spare(0), 0), 400);
    assert_eq!(flash.counters.flash_pages_programmed, 4);
    assert_eq!(flash.read(0, 1000), 1225);
}

#[test]
#[should_panic(expected = "below the first free index")]
fn programming_a_slot_twice_panics() {
    let mut flash = flash();
    flash.program(3, spare(0), 0);
    flash.program(3, spare(0), 0);
}

#[test]
#[should_panic(expected = "below the first free index")]
fn programming_an_earlier_slot_panics() {
    let mut flash = flash();
    flash.program(3, spare(0), 0);
    flash.program(2, spare(0), 0);
}

#[test]
#[should_panic(expected = "erased")]
fn reading_an_erased_slot_panics() {
    flash().read(0, 0);
}
