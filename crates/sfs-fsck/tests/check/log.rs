//! Roll-forward: batches that take effect, and batches that do not.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{
    COUNT_KEPT_MAX, Change, Corruption, CorruptionKind, DeltaForm, FileKind, Head, Incompatibility,
    Inode, InodeFlags, ItemKind, Key, ROOT_INO, SegmentState, Structure, UsageEntry, VALUE_LEN_MAX,
};
use sfs_core::request::VolumeOptions;
use sfs_device::{BLOCK_SIZE, Block, Device};
use sfs_fsck::{CheckReport, Finding, Loss, RepairOptions, repair};

use super::fixture::repair_with;
use super::fixture::{NOW, check_device, errors, populated};
use super::forge::{self, DATA, HELLO, NEXT_INO, file};
use super::forged_volume::{ForgedVolume, data_entry, encode_delta, encode_plain_delta};

fn report(volume: &ForgedVolume) -> CheckReport {
    check_device(&volume.device, true).expect("a volume")
}

/// Returns the delta that grows `data` by a block, and the block.
fn growth(volume: &ForgedVolume) -> (Vec<u8>, Block) {
    let inode = Inode {
        links: 2,
        blocks: 4,
        flags: InodeFlags::XATTRS,
        ..file(FileKind::Regular, 42 * BLOCK_SIZE as u64)
    };
    let put = Change::Put { key: Key::inode(DATA).encode(), value: inode.encode().to_vec() };
    assert_eq!(volume.record.number, 2);
    (encode_delta(&[put]), Block([9; BLOCK_SIZE]))
}

#[test]
fn a_whole_batch_takes_effect() {
    let mut volume = populated().build();
    let (delta, block) = growth(&volume);
    let entry = data_entry(DATA, 41, &block);
    let at = volume.head_address(1);
    let count = volume.append(Head(1), at, &[entry], std::slice::from_ref(&block), &[], false);
    assert_eq!(report(&volume).rolled_chunks, 0);
    let at = volume.head_address(0);
    volume.append(Head::METADATA, at, &[], &[], &delta, true);
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).rolled_chunks, 2);
    assert_eq!(report(&volume).used_bytes, 8 * 4096);
    assert_eq!(count, 2);
}

#[test]
fn a_torn_batch_does_not_take_effect() {
    let mut volume = populated().build();
    let (delta, block) = growth(&volume);
    let entry = data_entry(DATA, 41, &block);
    let at = volume.head_address(1);
    volume.append(Head(1), at, &[entry], &[block], &delta, true);
    assert_eq!(report(&volume).rolled_chunks, 1);
    volume.flip(at + 1, 77);
    assert_eq!(report(&volume).rolled_chunks, 0);
    assert_eq!(errors(&volume), []);
}

#[test]
fn a_chunk_with_another_predecessor_does_not_take_effect() {
    let mut volume = populated().build();
    let (delta, _) = growth(&volume);
    let at = volume.head_address(0);
    volume.previous ^= 1;
    volume.append(Head::METADATA, at, &[], &[], &delta, true);
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
    let next_ino = encode_delta(&[Change::NextIno(NEXT_INO + 1)]);
    volume.append(Head(2), layout.segment_address(90), &[], &[], &next_ino, true);
    volume.append(Head(3), layout.segment_address(last), &[], &[], &next_ino, true);
    let at = layout.segment_address(90) + 1;
    volume.append(Head(2), at, &[], &[], &next_ino, true);
    assert_eq!(report(&volume).rolled_chunks, 3);
    let at = layout.segment_address(50);
    volume.append(Head(4), at, &[], &[], &next_ino, true);
    assert_eq!(report(&volume).rolled_chunks, 3);
}

#[test]
fn a_batch_applies_unmaps_first_and_data_last() {
    let mut volume = populated().build();
    let (mut delta, block) = growth(&volume);
    delta.extend(encode_delta(&[Change::Unmap { ino: DATA, first: 0, last: u32::MAX }]));
    let inode = Inode {
        links: 2,
        blocks: 1,
        flags: InodeFlags::XATTRS,
        ..file(FileKind::Regular, BLOCK_SIZE as u64)
    };
    let put = Change::Put { key: Key::inode(DATA).encode(), value: inode.encode().to_vec() };
    delta.extend(encode_delta(&[put]));
    let at = volume.head_address(1);
    volume.append(Head(1), at, &[data_entry(DATA, 0, &block)], &[block], &delta, true);
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).used_bytes, 5 * 4096);
}

#[test]
fn deltas_are_checked() {
    let mut volume = populated().build();
    let at = volume.head_address(0);
    volume.append(Head::METADATA, at, &[], &[], &[9, 9, 9], true);
    let corruption = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
    assert_eq!(errors(&volume), [Finding::DeltaDamaged { corruption }]);

    for kind in [ItemKind::Mapping, ItemKind::Usage] {
        let mut volume = populated().build();
        let at = volume.head_address(0);
        let key = Key::new(HELLO, kind, 0);
        let delta = encode_delta(&[Change::Delete { key: key.encode() }]);
        volume.append(Head::METADATA, at, &[], &[], &delta, true);
        assert_eq!(errors(&volume), [Finding::DeltaKey { address: at, key }]);
    }
}

/// A mount refuses a volume with an invalid change. A repair drops the whole batch.
#[test]
fn an_invalid_change_is_found_and_ends_the_log() {
    let layout = populated().superblock.layout;
    let key = Key::new(HELLO, ItemKind::Inline, 0).encode();
    let changes = [
        Change::NextIno(COUNT_KEPT_MAX),
        Change::NextIno(u64::MAX),
        Change::Unmap { ino: DATA, first: 5, last: 2 },
        Change::Put { key, value: vec![0; VALUE_LEN_MAX + 1] },
        // The data layout of this volume has no in-place writes.
        Change::Map { ino: DATA, block: 2, count: 1, address: layout.segment_address(9) },
    ];
    for change in changes {
        let mut volume = populated().build();
        let at = volume.head_address(0);
        let unmap = Change::Unmap { ino: DATA, first: 0, last: u32::MAX };
        volume.append(Head::METADATA, at, &[], &[], &encode_delta(&[unmap, change.clone()]), true);
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
        assert_eq!(open().expect("a mount").audit().expect("an audit"), []);
    }
}

#[test]
fn damage_by_a_batch_is_found() {
    let mut volume = populated().build();
    let key = forge::entry_key(&volume.superblock, ROOT_INO, b"hello");
    let delta = encode_delta(&[Change::Delete { key: key.encode() }]);
    let at = volume.head_address(0);
    volume.append(Head::METADATA, at, &[], &[], &delta, true);
    let expected = [
        Finding::Unreachable { ino: HELLO },
        Finding::DirectorySize { ino: ROOT_INO, size: 4, counted: 3 },
    ];
    assert_eq!(errors(&volume), expected);
}

/// Encodes a change of a newer program, with class and fields.
fn newer_change(kind: u16, class: u8, fields: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([class, 0]);
    bytes.extend((fields.len() as u32).to_le_bytes());
    bytes.extend(fields);
    bytes
}

fn open(volume: &ForgedVolume, read_only: bool) -> sfs_core::Result<sfs_core::Volume> {
    let device = Arc::new(volume.device.snapshot());
    sfs_core::Volume::open(device, VolumeOptions { read_only, ..VolumeOptions::default() }, NOW)
}

/// The rest of the batch takes effect. A known change may have additional bytes.
#[test]
fn an_optional_change_of_a_newer_program_is_skipped() {
    let mut volume = populated().build();
    let (mut delta, block) = growth(&volume);
    delta.splice(0..0, newer_change(77, 1, b"whatever"));
    let mut fields = (NEXT_INO + 9).to_le_bytes().to_vec();
    fields.extend(b"more than was known");
    delta.extend(newer_change(0, 2, &fields));
    let at = volume.head_address(1);
    volume.append(Head(1), at, &[data_entry(DATA, 41, &block)], &[block], &delta, true);
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).rolled_chunks, 1);
    for read_only in [true, false] {
        let mounted = open(&volume, read_only).expect("a mount");
        assert_eq!(mounted.attributes(DATA).expect("an item").blocks, 4);
        assert_eq!(mounted.audit().expect("an audit"), []);
    }
}

/// The change is not damage, so a repair must not remove it.
#[test]
fn a_required_change_of_a_newer_program_is_refused() {
    let mut volume = populated().build();
    let (mut delta, block) = growth(&volume);
    delta.extend(newer_change(77, 2, b"whatever"));
    let at = volume.head_address(1);
    volume.append(Head(1), at, &[data_entry(DATA, 41, &block)], &[block], &delta, true);
    let what = Incompatibility::Change { kind: 77, at };
    for read_only in [true, false] {
        let refused = open(&volume, read_only).map(drop);
        assert!(matches!(refused, Err(Error::Incompatible(found)) if found == what), "{refused:?}");
    }
    let words = format!(
        "change kind 77 in the delta at block {at} is newer than this program knows: upgrade sfs"
    );
    let checked = check_device(&volume.device, true).expect_err("the volume is not checked");
    assert_eq!(checked.to_string(), words);
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    let options = RepairOptions { data: false, preen: false, now: NOW };
    let repaired = repair(&device, &options, &mut |_| ControlFlow::Continue(()));
    assert_eq!(repaired.map(drop).expect_err("the volume is not repaired").to_string(), words);
    let mut now = Block::zeroed(volume.superblock.layout.block_count as usize);
    let mut before = now.clone();
    device.read(0, &mut now).expect("RAM");
    volume.device.read(0, &mut before).expect("RAM");
    assert!(Block::bytes_of(&now) == Block::bytes_of(&before), "nothing was changed");
}

/// Changes of format version 1 have neither class nor length.
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
    let delta = encode_plain_delta(&[put]);
    volume.form = DeltaForm::Plain;
    let at = volume.head_address(1);
    let entry = data_entry(DATA, 41, &block);
    volume.append(Head(1), at, &[entry], &[block], &delta, true);
    // The program that upgrades the volume continues the log with the new form.
    volume.form = DeltaForm::Tagged;
    let at = volume.head_address(0);
    volume.append(
        Head::METADATA,
        at,
        &[],
        &[],
        &encode_delta(&[Change::NextIno(NEXT_INO + 1)]),
        true,
    );
    assert_eq!(errors(&volume), []);
    assert_eq!(report(&volume).rolled_chunks, 2);
    let mounted = open(&volume, true).expect("a mount");
    assert_eq!(mounted.attributes(DATA).expect("an item").blocks, 4);
}

#[test]
fn chunks_of_one_batch_must_have_one_delta_form() {
    for forms in [[DeltaForm::Plain, DeltaForm::Tagged], [DeltaForm::Tagged, DeltaForm::Plain]] {
        let mut volume = populated().build();
        let at = volume.head_address(0);
        volume.form = forms[0];
        let count = volume.append(Head::METADATA, at, &[], &[], &[], false);
        volume.form = forms[1];
        let at = at + u64::from(count);
        volume.append(Head::METADATA, at, &[], &[], &[], true);
        let corruption = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
        assert_eq!(errors(&volume), [Finding::DeltaDamaged { corruption }]);
        let refused = open(&volume, true).map(drop);
        assert!(matches!(refused, Err(Error::Corrupt(found)) if found == corruption));
    }
}
