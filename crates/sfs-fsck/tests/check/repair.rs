//! Repairs of each kind of damage, with exactly the expected losses.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{
    Features, FileKind, History, Inode, InodeFlags, ItemKind, Key, Mapping, ROOT_INO, SegmentState,
    usage_key,
};
use sfs_core::request::VolumeOptions;
use sfs_device::{BLOCK_SIZE, Device, Event, Keep, RecordingDevice, image_after};
use sfs_fsck::{Loss, RepairOptions, repair};

use super::fixture::{NOW, check_device, populated, repair_with};
use super::forge::{DATA, Forge, GONE, HELLO, LINK, NEXT_INO, SUB, directory, entry_value, file};
use super::forged_volume::ForgedVolume;

/// Repaired volume: its losses, and a mount of it.
struct RepairedVolume {
    losses: Vec<Loss>,
    volume: sfs_core::Volume,
}

/// Repairs `volume`, expects no errors afterwards, and mounts it.
fn repair_and_mount(volume: &ForgedVolume) -> RepairedVolume {
    let device = Arc::new(volume.device.snapshot());
    let shared: Arc<dyn Device> = device.clone();
    let repaired = repair_with(&shared, false, true);
    assert!(repaired.before.errors() > 0, "there was no damage");
    let after = repaired.after.as_ref().expect("something was written");
    assert_eq!(after.errors(), 0, "{:?}", after.findings.kept());
    let again = repair_with(&shared, false, true);
    assert_eq!(again.before.errors(), 0, "{:?}", again.before.findings.kept());
    assert!(again.after.is_none(), "a second repair writes nothing");
    let volume = sfs_core::Volume::open(device, VolumeOptions::default(), NOW).expect("a mount");
    assert_eq!(volume.audit().expect("an audit"), []);
    RepairedVolume { losses: repaired.losses, volume }
}

fn repair_forged(change: impl FnOnce(&mut Forge)) -> RepairedVolume {
    let mut forge = populated();
    change(&mut forge);
    repair_and_mount(&forge.build())
}

impl RepairedVolume {
    fn expect(&self, losses: &[Loss]) -> &Self {
        let mut expected = losses.to_vec();
        expected.sort();
        assert_eq!(self.losses, expected);
        self
    }

    fn ino(&self, path: &str) -> Option<u64> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(ROOT_INO, |parent, name| {
            Some(self.volume.lookup(parent, name.as_bytes()).ok()?.ino)
        })
    }

    fn read(&self, ino: u64) -> Vec<u8> {
        let size = self.volume.attributes(ino).expect("an item").size;
        self.volume.read(ino, 0, size as usize).expect("a read").as_bytes().to_vec()
    }

    /// Expects `hello`, `data` and `link` unchanged.
    fn expect_content(&self) -> &Self {
        assert_eq!(self.read(self.ino("hello").expect("a name")), b"hello");
        self.expect_data();
        assert_eq!(self.ino("link"), Some(LINK));
        let target = self.volume.read_link(LINK).expect("a target");
        assert_eq!(target, [&[b'x'; 1024][..], &[b'y'; 476]].concat());
        self
    }

    fn expect_data(&self) -> &Self {
        let mut expected = vec![0; 41 * BLOCK_SIZE - 7];
        for block in [0, 1, 40] {
            let at = block * BLOCK_SIZE;
            let end = expected.len().min(at + BLOCK_SIZE);
            expected[at..end].fill(block as u8 + 1);
        }
        assert_eq!(self.ino("data"), Some(DATA));
        assert_eq!(self.ino("sub/data too"), Some(DATA));
        assert!(self.read(DATA) == expected, "the content of data");
        let value = self.volume.xattr(DATA, b"user.long").expect("an attribute");
        assert_eq!(value, [7; 2500]);
        self
    }
}

#[test]
fn counts_are_corrected_without_losses() {
    let expect_repair = |ino, change: fn(&mut Inode)| {
        repair_forged(|forge| forge.change_inode(ino, change)).expect(&[]).expect_content();
    };
    expect_repair(DATA, |inode| inode.links = 3);
    expect_repair(ROOT_INO, |inode| inode.links = 2);
    expect_repair(SUB, |inode| inode.size = 0);
    expect_repair(SUB, |inode| inode.parent = SUB);
    expect_repair(HELLO, |inode| inode.parent = SUB);
    expect_repair(LINK, |inode| inode.links = 0);
    expect_repair(DATA, |inode| inode.blocks = 2);
    let orphan = Key::new(0, ItemKind::Orphan, GONE);
    repair_forged(|forge| drop(forge.items.remove(&orphan))).expect(&[]).expect_content();
    repair_forged(|forge| forge.put(orphan, vec![3; 8])).expect(&[]).expect_content();
    // The truncation begins past the end of every file. A sync must succeed with such an item.
    for ino in [DATA, HELLO, SUB, ROOT_INO] {
        let cut = Key::new(0, ItemKind::Orphan, ino);
        let repaired = repair_forged(|forge| forge.put(cut, vec![0xff; 8]));
        repaired.expect(&[]).expect_content().volume.sync_all().expect("a sync");
    }
    let none = Key::new(0, ItemKind::Orphan, 99);
    repair_forged(|forge| forge.put(none, vec![0; 8])).expect(&[]).expect_content();
}

#[test]
fn the_usage_table_is_recounted_by_a_repair() {
    let expect_repair = |change: fn(&mut Vec<sfs_core::format::UsageEntry>)| {
        let repaired = repair_forged(|forge| forge.on_usage = Box::new(change));
        repaired.expect(&[]).expect_content();
    };
    expect_repair(|table| table[1].live_blocks += 1);
    expect_repair(|table| table[1].modified_sum += 1);
    expect_repair(|table| table[1].state = SegmentState::Sealed);
    expect_repair(|table| table[7].state = SegmentState::Open);
    expect_repair(|table| table[1].state = SegmentState::Clean);
    // No event ends these states of an empty segment, so the repair must release its space.
    for state in [SegmentState::Sealed, SegmentState::InPlace] {
        let repaired = repair_forged(|forge| {
            let lock_up = move |entry: &mut sfs_core::format::UsageEntry| entry.state = state;
            forge.on_usage = Box::new(move |table| table.iter_mut().skip(2).for_each(lock_up));
        });
        assert!(repaired.expect(&[]).expect_content().volume.status().segments.clean > 100);
    }
    let repaired = repair_forged(|forge| {
        forge.on_usage = Box::new(|table| table[1].state = SegmentState::Bad);
        forge.on_record = Box::new(|record| record.heads.truncate(1));
    });
    repaired.expect(&[]).expect_content();
    repair_forged(|forge| forge.put(usage_key(64), vec![0; 7])).expect(&[]).expect_content();
    repair_forged(|forge| forge.put(usage_key(3200), vec![0; 40])).expect(&[]).expect_content();
}

#[test]
fn the_first_of_two_different_superblocks_is_kept() {
    let volume = populated().build();
    let other = sfs_core::format::Superblock { hash_key: [9, 9], ..volume.superblock.clone() };
    volume.write(volume.superblock.layout.backup, &other.encode());
    repair_and_mount(&volume).expect(&[]).expect_content();
}

#[test]
fn without_a_checkpoint_the_newest_root_is_used() {
    let volume = populated().build();
    volume.flip(volume.superblock.layout.slots[0], 40);
    repair_and_mount(&volume).expect(&[]).expect_content();
    let volume = populated().build();
    volume.write_record(1, &volume.record);
    repair_and_mount(&volume).expect(&[]).expect_content();
    let mut forge = populated();
    forge.on_record = Box::new(|record| record.heads[1].segment = 100_000);
    repair_and_mount(&forge.build()).expect(&[]).expect_content();
    for (head, back) in [(0, 1), (1, 1), (0, 3), (1, 3)] {
        let mut forge = populated();
        forge.on_record = Box::new(move |record| record.heads[head].next_block -= back);
        repair_and_mount(&forge.build()).expect(&[]).expect_content();
    }
}

#[test]
fn names_are_repaired() {
    let hello = populated().entry_key(ROOT_INO, b"hello");
    let regular = FileKind::Regular;
    // An entry with a wrong cookie is moved.
    let away = Key { offset: hello.offset ^ 1 << 20, ..hello };
    let repaired = repair_forged(|forge| {
        let value = forge.items.remove(&hello).expect("an entry");
        forge.put(away, value);
    });
    repaired.expect(&[]).expect_content();
    let repaired =
        repair_forged(|forge| forge.put(hello, entry_value(HELLO, FileKind::Fifo, b"hello")));
    repaired.expect(&[]).expect_content();
    // A second entry of one name is dropped.
    let twin = Key { offset: hello.offset + 1, ..hello };
    let repaired = repair_forged(|forge| {
        forge.put(twin, entry_value(HELLO, regular, b"hello"));
        forge.change_inode(HELLO, |inode| inode.links = 2);
        forge.change_inode(ROOT_INO, |inode| inode.size = 5);
    });
    repaired.expect(&[Loss::Names { ino: ROOT_INO, count: 1 }]).expect_content();
    // An entry without an inode is dropped.
    let repaired = repair_forged(|forge| {
        forge.items.remove(&Key::inode(HELLO));
        forge.items.remove(&Key::new(HELLO, ItemKind::Inline, 0));
    });
    let name = "hello".to_owned();
    repaired.expect(&[Loss::File { ino: ROOT_INO, target: HELLO, name }]).expect_data();
}

#[test]
fn inodes_without_a_name_go_to_lost_and_found() {
    let hello = populated().entry_key(ROOT_INO, b"hello");
    let repaired = repair_forged(|forge| {
        forge.items.remove(&hello);
        forge.change_inode(ROOT_INO, |inode| inode.size = 3);
    });
    repaired.expect(&[Loss::Nameless { ino: HELLO }]).expect_data();
    assert_eq!(repaired.ino("lost+found/file-16"), Some(HELLO));
    assert_eq!(repaired.read(HELLO), b"hello");

    // A directory keeps its entries, and goes to the same lost+found as the file.
    let sub = populated().entry_key(ROOT_INO, b"sub");
    let repaired = repair_forged(|forge| {
        forge.items.remove(&sub);
        forge.items.remove(&hello);
        forge.change_inode(ROOT_INO, |inode| inode.size = 2);
    });
    repaired.expect(&[Loss::Nameless { ino: HELLO }, Loss::Nameless { ino: SUB }]);
    assert_eq!(repaired.ino("lost+found/directory-18/data too"), Some(DATA));

    let ring = [NEXT_INO, NEXT_INO + 1];
    let repaired = repair_forged(|forge| {
        for (ino, parent) in [(ring[0], ring[1]), (ring[1], ring[0])] {
            forge.inode(ino, &directory(parent, 1, 3));
            forge.entry(parent, b"child", ino, FileKind::Directory);
        }
        forge.on_record = Box::new(|record| record.next_ino = NEXT_INO + 2);
    });
    repaired.expect_content();
    assert!(repaired.losses.contains(&Loss::Nameless { ino: ring[0] }));
    assert_eq!(repaired.ino("lost+found/directory-21/child"), Some(ring[1]));

    let repaired = repair_forged(|forge| {
        forge.inode(NEXT_INO, &directory(NEXT_INO, 1, 3));
        forge.entry(NEXT_INO, b"self", NEXT_INO, FileKind::Directory);
        forge.on_record = Box::new(|record| record.next_ino = NEXT_INO + 1);
    });
    repaired.expect_content();
    let lost_name = Loss::Names { ino: NEXT_INO, count: 1 };
    assert_eq!(repaired.losses, [lost_name, Loss::Nameless { ino: NEXT_INO }]);
    assert_eq!(repaired.ino("lost+found/directory-21"), Some(NEXT_INO));
}

#[test]
fn a_directory_with_several_names_keeps_the_one_in_its_parent() {
    let repaired = repair_forged(|forge| {
        forge.entry(ROOT_INO, b"a second name", SUB, FileKind::Directory);
        forge.change_inode(ROOT_INO, |inode| (inode.size, inode.links) = (5, 4));
        forge.entry(SUB, b"third", SUB, FileKind::Directory);
        forge.change_inode(SUB, |inode| (inode.size, inode.links) = (2, 3));
    });
    let names = ["sub", "a second name"].map(|name| repaired.ino(name));
    assert!(names == [Some(SUB), None] || names == [None, Some(SUB)], "{names:?}");
    let volume = &repaired.volume;
    assert!(volume.lookup(SUB, b"data too").is_ok() && volume.lookup(SUB, b"third").is_err());
}

#[test]
fn lost_attributes_are_guessed() {
    let key = Key::inode(DATA);
    let repaired = repair_forged(|forge| drop(forge.items.remove(&key)));
    repaired.expect(&[Loss::Attributes { ino: DATA }]);
    assert_eq!(repaired.ino("data"), Some(DATA));
    let content = repaired.read(DATA);
    assert_eq!(content.len(), 41 * BLOCK_SIZE);
    assert!(content[..BLOCK_SIZE].iter().all(|byte| *byte == 1));
    let repaired = repair_forged(|forge| drop(forge.items.remove(&Key::inode(ROOT_INO))));
    repaired.expect(&[Loss::Attributes { ino: ROOT_INO }]).expect_content();
    let repaired = repair_forged(|forge| forge.put(Key::inode(SUB), vec![1; 112]));
    repaired.expect(&[Loss::Attributes { ino: SUB }]).expect_content();
}

#[test]
fn inline_content_is_repaired() {
    let inline = |ino, part| Key::new(ino, ItemKind::Inline, part);
    let repaired = repair_forged(|forge| forge.put(inline(HELLO, 0), b"hell".to_vec()));
    repaired.expect(&[Loss::Tail { ino: HELLO, first: 4, last: 4 }]).expect_data();
    assert_eq!(repaired.read(HELLO), b"hell");
    let repaired = repair_forged(|forge| forge.put(inline(HELLO, 1), b"!".to_vec()));
    repaired.expect(&[]).expect_content();
    let item = Loss::Item { ino: DATA, kind: ItemKind::Inline as u8 };
    let repaired = repair_forged(|forge| forge.put(inline(DATA, 0), b"!".to_vec()));
    repaired.expect(&[item]).expect_content();
    let repaired = repair_forged(|forge| drop(forge.items.remove(&inline(LINK, 0))));
    let name = "link".to_owned();
    let file = Loss::File { ino: ROOT_INO, target: LINK, name };
    repaired.expect(&[Loss::Target { ino: LINK }, file]).expect_data();
    assert_eq!(repaired.ino("link"), None);
}

#[test]
fn damaged_extended_attributes_are_dropped() {
    let long = populated().xattr_key(DATA, b"user.long", 0);
    let short = populated().xattr_key(DATA, b"user.short", 0);
    let part = Key { offset: long.offset + 1, ..long };
    let repaired = repair_forged(|forge| drop(forge.items.remove(&part)));
    repaired.expect(&[Loss::Xattr { ino: DATA }]);
    assert_eq!(repaired.volume.xattr(DATA, b"user.short").expect("an item"), b"value");
    let twin = Key { offset: short.offset | 1 << 16, ..short };
    let repaired = repair_forged(|forge| forge.put(twin, forge.items[&short].clone()));
    repaired.expect(&[Loss::Xattr { ino: DATA }]).expect_content();
    let flag = repair_forged(|forge| forge.change_inode(DATA, |i| i.flags = InodeFlags::NONE));
    flag.expect(&[]).expect_content();
}

/// The flag stays, and a program that does not know it must not write to the volume any more.
#[test]
fn a_flag_without_its_feature_gets_the_feature() {
    let repaired = repair_forged(|forge| {
        forge.change_inode(DATA, |inode| inode.flags |= InodeFlags::IMMUTABLE);
    });
    repaired.expect(&[]).expect_content();
    let inode = repaired.volume.attributes(DATA).expect("the file is there");
    assert!(inode.flags.contains(InodeFlags::IMMUTABLE));
    let features = repaired.volume.superblock().features;
    assert_eq!(features.read_only_compatible, Features::INODE_FLAGS);
}

#[test]
fn mappings_are_repaired() {
    let address = populated().data_address(0);
    let at = |address| {
        let checksum = crc32c::crc32c(&[1; BLOCK_SIZE]);
        Mapping { address, checksum: Some(checksum), history: History::plain(2, 9) }
    };
    let bytes = |block: u64| {
        let first = block * BLOCK_SIZE as u64;
        Loss::Bytes { ino: DATA, first, last: first + BLOCK_SIZE as u64 - 1 }
    };
    let repaired = repair_forged(|forge| forge.map(DATA, 0, at(3)));
    repaired.expect(&[bytes(0)]);
    assert!(repaired.read(DATA)[..BLOCK_SIZE].iter().all(|byte| *byte == 0));
    // A block with two references is copied, as its checksum matches both.
    let repaired = repair_forged(|forge| {
        forge.map(DATA, 2, at(address));
        forge.change_inode(DATA, |inode| inode.blocks = 4);
    });
    repaired.expect(&[]);
    assert_eq!(
        repaired.read(DATA)[..BLOCK_SIZE],
        repaired.read(DATA)[2 * BLOCK_SIZE..3 * BLOCK_SIZE]
    );
    // The summary describes another block, and the checksum decides.
    let repaired = repair_forged(|forge| forge.on_entries = Box::new(|entries| entries.swap(0, 1)));
    repaired.expect(&[]).expect_content();
    let repaired =
        repair_forged(|forge| forge.map(DATA, 0, Mapping { checksum: Some(5), ..at(address) }));
    repaired.expect(&[bytes(0)]);
    // A mapped block past the end makes the file longer.
    let repaired = repair_forged(|forge| forge.change_inode(DATA, |inode| inode.size = 40 * 4096));
    repaired.expect(&[]);
    assert_eq!(repaired.read(DATA).len(), 41 * BLOCK_SIZE);
    let repaired = repair_forged(|forge| {
        forge.inode(GONE, &Inode { links: 0, ..file(FileKind::Fifo, 0) });
        forge.map(GONE, 0, at(address + 20));
    });
    repaired.expect(&[Loss::Item { ino: GONE, kind: 4 }]).expect_content();
}

#[test]
fn a_damaged_block_becomes_a_hole_only_if_data_is_read() {
    let (volume, address) = (populated().build(), populated().data_address(1));
    volume.flip(address, 4000);
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    assert!(repair_with(&device, false, false).after.is_none());
    let repaired = repair_and_mount(&volume);
    repaired.expect(&[Loss::Bytes { ino: DATA, first: 4096, last: 8191 }]);
    assert!(repaired.read(DATA)[4096..8192].iter().all(|byte| *byte == 0));
}

#[test]
fn preening_repairs_only_without_losses() {
    let preen = |change: fn(&mut Forge)| {
        let mut forge = populated();
        change(&mut forge);
        let device: Arc<dyn Device> = Arc::new(forge.build().device);
        repair_with(&device, true, false)
    };
    let repaired = preen(|forge| forge.change_inode(DATA, |inode| inode.links = 7));
    assert_eq!((repaired.errors_left(), repaired.losses.len()), (0, 0));
    assert!(repaired.after.is_some());
    let repaired = preen(|forge| forge.on_usage = Box::new(|table| table[1].live_blocks = 0));
    assert_eq!(repaired.errors_left(), 0);
    let refused = preen(|forge| {
        forge.change_inode(DATA, |inode| inode.links = 7);
        forge.items.remove(&Key::inode(HELLO));
    });
    assert!(refused.after.is_none() && refused.errors_left() == 3, "{refused:?}");
}

#[test]
fn the_loss_of_any_node_is_repaired() {
    let volume = populated().build();
    let first = volume.superblock.layout.segment_address(0) + 1;
    for address in first..=volume.record.root_address {
        let volume = ForgedVolume { device: volume.device.snapshot(), ..populated().build() };
        volume.flip(address, 2000);
        let repaired = repair_and_mount(&volume);
        if address == volume.record.root_address {
            // All leaves still exist.
            repaired.expect_content();
        }
    }
}

#[test]
fn an_interrupted_repair_can_be_repeated() {
    let mut forge = populated();
    forge.items.remove(&populated().entry_key(ROOT_INO, b"hello"));
    let old = forge.build().device;
    let device = Arc::new(RecordingDevice::new(old.snapshot(), Keep::Contents));
    let shared: Arc<dyn Device> = device.clone();
    let before = check_device(&old, true).expect("a volume").findings.kept().to_vec();
    assert_eq!(repair_with(&shared, false, true).errors_left(), 0);
    let events = device.events();
    assert!(events.iter().any(|event| matches!(event, Event::Write { .. })));
    for len in 0..events.len() {
        let image = image_after(&old, &events[..len]);
        let found = check_device(&image, true).expect("a volume");
        let is_done = found.errors() == 0;
        assert!(is_done || found.findings.kept() == before, "after {len}: {:?}", found.findings);
        assert_eq!(is_done, len + 1 >= events.len(), "the record is the last write: {len}");
        let image: Arc<dyn Device> = Arc::new(image);
        assert_eq!(repair_with(&image, false, true).errors_left(), 0);
    }
}

#[test]
fn a_volume_without_space_is_not_changed() {
    let mut forge = populated();
    forge.change_inode(DATA, |inode| inode.links = 7);
    forge.on_usage = Box::new(|table| {
        table.iter_mut().filter(|e| e.state == SegmentState::Clean).for_each(|entry| {
            entry.state = SegmentState::Bad;
        });
    });
    let device: Arc<dyn Device> = Arc::new(forge.build().device);
    let options = RepairOptions { data: false, preen: false, now: NOW };
    let result = repair(&device, &options, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(result, Err(sfs_fsck::FsckError::NoSpace)), "{result:?}");
    let cancelled = repair(&device, &options, &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(sfs_fsck::FsckError::Cancelled)), "{cancelled:?}");
}

#[test]
fn a_checkpoint_with_impossible_counts_is_ignored() {
    let mut volume = populated().build();
    let sound = volume.record.clone();
    volume.record.number = 3;
    volume.write_record(1, &volume.record);
    let forged = sfs_core::format::CheckpointRecord { number: 5, mount_count: 1 << 61, ..sound };
    volume.write_record(1, &forged);
    let found = super::fixture::errors(&volume);
    assert_eq!(found, [sfs_fsck::Finding::CheckpointCounts { slot: 1 }]);
    repair_and_mount(&volume).expect(&[]).expect_content();
    let forged = sfs_core::format::CheckpointRecord { number: 1 << 61, ..forged };
    volume.write_record(0, &forged);
    repair_and_mount(&volume).expect(&[]).expect_content();
    // An inode number above the limit is dropped. The highest number below the limit is kept, and
    // leaves numbers for new files.
    for (ino, is_kept) in [(1 << 61, false), ((1 << 60) - 1, true)] {
        let repaired = repair_forged(|forge| {
            forge.inode(ino, &file(FileKind::Fifo, 0));
            forge.entry(ROOT_INO, b"high", ino, FileKind::Fifo);
            forge.change_inode(ROOT_INO, |inode| inode.size = 5);
        });
        assert_eq!(repaired.ino("high"), is_kept.then_some(ino));
        assert_eq!(repaired.losses.is_empty(), is_kept);
        repaired.expect_data();
    }
}
