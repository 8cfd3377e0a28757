//! Cleaning beside a program that writes without a pause.

use crate::fixture::{NOW, create, new_with_large_segments, put};
use crate::request::VolumeOptions;

/// The background yields to requests, but not so long that the program has to clean itself.
#[test]
fn a_program_without_a_pause_need_not_clean() {
    let volume = new_with_large_segments(100, VolumeOptions::default());
    let file = create(&volume, "f");
    for block in (0..50 * 500).step_by(250) {
        put(&volume, file, block, 250, 1).expect("there is room");
        volume.sync_all().expect("RAM");
    }
    for no in 0..4000 {
        put(&volume, file, no * 7919 % (50 * 500 - 16), 16, 2).expect("there is room");
        volume.sync_all().expect("RAM");
        // The background sees a request each time that it looks.
        volume.work(NOW).expect("RAM");
    }
    let counters = volume.counters();
    assert!(counters.segments_cleaned > 50, "{} segments", counters.segments_cleaned);
    assert_eq!(counters.stalls, 0);
}
