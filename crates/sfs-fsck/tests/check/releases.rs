//! Forged releases of segments.

use std::sync::Arc;

use sfs_core::format::{Change, Head, SegmentState, Timestamp};
use sfs_core::request::VolumeOptions;

use super::fixture::{errors, populated};
use super::forge::NEXT_INO;
use super::forged_volume::encode_delta;

/// A mount refuses a volume with such a release, so a check must find the release, too.
#[test]
fn a_release_of_a_segment_that_is_not_drained_is_found() {
    let mut wrong = Vec::new();
    let cases: [(&str, &[(u32, u64)]); 6] = [
        ("the Open segment of a head", &[(1, 0)]),
        ("the Open segment of the metadata head", &[(0, 0)]),
        ("a Sealed segment", &[(5, 0)]),
        ("a Clean segment", &[(9, 77)]),
        ("no segment", &[(u32::MAX, 0), (u32::MAX, u64::MAX)]),
        ("the checkpoint slot after the last segment", &[(200, 0), (127, 0)]),
    ];
    for (what, releases) in cases {
        let mut forge = populated();
        forge.on_usage = Box::new(|table| {
            table.iter_mut().skip(2).for_each(|entry| entry.stamp = 10);
            table[5].state = SegmentState::Sealed;
        });
        let mut volume = forge.build();
        let changes: Vec<Change> =
            releases.iter().map(|&(segment, stamp)| Change::Release { segment, stamp }).collect();
        let at = volume.head_address(0);
        volume.append(Head::METADATA, at, &[], &[], &encode_delta(&changes), true);
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let time = Timestamp { secs: 1_000_000, nanos: 0 };
        let mounted = sfs_core::Volume::open(Arc::new(volume.device.snapshot()), options, time);
        let mounted = mounted.map(drop);
        let found = errors(&volume);
        if mounted.is_err() && found.is_empty() {
            wrong.push(what);
        }
    }
    assert!(wrong.is_empty(), "a mount refuses the volume, but a check finds no errors: {wrong:?}");
}

/// The forged release names a segment after the last one.
#[test]
fn a_chunk_outside_all_segments_has_no_effect() {
    let mut forge = populated();
    forge.on_usage = Box::new(|table| table.iter_mut().skip(2).for_each(|entry| entry.stamp = 10));
    let mut volume = forge.build();
    let layout = volume.superblock.layout;
    let released = Change::Release { segment: layout.segment_count, stamp: 0 };
    let at = volume.head_address(0);
    volume.append(Head::METADATA, at, &[], &[], &encode_delta(&[released]), true);
    let at = layout.segment_address(layout.segment_count - 1) + u64::from(layout.segment_blocks);
    let next_ino = encode_delta(&[Change::NextIno(NEXT_INO + 1)]);
    volume.append(Head(3), at, &[], &[], &next_ino, true);
    let report = super::fixture::check_device(&volume.device, true).expect("a volume");
    assert!(report.rolled_chunks < 2 || report.errors() > 0);
}
