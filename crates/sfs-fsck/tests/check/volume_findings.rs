//! Findings about superblocks, checkpoints, nodes and the usage table, each for one forged defect.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{
    COUNT_KEPT_MAX, COUNT_MAX, CheckpointRecord, Corruption, CorruptionKind, Head, Incompatibility,
    SegmentState, Structure, UsageEntry, usage_key,
};
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice, Stream};
use sfs_fsck::{CheckReport, Finding, FsckError, RepairOptions};

use super::fixture::{NOW, check_device, errors, forged, populated};
use super::forge::{Forge, SUB};
use super::forged_volume::ForgedVolume;

/// Expects a mount to refuse `volume`, with `corruption`.
fn refuse(volume: &ForgedVolume, corruption: Corruption) {
    let device = Arc::new(volume.device.snapshot());
    match sfs_core::Volume::open(device, sfs_core::request::VolumeOptions::default(), NOW).map(drop)
    {
        Err(sfs_core::Error::Corrupt(found)) => assert_eq!(found, corruption),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sound_volumes_have_no_errors() {
    for forge in [Forge::empty(), populated()] {
        assert_eq!(errors(&forge.build()), []);
    }
    let report = check_device(&populated().build().device, false).expect("a volume");
    assert!(report.to_string().ends_with("; data was not read (--data reads it)"), "{report}");
    let report = check_device(&populated().build().device, true).expect("a volume");
    assert_eq!((report.files, report.directories), (3, 2));
    assert!(report.unmounted);
    assert_eq!(
        report.to_string(),
        format!("clean, 3 files, 2 directories, {} bytes used", 7 * 4096)
    );
}

#[test]
fn a_device_without_a_volume_is_refused() {
    let none = RamDevice::new(4096);
    let instead = |device: &RamDevice| match check_device(device, false) {
        Err(FsckError::NotSfs { instead }) => instead,
        other => panic!("{other:?}"),
    };
    assert_eq!(instead(&none), None);
    assert_eq!(instead(&RamDevice::new(0)), None);
    assert_eq!(instead(&RamDevice::new(5)), None);
    let mut block = Block([0; BLOCK_SIZE]);
    block.0[..4].copy_from_slice(b"XFSB");
    none.write(0, &[&[block]], Stream::default()).expect("RAM");
    assert_eq!(instead(&none), Some("XFS filesystem"));
}

#[test]
fn newer_lost_and_truncated_volumes_are_refused_with_different_errors() {
    let volume = populated().build();
    let backup = volume.superblock.layout.backup;
    let mut newer = volume.superblock.encode();
    newer[12] = 3;
    let checksum = crc32c::crc32c(&newer[12..]).to_le_bytes();
    newer[8..12].copy_from_slice(&checksum);
    // A sound older copy must not lead to a check or repair of a volume of a newer program.
    let (old, noise) = (volume.superblock.encode(), [0xa5; BLOCK_SIZE]);
    for (first, last) in [(&newer, &newer), (&newer, &old), (&newer, &noise), (&noise, &newer)] {
        volume.write(4, first);
        volume.write(backup, last);
        let result = check_device(&volume.device, false);
        assert!(
            matches!(result, Err(FsckError::Incompatible(Incompatibility::Version(3)))),
            "{result:?}"
        );
        let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
        let repair = RepairOptions { data: false, preen: false, now: NOW };
        let result = sfs_fsck::repair(&device, &repair, &mut |_| ControlFlow::Continue(()));
        assert!(
            matches!(result, Err(FsckError::Incompatible(Incompatibility::Version(3)))),
            "{result:?}"
        );
        let mount =
            sfs_core::Volume::open(device, sfs_core::request::VolumeOptions::default(), NOW);
        assert!(matches!(
            mount.map(drop),
            Err(sfs_core::Error::Incompatible(Incompatibility::Version(3)))
        ));
    }

    let volume = populated().build();
    volume.flip(4, 100);
    volume.flip(backup, 100);
    let result = check_device(&volume.device, false);
    assert!(matches!(result, Err(FsckError::SuperblocksLost)), "{result:?}");

    let short = RamDevice::new(2000);
    let bytes = populated().superblock.encode();
    short.write(4, &[&[Block(bytes)]], Stream::default()).expect("RAM");
    let result = check_device(&short, false);
    let expected = Err::<CheckReport, _>(FsckError::Truncated { device: 2000, volume: 4096 });
    assert_eq!(format!("{result:?}"), format!("{expected:?}"));
}

#[test]
fn checkpoints_are_checked() {
    let volume = populated().build();
    volume.flip(volume.superblock.layout.slots[0], 40);
    assert_eq!(errors(&volume), [Finding::CheckpointsLost]);

    let volume = populated().build();
    volume.write_record(1, &volume.record);
    assert_eq!(errors(&volume), [Finding::CheckpointNumber { slot: 1, number: 2 }]);

    let mut forge = populated();
    forge.on_record = Box::new(|record| record.heads[1].segment = 100_000);
    let found = errors(&forge.build());
    assert_eq!(
        found,
        [
            Finding::HeadInvalid { head: Head(1) },
            Finding::UsageState { segment: 1, state: SegmentState::Open }
        ]
    );

    // A count below the limit for stored counts can still grow during a mount.
    let counts: [fn(&mut CheckpointRecord) -> &mut u64; 7] = [
        |record| &mut record.number,
        |record| &mut record.next_sequence,
        |record| &mut record.next_ino,
        |record| &mut record.blocks_written,
        |record| &mut record.mount_count,
        |record| &mut record.user_bytes_written,
        |record| &mut record.device_bytes_written,
    ];
    for count in counts {
        let with = |value| {
            let mut forge = populated();
            forge.on_record = Box::new(move |record| *count(record) = value);
            forge.build()
        };
        assert_eq!(errors(&with(COUNT_KEPT_MAX - 2)), []);
        for value in [COUNT_KEPT_MAX, COUNT_MAX - 2] {
            let volume = with(value);
            let expected = [Finding::CheckpointCounts { slot: 0 }, Finding::CheckpointsLost];
            assert_eq!(errors(&volume), expected);
            let (structure, at) = (Structure::Checkpoint, volume.superblock.layout.slots[0]);
            refuse(&volume, Corruption::in_block(structure, at, CorruptionKind::Value));
        }
    }

    // A chunk appended at a head that was moved back would overwrite a live block.
    for (head, back) in [(0, 1), (1, 1), (0, 3), (1, 3)] {
        let mut forge = populated();
        forge.on_record = Box::new(move |record| record.heads[head].next_block -= back);
        let volume = forge.build();
        assert_eq!(errors(&volume), [Finding::HeadInvalid { head: Head(head as u8) }]);
        // More live blocks than blocks before the head: a mount finds this defect, too.
        if back == 3 {
            let corruption = Corruption::in_usage_entry(head as u32, CorruptionKind::Value);
            refuse(&volume, corruption);
        }
    }
}

#[test]
fn nodes_are_checked() {
    let forge = populated();
    let root = forge.build().record.root_address;
    let first_leaf = forge.superblock.layout.segment_address(0) + 1;
    let node = |at, kind| Finding::NodeDamaged {
        corruption: Corruption::in_block(Structure::Node, at, kind),
    };

    let volume = forge.build();
    volume.flip(root, 100);
    assert_eq!(errors(&volume), [node(root, CorruptionKind::Checksum)]);
    volume.write(root, &[0; BLOCK_SIZE]);
    assert_eq!(errors(&volume), [node(root, CorruptionKind::Magic)]);

    let damaged = |change: fn(&mut [u8; BLOCK_SIZE]), level| {
        let mut forge = populated();
        forge.on_node = Box::new(move |at, bytes| {
            if at == level {
                change(bytes);
            }
        });
        errors(&forge.build())
    };
    // Keys out of order: the inode number of the first child becomes huge.
    let found = damaged(|bytes| bytes[64 + 7] = 0x7f, 1);
    assert_eq!(found, [node(root, CorruptionKind::Order)]);
    // A child outside all segments. Its checksum does not matter.
    let found = damaged(|bytes| bytes[64 + 17..64 + 25].fill(0xff), 1);
    assert_eq!(found, [Finding::NodeOutside { address: u64::MAX }]);
    // Two pointers to one child.
    let found = damaged(|bytes| bytes.copy_within(64 + 17..64 + 29, 64 + 29 + 17), 1);
    assert!(
        matches!(
            found[..],
            [Finding::NodeRange { address }, Finding::NodeShared { .. }]
                | [Finding::NodeRange { address }, Finding::NodeRange { .. }, ..]
                if address == first_leaf
        ) || found.contains(&Finding::NodeShared { address: first_leaf }),
        "{found:?}"
    );
    // More items than fit.
    let found = damaged(|bytes| bytes[32..34].fill(0xff), 1);
    assert_eq!(found, [node(root, CorruptionKind::Length)]);
    // A level that does not match that of the parent.
    let found = damaged(|bytes| bytes[34] = 3, 0);
    let count = found.len();
    assert!(count > 0, "a wrong level is found");
    for finding in found {
        assert!(
            matches!(finding, Finding::NodeLevel { level: 3, expected: 0, .. })
                || matches!(finding, Finding::NodeDamaged { .. }),
            "{finding:?}"
        );
    }
}

#[test]
fn the_usage_table_is_recounted() {
    let usage =
        |change: fn(&mut Vec<UsageEntry>)| forged(|forge| forge.on_usage = Box::new(change));
    let found = usage(|table| table[1].live_blocks += 1);
    assert_eq!(found, [Finding::UsageLive { segment: 1, recorded: 4, counted: 3 }]);
    let found = usage(|table| table[1].modified_sum += 1);
    assert_eq!(found, [Finding::UsageSums { segment: 1 }]);
    let found = usage(|table| table[1].write_count_sum = 0);
    assert_eq!(found, [Finding::UsageSums { segment: 1 }]);
    let sealed = |table: &mut Vec<UsageEntry>| table[1].state = SegmentState::Sealed;
    let found = usage(sealed);
    assert_eq!(found, [Finding::UsageState { segment: 1, state: SegmentState::Sealed }]);
    let found = usage(|table| table[7].state = SegmentState::Open);
    assert_eq!(found, [Finding::UsageState { segment: 7, state: SegmentState::Open }]);
    // An empty Sealed or InPlace segment would never be opened again.
    let found = usage(|table| table[7].state = SegmentState::Sealed);
    assert_eq!(found, [Finding::UsageState { segment: 7, state: SegmentState::Sealed }]);
    let found = usage(|table| table[7].state = SegmentState::InPlace);
    assert_eq!(found, [Finding::UsageState { segment: 7, state: SegmentState::InPlace }]);
    // A Bad segment may have no live blocks.
    let found = forged(|forge| {
        forge.on_usage = Box::new(|table| table[1].state = SegmentState::Bad);
        forge.on_record = Box::new(|record| record.heads.truncate(1));
    });
    assert_eq!(found, [Finding::UsageState { segment: 1, state: SegmentState::Bad }]);
    assert_eq!(usage(|table| table[7].state = SegmentState::Bad), []);

    let found = forged(|forge| forge.put(usage_key(64), vec![0; 32 * 32]));
    assert_eq!(found, [Finding::UsageMissing { segment: 64 }]);
    let found = forged(|forge| {
        forge.put(usage_key(3200), UsageEntry::encode_item(&[UsageEntry::NEW]));
    });
    assert_eq!(found, [Finding::UsageExcess { segment: 3200 }]);
}

#[test]
fn findings_have_paths() {
    let mut forge = populated();
    forge.change_inode(SUB, |inode| inode.size = 0);
    let report = check_device(&forge.build().device, false).expect("a volume");
    assert_eq!(report.path(SUB), Some(&b"/sub"[..]));
    let finding = Finding::DirectorySize { ino: SUB, size: 0, counted: 1 };
    let line = "error: /sub: inode 18: directory of size 0 has 1 entries";
    assert_eq!(report.line(&finding), line);
    let json = sfs_fsck::report_to_json(&report);
    assert_eq!(json["errors"], 1);
    assert_eq!(json["findings"][1]["path"], "/sub", "{json}");
    assert_eq!(json["findings"][1]["finding"], "DirectorySize");
}
