//! Forged releases.

use std::sync::Arc;

use sfs_core::format::{Change, SegmentState, Timestamp};
use sfs_core::request::VolumeOptions;

use super::findings::{errors, populated};
use super::forge;

/// A release of what is not Drained is damage: mounting refuses the volume, and sends its owner to
/// `sfs-fsck`, which has to say so, too.
#[test]
fn a_release_of_what_is_not_drained_is_found() {
    let mut wrong = Vec::new();
    let cases: [(&str, &[(u32, u64)]); 6] = [
        ("the Open segment of a head", &[(1, 0)]),
        ("the metadata head's", &[(0, 0)]),
        ("a Sealed segment", &[(5, 0)]),
        ("a Clean segment", &[(9, 77)]),
        ("no segment", &[(u32::MAX, 0), (u32::MAX, u64::MAX)]),
        ("the checkpoint slot behind the last segment", &[(200, 0), (127, 0)]),
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
        volume.append(0, at, &[], &[], &forge::delta(&changes), true);
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let time = Timestamp { secs: 1_000_000, nanos: 0 };
        let mounted = sfs_core::Volume::open(Arc::new(volume.device.snapshot()), options, time);
        let mounted = mounted.map(drop);
        let found = errors(&volume);
        if mounted.is_err() && found.is_empty() {
            wrong.push(what);
        }
    }
    assert!(wrong.is_empty(), "refused, but nothing is wrong: {wrong:?}");
}

/// A chunk that a forged release puts outside of all segments has no effect.
#[test]
fn a_chunk_outside_of_all_segments_is_none() {
    let mut forge = populated();
    forge.on_usage = Box::new(|table| table.iter_mut().skip(2).for_each(|entry| entry.stamp = 10));
    let mut volume = forge.build();
    let layout = volume.superblock.layout;
    let released = Change::Release { segment: layout.segment_count, stamp: 0 };
    let at = volume.head_address(0);
    volume.append(0, at, &[], &[], &forge::delta(&[released]), true);
    let at = layout.segment_address(layout.segment_count - 1) + u64::from(layout.segment_blocks);
    let next_ino = forge::delta(&[Change::NextIno(forge::NEXT_INO + 1)]);
    volume.append(3, at, &[], &[], &next_ino, true);
    let report = super::findings::check_device(&volume.device, true).expect("a volume");
    assert!(report.rolled_chunks < 2 || report.errors() > 0);
}
