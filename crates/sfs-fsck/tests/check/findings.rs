//! Each kind of damage, forged with sound checksums, and exactly the finding for it.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{
    COUNT_KEPT_MAX, COUNT_MAX, CheckpointRecord, Corruption, CorruptionKind, FileKind, History,
    Incompatibility, InodeFlags, ItemKind, Key, Mapping, ROOT_INO, SegmentState, Structure,
    Timestamp, UsageEntry, usage_key,
};
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice, Stream};
use sfs_fsck::{Finding, FsckError, Options, Repair, Report, check};

use super::forge::{
    DATA, Forge, GONE, HELLO, LINK, NEXT_INO, SUB, Volume, directory, entry_value, file,
};

pub(crate) const NOW: Timestamp = Timestamp { secs: 2_000_000_000, nanos: 0 };

pub(crate) fn check_device(device: &dyn Device, data: bool) -> Result<Report, FsckError> {
    check(device, &Options { data }, &mut |_| ControlFlow::Continue(()))
}

/// The errors of `volume`; notes are left out.
pub(crate) fn errors(volume: &Volume) -> Vec<Finding> {
    let report = check_device(&volume.device, true).expect("a volume");
    let kept = report.findings.kept().iter();
    kept.filter(|f| f.severity() == sfs_fsck::Severity::Error).cloned().collect()
}

/// Expects a mount to refuse `volume`, with `corruption`.
fn refuse(volume: &Volume, corruption: Corruption) {
    let device = Arc::new(volume.device.snapshot());
    match sfs_core::Volume::open(device, sfs_core::request::VolumeOptions::default(), NOW).map(drop)
    {
        Err(sfs_core::Error::Corrupt(found)) => assert_eq!(found, corruption),
        other => panic!("{other:?}"),
    }
}

/// A populated volume after `change`.
fn forged(change: impl FnOnce(&mut Forge)) -> Vec<Finding> {
    let mut forge = Forge::populated();
    forge.map_data();
    change(&mut forge);
    errors(&forge.build())
}

pub(crate) fn populated() -> Forge {
    let mut forge = Forge::populated();
    forge.map_data();
    forge
}

#[test]
fn sound_volumes_are_clean() {
    for forge in [Forge::empty(), populated()] {
        assert_eq!(errors(&forge.build()), []);
    }
    let report = check_device(&populated().build().device, true).expect("a volume");
    assert_eq!((report.files, report.directories), (3, 2));
    assert!(report.unmounted);
    assert_eq!(
        report.to_string(),
        format!("clean, 3 files, 2 directories, {} bytes used", 7 * 4096)
    );
}

#[test]
fn what_is_no_volume_is_said_to_be_none() {
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
fn newer_lost_and_truncated_volumes_are_told_apart() {
    let volume = populated().build();
    let backup = volume.superblock.layout.backup;
    let mut newer = volume.superblock.encode();
    newer[12] = 3;
    let checksum = crc32c::crc32c(&newer[12..]).to_le_bytes();
    newer[8..12].copy_from_slice(&checksum);
    // Whatever the other one says: an older backup is no reason to undo what a newer program has made.
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
        let repair = Repair { data: false, preen: false, now: NOW };
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
    let expected = Err::<Report, _>(FsckError::Truncated { device: 2000, volume: 4096 });
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
            Finding::HeadInvalid { head: 1 },
            Finding::UsageState { segment: 1, state: SegmentState::Open }
        ]
    );

    // So far no volume counts. What a mount begins with below is sound whatever it adds.
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

    // What is appended there overwrites the last block that lives; so do others before.
    for (head, back) in [(0, 1), (1, 1), (0, 3), (1, 3)] {
        let mut forge = populated();
        forge.on_record = Box::new(move |record| record.heads[head].next_block -= back);
        let volume = forge.build();
        assert_eq!(errors(&volume), [Finding::HeadInvalid { head: head as u8 }]);
        // More lives there than there is before the head: a mount sees that, too.
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
    // A child that is not in a segment; the checksum does not matter then.
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
    // A level that is not the one above.
    let found = damaged(|bytes| bytes[34] = 3, 0);
    let count = found.len();
    assert!(count > 0, "levels");
    for finding in found {
        assert!(
            matches!(finding, Finding::NodeLevel { level: 3, expected: 0, .. })
                || matches!(finding, Finding::NodeDamaged { .. }),
            "{finding:?}"
        );
    }
}

#[test]
fn misplaced_items_are_found() {
    for key in [
        Key { ino: HELLO, kind: 9, offset: 0 },
        Key::new(0, ItemKind::Inline, 0),
        Key::new(HELLO, ItemKind::Orphan, 0),
        Key::new(HELLO, ItemKind::Inode, 1),
    ] {
        let found = forged(|forge| forge.put(key, vec![1, 2, 3]));
        assert_eq!(found, [Finding::ItemMisplaced { key }]);
    }
    let key = Key::inode(HELLO);
    assert_eq!(forged(|forge| forge.put(key, vec![0; 112])), [Finding::ItemDamaged { key }]);
    let key = Key::new(HELLO, ItemKind::Mapping, 0);
    let found = forged(|forge| forge.put(key, vec![0; 4]));
    assert_eq!(found, [Finding::ItemDamaged { key }]);
    let key = Key::new(0, ItemKind::Orphan, GONE);
    let found = forged(|forge| forge.put(key, vec![0; 7]));
    assert_eq!(found, [Finding::ItemDamaged { key }, Finding::OrphanMissing { ino: GONE }]);
}

#[test]
fn inodes_and_numbers_are_checked() {
    let key = Key::new(NEXT_INO - 1, ItemKind::Inline, 0);
    let found = forged(|forge| {
        forge.items.remove(&Key::inode(GONE));
        forge.items.remove(&Key::new(0, ItemKind::Orphan, GONE));
        forge.put(key, vec![]);
    });
    assert_eq!(found, [Finding::InodeMissing { ino: GONE }]);
    let found = forged(|forge| {
        forge.on_record = Box::new(|record| record.next_ino = GONE);
    });
    assert_eq!(found, [Finding::InodeNumber { ino: GONE }]);
    let found = forged(|forge| {
        forge.items.remove(&Key::inode(ROOT_INO));
    });
    assert_eq!(found[..2], [Finding::InodeMissing { ino: ROOT_INO }, Finding::RootMissing]);
}

#[test]
fn directory_entries_are_checked() {
    let hello = populated().entry_key(ROOT_INO, b"hello");
    let (ino, cookie) = (ROOT_INO, hello.offset);
    let regular = FileKind::Regular;
    let found = forged(|forge| forge.put(hello, entry_value(HELLO, regular, b"hellO")));
    assert_eq!(found, [Finding::EntryHash { ino, cookie }]);
    let found = forged(|forge| forge.put(hello, entry_value(HELLO, FileKind::Fifo, b"hello")));
    assert_eq!(found, [Finding::EntryKind { ino, cookie, target: HELLO }]);
    let found = forged(|forge| {
        forge.put(hello, entry_value(99, regular, b"hello"));
        forge.items.remove(&Key::inode(HELLO));
        forge.items.remove(&Key::new(HELLO, ItemKind::Inline, 0));
    });
    assert_eq!(found, [Finding::EntryDangling { ino, cookie, target: 99 }]);
    let found = forged(|forge| forge.put(hello, vec![0; 8]));
    assert_eq!(found[0], Finding::ItemDamaged { key: hello });

    let twin = Key { offset: hello.offset + 1, ..hello };
    let found = forged(|forge| {
        forge.put(twin, entry_value(HELLO, regular, b"hello"));
        forge.change_inode(HELLO, |inode| inode.links = 2);
        forge.change_inode(ROOT_INO, |inode| inode.size = 5);
    });
    assert_eq!(found, [Finding::EntryTwice { ino, cookie: twin.offset }]);

    for name in [&b"a/b"[..], b"a\0b", b".", b"..", b"", &[b'n'; 256]] {
        let mut cookie = 0;
        let found = forged(|forge| {
            cookie = forge.entry_key(ROOT_INO, name).offset;
            forge.entry(ROOT_INO, name, HELLO, regular);
            forge.items.remove(&hello);
        });
        assert_eq!(found, [Finding::EntryName { ino, cookie }], "{name:?}");
    }
}

#[test]
fn links_sizes_and_parents_are_checked() {
    let change = |ino, change: fn(&mut sfs_core::format::Inode)| {
        forged(|forge| forge.change_inode(ino, change))
    };
    let found = change(DATA, |inode| inode.links = 3);
    assert_eq!(found, [Finding::LinkCount { ino: DATA, links: 3, counted: 2 }]);
    let found = change(ROOT_INO, |inode| inode.links = 2);
    assert_eq!(found, [Finding::LinkCount { ino: ROOT_INO, links: 2, counted: 3 }]);
    let found = change(SUB, |inode| inode.size = 0);
    assert_eq!(found, [Finding::DirectorySize { ino: SUB, size: 0, counted: 1 }]);
    let found = change(SUB, |inode| inode.parent = SUB);
    assert_eq!(found, [Finding::ParentWrong { ino: SUB, parent: SUB, expected: ROOT_INO }]);
    let found = change(HELLO, |inode| inode.parent = SUB);
    assert_eq!(found, [Finding::ParentWrong { ino: HELLO, parent: SUB, expected: 0 }]);
    let found = change(GONE, |inode| inode.links = 1);
    assert_eq!(found, [Finding::Unreachable { ino: GONE }]);
    let found = change(LINK, |inode| inode.links = 0);
    assert_eq!(found, [Finding::OrphanMissing { ino: LINK }]);
}

#[test]
fn directories_in_a_ring_are_unreachable() {
    let ring = [NEXT_INO, NEXT_INO + 1];
    let found = forged(|forge| {
        for (ino, parent) in [(ring[0], ring[1]), (ring[1], ring[0])] {
            forge.inode(ino, &directory(parent, 1, 3));
            forge.entry(parent, b"child", ino, FileKind::Directory);
        }
        forge.on_record = Box::new(|record| record.next_ino = NEXT_INO + 2);
    });
    assert_eq!(found, ring.map(|ino| Finding::Unreachable { ino }));
}

#[test]
fn a_directory_with_two_names_is_found() {
    let found = forged(|forge| {
        forge.entry(ROOT_INO, b"sub again", SUB, FileKind::Directory);
        forge.change_inode(ROOT_INO, |inode| {
            inode.size = 5;
            inode.links = 4;
        });
    });
    assert_eq!(found, [Finding::DirectoryTwice { ino: SUB }]);
}

#[test]
fn orphans_are_checked() {
    let key = |ino| Key::new(0, ItemKind::Orphan, ino);
    let found = forged(|forge| drop(forge.items.remove(&key(GONE))));
    assert_eq!(found, [Finding::OrphanMissing { ino: GONE }]);
    let found = forged(|forge| forge.put(key(GONE), 3u64.to_le_bytes().to_vec()));
    assert_eq!(found, [Finding::OrphanWrong { ino: GONE }]);
    let found = forged(|forge| forge.put(key(99), vec![0; 8]));
    assert_eq!(found, [Finding::OrphanWrong { ino: 99 }]);
    let cut_data = |first: u64| {
        move |forge: &mut Forge| {
            forge.change_inode(DATA, |inode| inode.size = 40 * 4096);
            forge.put(key(DATA), first.to_le_bytes().to_vec());
        }
    };
    assert_eq!(forged(cut_data(u32::MAX.into())), []);
    for nowhere in [1 << 32, u64::MAX] {
        let expected = [
            Finding::OrphanWrong { ino: DATA },
            Finding::MappingBeyondEnd { ino: DATA, block: 40 },
        ];
        assert_eq!(forged(cut_data(nowhere)), expected);
    }
}

#[test]
fn inline_content_is_checked() {
    let inline = |ino, part| Key::new(ino, ItemKind::Inline, part);
    let found = forged(|forge| forge.put(inline(HELLO, 0), b"hell".to_vec()));
    assert_eq!(found, [Finding::InlineSize { ino: HELLO, size: 5, counted: 4 }]);
    let found = forged(|forge| forge.put(inline(HELLO, 1), b"!".to_vec()));
    assert_eq!(found, [Finding::InlineParts { ino: HELLO }]);
    let found = forged(|forge| forge.put(inline(DATA, 0), b"!".to_vec()));
    assert_eq!(found, [Finding::InlineParts { ino: DATA }]);
    let found = forged(|forge| {
        forge.items.remove(&inline(LINK, 0));
    });
    assert_eq!(found, [Finding::InlineParts { ino: LINK }]);
    let found = forged(|forge| {
        forge.items.remove(&inline(LINK, 0));
        forge.items.remove(&inline(LINK, 1));
        forge.change_inode(LINK, |inode| inode.size = 0);
    });
    assert_eq!(found, [Finding::SymlinkSize { ino: LINK, size: 0 }]);
}

#[test]
fn extended_attributes_are_checked() {
    let ino = DATA;
    let short = populated().xattr_key(DATA, b"user.short", 0);
    let long = populated().xattr_key(DATA, b"user.long", 0);
    let middle = Key { offset: long.offset + 1, ..long };
    let offset = long.offset;
    let found = forged(|forge| drop(forge.items.remove(&middle)));
    assert_eq!(found, [Finding::XattrParts { ino, offset }]);
    let found = forged(|forge| forge.items.get_mut(&long).expect("a part").truncate(5));
    assert_eq!(found, [Finding::XattrParts { ino, offset }]);
    let offset = short.offset;
    let found = forged(|forge| forge.items.get_mut(&short).expect("a part")[8] ^= 1);
    assert_eq!(found, [Finding::XattrHash { ino, offset }]);
    let twin = Key { offset: short.offset | 1 << 16, ..short };
    let found = forged(|forge| forge.put(twin, forge.items[&short].clone()));
    assert_eq!(found, [Finding::XattrTwice { ino, offset: twin.offset }]);
    let found = forged(|forge| forge.change_inode(DATA, |inode| inode.flags = InodeFlags::NONE));
    assert_eq!(found, [Finding::XattrFlag { ino }]);
}

#[test]
fn mappings_are_checked() {
    let address = populated().data_address(0);
    let ino = DATA;
    let at = |address| {
        let checksum = crc32c::crc32c(&[1; BLOCK_SIZE]);
        Mapping { address, checksum: Some(checksum), history: History::plain(2, 9) }
    };
    let found = forged(|forge| forge.map(DATA, 0, at(3)));
    assert_eq!(found, [Finding::MappingOutside { ino, block: 0, address: 3 }]);

    let found = forged(|forge| {
        forge.map(DATA, 2, at(address));
        forge.change_inode(DATA, |inode| inode.blocks = 4);
    });
    let shared = Finding::MappingShared { ino, block: 2, address, other: DATA };
    assert_eq!(found, [shared]);

    let wrong = Mapping { checksum: Some(5), ..at(address) };
    let found = forged(|forge| forge.map(DATA, 0, wrong));
    assert_eq!(
        found,
        [
            Finding::MappingUnknown { ino, block: 0, address },
            Finding::DataDamaged { ino, block: 0, address }
        ]
    );
    let found = forged(|forge| {
        forge.on_entries = Box::new(|entries| entries.swap(0, 1));
    });
    let unknown = |block, address| Finding::MappingUnknown { ino, block, address };
    assert_eq!(found, [unknown(0, address), unknown(1, address + 1)]);

    let found = forged(|forge| forge.change_inode(DATA, |inode| inode.blocks = 7));
    assert_eq!(found, [Finding::BlockCount { ino, blocks: 7, counted: 3 }]);
    let found = forged(|forge| forge.change_inode(DATA, |inode| inode.size = 40 * 4096));
    assert_eq!(found, [Finding::MappingBeyondEnd { ino, block: 40 }]);
    let found = forged(|forge| {
        forge.change_inode(DATA, |inode| inode.size = 40 * 4096);
        forge.put(Key::new(0, ItemKind::Orphan, DATA), 40u64.to_le_bytes().to_vec());
    });
    assert_eq!(found, []);
    let found = forged(|forge| {
        let fifo = sfs_core::format::Inode { links: 0, ..file(FileKind::Fifo, 0) };
        forge.inode(GONE, &fifo);
        forge.map(GONE, 0, at(address));
        forge.map(DATA, 0, Mapping { address: address + 20, ..at(0) });
    });
    // What was never written lives behind the head.
    assert_eq!(found[..2], [Finding::HeadInvalid { head: 1 }, Finding::MappingOwner { ino: GONE }]);
}

#[test]
fn damaged_data_is_found_only_if_asked_for() {
    let forge = populated();
    let (volume, address) = (forge.build(), forge.data_address(2));
    volume.flip(address, 4000);
    let found = Finding::DataDamaged { ino: DATA, block: 40, address };
    assert_eq!(errors(&volume), [found]);
    let report = check_device(&volume.device, false).expect("a volume");
    assert_eq!(report.errors(), 0);
}

#[test]
fn findings_name_paths() {
    let mut forge = populated();
    forge.change_inode(SUB, |inode| inode.size = 0);
    let report = check_device(&forge.build().device, false).expect("a volume");
    assert_eq!(report.path(SUB), Some(&b"/sub"[..]));
    let finding = Finding::DirectorySize { ino: SUB, size: 0, counted: 1 };
    let line = "error: /sub: inode 18: directory of size 0 has 1 entries";
    assert_eq!(report.line(&finding), line);
    let json = report.to_json();
    assert_eq!(json["errors"], 1);
    assert_eq!(json["findings"][1]["path"], "/sub", "{json}");
    assert_eq!(json["findings"][1]["finding"], "DirectorySize");
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
    // Empty, but never opened again.
    let found = usage(|table| table[7].state = SegmentState::Sealed);
    assert_eq!(found, [Finding::UsageState { segment: 7, state: SegmentState::Sealed }]);
    let found = usage(|table| table[7].state = SegmentState::InPlace);
    assert_eq!(found, [Finding::UsageState { segment: 7, state: SegmentState::InPlace }]);
    // A mount refuses what lives there.
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
