//! Each kind of damage is repaired, and what is lost is said.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{
    FileKind, History, Inode, InodeFlags, ItemKind, Key, Mapping, ROOT_INO, SegmentState, usage_key,
};
use sfs_core::request::VolumeOptions;
use sfs_device::{BLOCK_SIZE, Device, Event, Keep, RecordingDevice, image_after};
use sfs_fsck::{Loss, Repair, Repaired, repair};

use super::findings::{NOW, check_device, populated};
use super::forge::{
    DATA, Forge, GONE, HELLO, LINK, NEXT_INO, SUB, Volume, directory, entry_value, file,
};

pub(crate) fn repair_with(device: &Arc<dyn Device>, preen: bool, data: bool) -> Repaired {
    let options = Repair { data, preen, now: NOW };
    repair(device, &options, &mut |_| ControlFlow::Continue(())).expect("a repair")
}

/// A volume that was repaired: what was lost, and a mount of it.
struct Mended {
    losses: Vec<Loss>,
    volume: sfs_core::Volume,
}

/// Repairs `volume`, checks that nothing is left, and mounts it.
fn mend(volume: &Volume) -> Mended {
    let device = Arc::new(volume.device.snapshot());
    let shared: Arc<dyn Device> = device.clone();
    let repaired = repair_with(&shared, false, true);
    assert!(repaired.before.errors() > 0, "there was no damage");
    let after = repaired.after.as_ref().expect("something was written");
    assert_eq!(after.errors(), 0, "{:?}", after.findings.kept());
    let again = repair_with(&shared, false, true);
    assert_eq!(again.before.errors(), 0, "{:?}", again.before.findings.kept());
    assert!(again.after.is_none(), "a second repair writes nothing");
    let volume = sfs_core::Volume::open(device, VolumeOptions::default(), NOW).expect("it mounts");
    assert_eq!(volume.audit().expect("it counts"), []);
    Mended { losses: repaired.losses, volume }
}

fn mend_forged(change: impl FnOnce(&mut Forge)) -> Mended {
    let mut forge = populated();
    change(&mut forge);
    mend(&forge.build())
}

impl Mended {
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
        let size = self.volume.attributes(ino).expect("it is there").size;
        self.volume.read(ino, 0, size as usize).expect("it can be read").as_bytes().to_vec()
    }

    /// `hello`, `data` and `link` are what they were.
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
fn counts_are_corrected_and_nothing_is_lost() {
    let mend = |ino, change: fn(&mut Inode)| {
        mend_forged(|forge| forge.change_inode(ino, change)).expect(&[]).expect_content();
    };
    mend(DATA, |inode| inode.links = 3);
    mend(ROOT_INO, |inode| inode.links = 2);
    mend(SUB, |inode| inode.size = 0);
    mend(SUB, |inode| inode.parent = SUB);
    mend(HELLO, |inode| inode.parent = SUB);
    mend(LINK, |inode| inode.links = 0);
    mend(DATA, |inode| inode.blocks = 2);
    let orphan = Key::new(0, ItemKind::Orphan, GONE);
    mend_forged(|forge| drop(forge.items.remove(&orphan))).expect(&[]).expect_content();
    mend_forged(|forge| forge.put(orphan, vec![3; 8])).expect(&[]).expect_content();
    // A truncation that begins behind every file: no sync got beyond it.
    for ino in [DATA, HELLO, SUB, ROOT_INO] {
        let cut = Key::new(0, ItemKind::Orphan, ino);
        let mended = mend_forged(|forge| forge.put(cut, vec![0xff; 8]));
        mended.expect(&[]).expect_content().volume.sync_all().expect("a sync");
    }
    let none = Key::new(0, ItemKind::Orphan, 99);
    mend_forged(|forge| forge.put(none, vec![0; 8])).expect(&[]).expect_content();
}

#[test]
fn the_usage_table_is_counted_anew() {
    let mend = |change: fn(&mut Vec<sfs_core::format::UsageEntry>)| {
        let mended = mend_forged(|forge| forge.on_usage = Box::new(change));
        mended.expect(&[]).expect_content();
    };
    mend(|table| table[1].live_blocks += 1);
    mend(|table| table[1].modified_sum += 1);
    mend(|table| table[1].state = SegmentState::Sealed);
    mend(|table| table[7].state = SegmentState::Open);
    mend(|table| table[1].state = SegmentState::Clean);
    // Empty, but nothing would ever make them Clean: there is room for the repair all the same.
    for state in [SegmentState::Sealed, SegmentState::InPlace] {
        let mended = mend_forged(|forge| {
            let lock_up = move |entry: &mut sfs_core::format::UsageEntry| entry.state = state;
            forge.on_usage = Box::new(move |table| table.iter_mut().skip(2).for_each(lock_up));
        });
        assert!(mended.expect(&[]).expect_content().volume.status().segments.clean > 100);
    }
    let mended = mend_forged(|forge| {
        forge.on_usage = Box::new(|table| table[1].state = SegmentState::Bad);
        forge.on_record = Box::new(|record| record.heads.truncate(1));
    });
    mended.expect(&[]).expect_content();
    mend_forged(|forge| forge.put(usage_key(64), vec![0; 7])).expect(&[]).expect_content();
    mend_forged(|forge| forge.put(usage_key(3200), vec![0; 40])).expect(&[]).expect_content();
}

#[test]
fn of_superblocks_that_differ_the_first_counts() {
    let volume = populated().build();
    let other = sfs_core::format::Superblock { hash_key: [9, 9], ..volume.superblock.clone() };
    volume.write(volume.superblock.layout.backup, &other.encode());
    mend(&volume).expect(&[]).expect_content();
}

#[test]
fn without_a_checkpoint_the_newest_root_counts() {
    let volume = populated().build();
    volume.flip(volume.superblock.layout.slots[0], 40);
    mend(&volume).expect(&[]).expect_content();
    let volume = populated().build();
    volume.write_record(1, &volume.record);
    mend(&volume).expect(&[]).expect_content();
    let mut forge = populated();
    forge.on_record = Box::new(|record| record.heads[1].segment = 100_000);
    mend(&forge.build()).expect(&[]).expect_content();
    for (head, back) in [(0, 1), (1, 1), (0, 3), (1, 3)] {
        let mut forge = populated();
        forge.on_record = Box::new(move |record| record.heads[head].next_block -= back);
        mend(&forge.build()).expect(&[]).expect_content();
    }
}

#[test]
fn names_are_mended() {
    let hello = populated().entry_key(ROOT_INO, b"hello");
    let regular = FileKind::Regular;
    // Where it belongs.
    let away = Key { offset: hello.offset ^ 1 << 20, ..hello };
    let mended = mend_forged(|forge| {
        let value = forge.items.remove(&hello).expect("an entry");
        forge.put(away, value);
    });
    mended.expect(&[]).expect_content();
    let mended =
        mend_forged(|forge| forge.put(hello, entry_value(HELLO, FileKind::Fifo, b"hello")));
    mended.expect(&[]).expect_content();
    // Twice in one directory.
    let twin = Key { offset: hello.offset + 1, ..hello };
    let mended = mend_forged(|forge| {
        forge.put(twin, entry_value(HELLO, regular, b"hello"));
        forge.change_inode(HELLO, |inode| inode.links = 2);
        forge.change_inode(ROOT_INO, |inode| inode.size = 5);
    });
    mended.expect(&[Loss::Names { ino: ROOT_INO, count: 1 }]).expect_content();
    // To nowhere.
    let mended = mend_forged(|forge| {
        forge.items.remove(&Key::inode(HELLO));
        forge.items.remove(&Key::new(HELLO, ItemKind::Inline, 0));
    });
    let name = "hello".to_owned();
    mended.expect(&[Loss::File { ino: ROOT_INO, target: HELLO, name }]).expect_data();
}

#[test]
fn what_has_no_name_goes_to_lost_and_found() {
    let hello = populated().entry_key(ROOT_INO, b"hello");
    let mended = mend_forged(|forge| {
        forge.items.remove(&hello);
        forge.change_inode(ROOT_INO, |inode| inode.size = 3);
    });
    mended.expect(&[Loss::Nameless { ino: HELLO }]).expect_data();
    assert_eq!(mended.ino("lost+found/file-16"), Some(HELLO));
    assert_eq!(mended.read(HELLO), b"hello");

    // A directory takes what is in it along; a second repair finds lost+found.
    let sub = populated().entry_key(ROOT_INO, b"sub");
    let mended = mend_forged(|forge| {
        forge.items.remove(&sub);
        forge.items.remove(&hello);
        forge.change_inode(ROOT_INO, |inode| inode.size = 2);
    });
    mended.expect(&[Loss::Nameless { ino: HELLO }, Loss::Nameless { ino: SUB }]);
    assert_eq!(mended.ino("lost+found/directory-18/data too"), Some(DATA));

    let ring = [NEXT_INO, NEXT_INO + 1];
    let mended = mend_forged(|forge| {
        for (ino, parent) in [(ring[0], ring[1]), (ring[1], ring[0])] {
            forge.inode(ino, &directory(parent, 1, 3));
            forge.entry(parent, b"child", ino, FileKind::Directory);
        }
        forge.on_record = Box::new(|record| record.next_ino = NEXT_INO + 2);
    });
    mended.expect_content();
    assert!(mended.losses.contains(&Loss::Nameless { ino: ring[0] }));
    assert_eq!(mended.ino("lost+found/directory-21/child"), Some(ring[1]));
}

#[test]
fn a_directory_keeps_the_name_that_its_parent_gives() {
    let mended = mend_forged(|forge| {
        forge.entry(ROOT_INO, b"a second name", SUB, FileKind::Directory);
        forge.change_inode(ROOT_INO, |inode| (inode.size, inode.links) = (5, 4));
        forge.entry(SUB, b"third", SUB, FileKind::Directory);
        forge.change_inode(SUB, |inode| (inode.size, inode.links) = (2, 3));
    });
    let names = ["sub", "a second name"].map(|name| mended.ino(name));
    assert!(names == [Some(SUB), None] || names == [None, Some(SUB)], "{names:?}");
    let volume = &mended.volume;
    assert!(volume.lookup(SUB, b"data too").is_ok() && volume.lookup(SUB, b"third").is_err());
}

#[test]
fn attributes_that_are_gone_are_guessed() {
    let key = Key::inode(DATA);
    let mended = mend_forged(|forge| drop(forge.items.remove(&key)));
    mended.expect(&[Loss::Attributes { ino: DATA }]);
    assert_eq!(mended.ino("data"), Some(DATA));
    let content = mended.read(DATA);
    assert_eq!(content.len(), 41 * BLOCK_SIZE);
    assert!(content[..BLOCK_SIZE].iter().all(|byte| *byte == 1));
    let mended = mend_forged(|forge| drop(forge.items.remove(&Key::inode(ROOT_INO))));
    mended.expect(&[Loss::Attributes { ino: ROOT_INO }]).expect_content();
    let mended = mend_forged(|forge| forge.put(Key::inode(SUB), vec![1; 112]));
    mended.expect(&[Loss::Attributes { ino: SUB }]).expect_content();
}

#[test]
fn small_content_is_mended() {
    let inline = |ino, part| Key::new(ino, ItemKind::Inline, part);
    let mended = mend_forged(|forge| forge.put(inline(HELLO, 0), b"hell".to_vec()));
    mended.expect(&[Loss::Tail { ino: HELLO, first: 4, last: 4 }]).expect_data();
    assert_eq!(mended.read(HELLO), b"hell");
    let mended = mend_forged(|forge| forge.put(inline(HELLO, 1), b"!".to_vec()));
    mended.expect(&[]).expect_content();
    let item = Loss::Item { ino: DATA, kind: ItemKind::Inline as u8 };
    let mended = mend_forged(|forge| forge.put(inline(DATA, 0), b"!".to_vec()));
    mended.expect(&[item]).expect_content();
    let mended = mend_forged(|forge| drop(forge.items.remove(&inline(LINK, 0))));
    let name = "link".to_owned();
    let file = Loss::File { ino: ROOT_INO, target: LINK, name };
    mended.expect(&[Loss::Target { ino: LINK }, file]).expect_data();
    assert_eq!(mended.ino("link"), None);
}

#[test]
fn extended_attributes_that_are_not_whole_are_dropped() {
    let long = populated().xattr_key(DATA, b"user.long", 0);
    let short = populated().xattr_key(DATA, b"user.short", 0);
    let part = Key { offset: long.offset + 1, ..long };
    let mended = mend_forged(|forge| drop(forge.items.remove(&part)));
    mended.expect(&[Loss::Xattr { ino: DATA }]);
    assert_eq!(mended.volume.xattr(DATA, b"user.short").expect("it is there"), b"value");
    let twin = Key { offset: short.offset | 1 << 16, ..short };
    let mended = mend_forged(|forge| forge.put(twin, forge.items[&short].clone()));
    mended.expect(&[Loss::Xattr { ino: DATA }]).expect_content();
    let flag = mend_forged(|forge| forge.change_inode(DATA, |i| i.flags = InodeFlags::NONE));
    flag.expect(&[]).expect_content();
}

#[test]
fn mappings_are_mended() {
    let address = populated().data_address(0);
    let at = |address| {
        let checksum = crc32c::crc32c(&[1; BLOCK_SIZE]);
        Mapping { address, checksum: Some(checksum), history: History::plain(2, 9) }
    };
    let bytes = |block: u64| {
        let first = block * BLOCK_SIZE as u64;
        Loss::Bytes { ino: DATA, first, last: first + BLOCK_SIZE as u64 - 1 }
    };
    let mended = mend_forged(|forge| forge.map(DATA, 0, at(3)));
    mended.expect(&[bytes(0)]);
    assert!(mended.read(DATA)[..BLOCK_SIZE].iter().all(|byte| *byte == 0));
    // A block of two owners is copied: the checksum says that it is right for both.
    let mended = mend_forged(|forge| {
        forge.map(DATA, 2, at(address));
        forge.change_inode(DATA, |inode| inode.blocks = 4);
    });
    mended.expect(&[]);
    assert_eq!(mended.read(DATA)[..BLOCK_SIZE], mended.read(DATA)[2 * BLOCK_SIZE..3 * BLOCK_SIZE]);
    // The summary says otherwise, and the checksum decides.
    let mended = mend_forged(|forge| forge.on_entries = Box::new(|entries| entries.swap(0, 1)));
    mended.expect(&[]).expect_content();
    let mended =
        mend_forged(|forge| forge.map(DATA, 0, Mapping { checksum: Some(5), ..at(address) }));
    mended.expect(&[bytes(0)]);
    // What is behind the end was written: the file is longer.
    let mended = mend_forged(|forge| forge.change_inode(DATA, |inode| inode.size = 40 * 4096));
    mended.expect(&[]);
    assert_eq!(mended.read(DATA).len(), 41 * BLOCK_SIZE);
    let mended = mend_forged(|forge| {
        forge.inode(GONE, &Inode { links: 0, ..file(FileKind::Fifo, 0) });
        forge.map(GONE, 0, at(address + 20));
    });
    mended.expect(&[Loss::Item { ino: GONE, kind: 4 }]).expect_content();
}

#[test]
fn a_damaged_block_becomes_a_hole_only_if_data_is_read() {
    let (volume, address) = (populated().build(), populated().data_address(1));
    volume.flip(address, 4000);
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    assert!(repair_with(&device, false, false).after.is_none());
    let mended = mend(&volume);
    mended.expect(&[Loss::Bytes { ino: DATA, first: 4096, last: 8191 }]);
    assert!(mended.read(DATA)[4096..8192].iter().all(|byte| *byte == 0));
}

#[test]
fn preening_does_only_what_loses_nothing() {
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
fn every_node_can_be_lost() {
    let volume = populated().build();
    let first = volume.superblock.layout.segment_address(0) + 1;
    for address in first..=volume.record.root_address {
        let volume = Volume { device: volume.device.snapshot(), ..populated().build() };
        volume.flip(address, 2000);
        let mended = mend(&volume);
        if address == volume.record.root_address {
            // Its leaves are all there.
            mended.expect_content();
        }
    }
}

#[test]
fn a_repair_that_is_cut_off_can_begin_again() {
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
fn a_volume_without_room_is_left_alone() {
    let mut forge = populated();
    forge.change_inode(DATA, |inode| inode.links = 7);
    forge.on_usage = Box::new(|table| {
        table.iter_mut().filter(|e| e.state == SegmentState::Clean).for_each(|entry| {
            entry.state = SegmentState::Bad;
        });
    });
    let device: Arc<dyn Device> = Arc::new(forge.build().device);
    let options = Repair { data: false, preen: false, now: NOW };
    let result = repair(&device, &options, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(result, Err(sfs_fsck::FsckError::NoRoom)), "{result:?}");
    let cancelled = repair(&device, &options, &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(sfs_fsck::FsckError::Cancelled)), "{cancelled:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_does_not_count() {
    let mut volume = populated().build();
    let sound = volume.record.clone();
    volume.record.number = 3;
    volume.write_record(1, &volume.record);
    let forged = sfs_core::format::CheckpointRecord { number: 5, mount_count: 1 << 61, ..sound };
    volume.write_record(1, &forged);
    let found = super::findings::errors(&volume);
    assert_eq!(found, [sfs_fsck::Finding::CheckpointCounts { slot: 1 }]);
    mend(&volume).expect(&[]).expect_content();
    let forged = sfs_core::format::CheckpointRecord { number: 1 << 61, ..forged };
    volume.write_record(0, &forged);
    mend(&volume).expect(&[]).expect_content();
    // An inode whose number is so high is none; the highest that is one leaves room for others.
    for (ino, is_kept) in [(1 << 61, false), ((1 << 60) - 1, true)] {
        let mended = mend_forged(|forge| {
            forge.inode(ino, &file(FileKind::Fifo, 0));
            forge.entry(ROOT_INO, b"high", ino, FileKind::Fifo);
            forge.change_inode(ROOT_INO, |inode| inode.size = 5);
        });
        assert_eq!(mended.ino("high"), is_kept.then_some(ino));
        assert_eq!(mended.losses.is_empty(), is_kept);
        mended.expect_data();
    }
}
