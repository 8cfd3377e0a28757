//! Roll-forward: what takes effect, and what does not.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{
    COUNT_KEPT_MAX, Change, Corruption, CorruptionKind, DeltaForm, FileKind, Incompatibility,
    Inode, InodeFlags, ItemKind, Key, ROOT_INO, SegmentState, Structure, UsageEntry, VALUE_LEN_MAX,
};
use sfs_core::request::VolumeOptions;
use sfs_device::{BLOCK_SIZE, Block, Device};
use sfs_fsck::{Finding, Loss, Repair, Report, repair};

use super::findings::{NOW, check_device, errors, populated};
use super::forge::{self, DATA, HELLO, NEXT_INO, Volume, file};
use super::repair::repair_with;

fn report(volume: &Volume) -> Report {
    check_device(&volume.device, true).expect("a volume")
}

/// A batch that grows `data` by a block, and the block.
fn growth(volume: &Volume) -> (Vec<u8>, Block) {
    let inode = Inode {
        links: 2,
        blocks: 4,
        flags: InodeFlags::XATTRS,
        ..file(FileKind::Regular, 42 * BLOCK_SIZE as u64)
    };
    let put = Change::Put { key: Key::inode(DATA).encode(), value: inode.encode().to_vec() };
    assert_eq!(volume.record.number, 2);
    (forge::delta(&[put]), Block([9; BLOCK_SIZE]))
}

#[test]
fn a_whole_batch_takes_effect() {
    let mut volume = populated().build();
    let (delta, block) = growth(&volume);
    let entry = forge::data(DATA, 41, &block);
    let at = volume.head_address(1);
    let count = volume.append(1, at, &[entry], std::slice::from_ref(&block), &[], false);
    assert_eq!(report(&volume).rolled_chunks, 0);
    let at = volume.head_address(0);
    volume.append(0, at, &[], &[], &delta, true);
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).rolled_chunks, 2);
    assert_eq!(report(&volume).used_bytes, 8 * 4096);
    assert_eq!(count, 2);
}

#[test]
fn a_torn_batch_does_not_take_effect() {
    let mut volume = populated().build();
    let (delta, block) = growth(&volume);
    let entry = forge::data(DATA, 41, &block);
    let at = volume.head_address(1);
    volume.append(1, at, &[entry], &[block], &delta, true);
    assert_eq!(report(&volume).rolled_chunks, 1);
    volume.flip(at + 1, 77);
    assert_eq!(report(&volume).rolled_chunks, 0);
    assert_eq!(errors(&volume), []);
}

#[test]
fn a_chunk_of_an_earlier_life_does_not_take_effect() {
    let mut volume = populated().build();
    let (delta, _) = growth(&volume);
    let at = volume.head_address(0);
    volume.previous ^= 1;
    volume.append(0, at, &[], &[], &delta, true);
    assert_eq!(report(&volume).rolled_chunks, 0);
}

#[test]
fn segments_are_opened_in_the_order_of_their_stamps() {
    let mut forge = populated();
    forge.on_usage = Box::new(|table| {
        for (segment, entry) in table.iter_mut().enumerate().skip(2) {
            entry.stamp = 1000 - segment as u64;
        }
        table[90] = UsageEntry { state: SegmentState::Drained, stamp: 3, ..UsageEntry::NEW };
    });
    let mut volume = forge.build();
    let layout = volume.superblock.layout;
    let last = layout.segment_count - 1;
    let next_ino = forge::delta(&[Change::NextIno(NEXT_INO + 1)]);
    volume.append(2, layout.segment_address(90), &[], &[], &next_ino, true);
    volume.append(3, layout.segment_address(last), &[], &[], &next_ino, true);
    let at = layout.segment_address(90) + 1;
    volume.append(2, at, &[], &[], &next_ino, true);
    assert_eq!(report(&volume).rolled_chunks, 3);
    let at = layout.segment_address(50);
    volume.append(4, at, &[], &[], &next_ino, true);
    assert_eq!(report(&volume).rolled_chunks, 3);
}

#[test]
fn unmaps_come_first_and_data_last() {
    let mut volume = populated().build();
    let (mut delta, block) = growth(&volume);
    delta.extend(forge::delta(&[Change::Unmap { ino: DATA, first: 0, last: u32::MAX }]));
    let inode = Inode {
        links: 2,
        blocks: 1,
        flags: InodeFlags::XATTRS,
        ..file(FileKind::Regular, BLOCK_SIZE as u64)
    };
    let put = Change::Put { key: Key::inode(DATA).encode(), value: inode.encode().to_vec() };
    delta.extend(forge::delta(&[put]));
    let at = volume.head_address(1);
    volume.append(1, at, &[forge::data(DATA, 0, &block)], &[block], &delta, true);
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).used_bytes, 5 * 4096);
}

#[test]
fn deltas_are_checked() {
    let mut volume = populated().build();
    let at = volume.head_address(0);
    volume.append(0, at, &[], &[], &[9, 9, 9], true);
    let corruption = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
    assert_eq!(errors(&volume), [Finding::DeltaDamaged { corruption }]);

    for kind in [ItemKind::Mapping, ItemKind::Usage] {
        let mut volume = populated().build();
        let at = volume.head_address(0);
        let key = Key::new(HELLO, kind, 0);
        let delta = forge::delta(&[Change::Delete { key: key.encode() }]);
        volume.append(0, at, &[], &[], &delta, true);
        assert_eq!(errors(&volume), [Finding::DeltaKey { address: at, key }]);
    }
}

/// A mount refuses such deltas, and sends the volume's owner to `sfs-fsck`. Nothing of the batch has effect.
#[test]
fn what_no_delta_says_is_found_and_cut_off() {
    let layout = populated().superblock.layout;
    let key = Key::new(HELLO, ItemKind::Inline, 0).encode();
    let changes = [
        Change::NextIno(COUNT_KEPT_MAX),
        Change::NextIno(u64::MAX),
        Change::Unmap { ino: DATA, first: 5, last: 2 },
        Change::Put { key, value: vec![0; VALUE_LEN_MAX + 1] },
        // All data of this volume is in its log.
        Change::Map { ino: DATA, block: 2, count: 1, address: layout.segment_address(9) },
    ];
    for change in changes {
        let mut volume = populated().build();
        let at = volume.head_address(0);
        let unmap = Change::Unmap { ino: DATA, first: 0, last: u32::MAX };
        volume.append(0, at, &[], &[], &forge::delta(&[unmap, change.clone()]), true);
        let corruption = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
        assert_eq!(errors(&volume), [Finding::DeltaDamaged { corruption }], "{change:?}");
        let device = Arc::new(volume.device.snapshot());
        let open = || sfs_core::Volume::open(device.clone(), VolumeOptions::default(), NOW);
        match open().map(drop) {
            Err(Error::Corrupt(found)) => assert_eq!(found, corruption, "{change:?}"),
            other => panic!("{change:?}: {other:?}"),
        }
        let shared: Arc<dyn Device> = device.clone();
        let repaired = repair_with(&shared, false, true);
        assert_eq!(
            (repaired.errors_left(), &repaired.losses[..]),
            (0, &[Loss::Log { address: at }][..])
        );
        assert_eq!(open().expect("it mounts").audit().expect("it counts"), []);
    }
}

#[test]
fn what_a_batch_breaks_is_found() {
    let mut volume = populated().build();
    let key = forge::entry_key(&volume.superblock, ROOT_INO, b"hello");
    let delta = forge::delta(&[Change::Delete { key: key.encode() }]);
    let at = volume.head_address(0);
    volume.append(0, at, &[], &[], &delta, true);
    let expected = [
        Finding::Unreachable { ino: HELLO },
        Finding::DirectorySize { ino: ROOT_INO, size: 4, counted: 3 },
    ];
    assert_eq!(errors(&volume), expected);
}

/// A change of a later program, with class and fields.
fn later(kind: u16, class: u8, fields: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([class, 0]);
    bytes.extend((fields.len() as u32).to_le_bytes());
    bytes.extend(fields);
    bytes
}

fn open(volume: &Volume, read_only: bool) -> sfs_core::Result<sfs_core::Volume> {
    let device = Arc::new(volume.device.snapshot());
    sfs_core::Volume::open(device, VolumeOptions { read_only, ..VolumeOptions::default() }, NOW)
}

/// What may be skipped is skipped, and the rest of its batch takes effect; a known change may be longer.
#[test]
fn a_change_of_a_later_program_is_passed_over() {
    let mut volume = populated().build();
    let (mut delta, block) = growth(&volume);
    delta.splice(0..0, later(77, 1, b"whatever"));
    let mut fields = (NEXT_INO + 9).to_le_bytes().to_vec();
    fields.extend(b"more than was known");
    delta.extend(later(0, 2, &fields));
    let at = volume.head_address(1);
    volume.append(1, at, &[forge::data(DATA, 41, &block)], &[block], &delta, true);
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).rolled_chunks, 1);
    for read_only in [true, false] {
        let mounted = open(&volume, read_only).expect("it mounts");
        assert_eq!(mounted.attributes(DATA).expect("it is there").blocks, 4);
        assert_eq!(mounted.audit().expect("it counts"), []);
    }
}

/// What must not be skipped is no damage: nobody repairs it away.
#[test]
fn a_change_that_needs_a_later_program_is_told() {
    let mut volume = populated().build();
    let (mut delta, block) = growth(&volume);
    delta.extend(later(77, 2, b"whatever"));
    let at = volume.head_address(1);
    volume.append(1, at, &[forge::data(DATA, 41, &block)], &[block], &delta, true);
    let what = Incompatibility::Change { kind: 77, at };
    for read_only in [true, false] {
        let refused = open(&volume, read_only).map(drop);
        assert!(matches!(refused, Err(Error::Incompatible(found)) if found == what), "{refused:?}");
    }
    let words = format!(
        "change kind 77 in the delta at block {at} is newer than this program knows: upgrade sfs"
    );
    let checked = check_device(&volume.device, true).expect_err("it is not checked");
    assert_eq!(checked.to_string(), words);
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    let options = Repair { data: false, preen: false, now: NOW };
    let repaired = repair(&device, &options, &mut |_| ControlFlow::Continue(()));
    assert_eq!(repaired.map(drop).expect_err("it is not repaired").to_string(), words);
    let mut now = Block::zeroed(volume.superblock.layout.block_count as usize);
    let mut before = now.clone();
    device.read(0, &mut now).expect("RAM");
    volume.device.read(0, &mut before).expect("RAM");
    assert!(Block::bytes_of(&now) == Block::bytes_of(&before), "nothing was changed");
}

/// The changes of version 1 have neither class nor length, and are read all the same.
#[test]
fn a_delta_of_version_1_takes_effect() {
    let mut volume = populated().build();
    let (_, block) = growth(&volume);
    let inode = Inode {
        links: 2,
        blocks: 4,
        flags: InodeFlags::XATTRS,
        ..file(FileKind::Regular, 42 * BLOCK_SIZE as u64)
    };
    let put = Change::Put { key: Key::inode(DATA).encode(), value: inode.encode().to_vec() };
    let delta = forge::plain_delta(&[put]);
    volume.form = DeltaForm::Plain;
    let at = volume.head_address(1);
    let entry = forge::data(DATA, 41, &block);
    volume.append(1, at, &[entry], &[block], &delta, true);
    // What was written afterwards has the new form.
    volume.form = DeltaForm::Tagged;
    let at = volume.head_address(0);
    volume.append(0, at, &[], &[], &forge::delta(&[Change::NextIno(NEXT_INO + 1)]), true);
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).rolled_chunks, 2);
    let mounted = open(&volume, true).expect("it mounts");
    assert_eq!(mounted.attributes(DATA).expect("it is there").blocks, 4);
}

#[test]
fn the_chunks_of_a_batch_agree_on_its_form() {
    for forms in [[DeltaForm::Plain, DeltaForm::Tagged], [DeltaForm::Tagged, DeltaForm::Plain]] {
        let mut volume = populated().build();
        let at = volume.head_address(0);
        volume.form = forms[0];
        let count = volume.append(0, at, &[], &[], &[], false);
        volume.form = forms[1];
        let at = at + u64::from(count);
        volume.append(0, at, &[], &[], &[], true);
        let corruption = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
        assert_eq!(errors(&volume), [Finding::DeltaDamaged { corruption }]);
        let refused = open(&volume, true).map(drop);
        assert!(matches!(refused, Err(Error::Corrupt(found)) if found == corruption));
    }
}
