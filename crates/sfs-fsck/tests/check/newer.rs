//! Additions of a newer program: kept, skipped, or refused with an error that names the addition.

use std::sync::Arc;

use sfs_core::format::{
    Change, CorruptionKind, Head, Incompatibility, ItemKind, Key, MappingRun, ROOT_INO, Tolerance,
    run_key,
};
use sfs_core::request::{AttributeChanges, Caller, VolumeOptions, Work, WriteMode};
use sfs_core::{Error, Volume as Mounted};
use sfs_device::{BLOCK_SIZE, Device, RamDevice};
use sfs_fsck::{DumpSubject, Finding, FsckError, dump};

use super::fixture::repair_with;
use super::fixture::{NOW, check_device, errors, populated};
use super::forge::{DATA, Forge, HELLO, SUB};
use super::forged_volume::{ForgedVolume, encode_delta};

const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };

/// Bytes that a newer program has appended to attributes.
const APPENDED: [u8; 5] = [1, 2, 3, 4, 5];

/// The same bytes in the output of `sfs-fsck dump`.
const SHOWN: &str = "0102030405";

/// Optional extension record, which an older program skips.
const SKIPPED: [u8; 7] = [9, 1, 3, 0, 7, 8, 9];

/// Required extension record, which an older program refuses.
const REFUSED: [u8; 6] = [200, 2, 2, 0, 7, 8];

fn append(forge: &mut Forge, key: &Key, bytes: &[u8]) {
    forge.items.get_mut(key).expect("an item").extend_from_slice(bytes);
}

/// Returns a populated volume with bytes appended to the attributes of four inodes.
fn longer_inodes() -> Forge {
    let mut forge = populated();
    for ino in [ROOT_INO, HELLO, DATA, SUB] {
        append(&mut forge, &Key::inode(ino), &APPENDED);
    }
    forge
}

fn mount(device: RamDevice) -> (Arc<RamDevice>, Mounted) {
    let device = Arc::new(device);
    let volume = Mounted::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
    (device, volume)
}

/// Returns the JSON value of the item `key`, from the last checkpoint and the log past it.
fn shown(device: &RamDevice, key: &Key) -> serde_json::Value {
    let all = dump(device, &DumpSubject::Inode(key.ino)).expect("an item").to_string();
    let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    let items = all["items"].as_array().expect("items").clone();
    let name = match ItemKind::decode(key.kind) {
        Some(ItemKind::Inode) => "attributes",
        _ => "mapping",
    };
    let wanted = format!("inode {}, {name} {:#x}", key.ino, key.offset);
    let found = items.iter().find(|item| item["key"] == wanted.as_str());
    found.unwrap_or_else(|| panic!("no {wanted} in {all}"))["value"].clone()
}

/// Changes the attributes of files in each way that the filesystem has.
fn change_files(volume: &Mounted) {
    let mode = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
    volume.set_attributes(SUB, &mode, &CALLER).expect("a mode");
    let size = AttributeChanges { size: Some(3), ..AttributeChanges::default() };
    volume.set_attributes(HELLO, &size, &CALLER).expect("a size");
    volume.write(DATA, 0, &[5; 2 * BLOCK_SIZE], WriteMode::default(), &CALLER).expect("room");
    volume.make_node(ROOT_INO, b"new", 0o100_644, 0, &CALLER).expect("a name");
}

fn expect_appended(device: &RamDevice) {
    for ino in [ROOT_INO, HELLO, DATA, SUB] {
        assert_eq!(shown(device, &Key::inode(ino))["appended"], SHOWN, "inode {ino}");
    }
    assert_eq!(check_device(device, true).expect("a volume").errors(), 0);
}

#[test]
fn appended_attribute_bytes_are_kept() {
    let volume = longer_inodes().build();
    assert_eq!(errors(&volume), []);
    let (device, mounted) = mount(volume.device);
    change_files(&mounted);
    mounted.sync_all().expect("RAM");
    let crashed = device.snapshot();
    mounted.close().expect("RAM");
    expect_appended(&device);
    // Recovery from the log gives the same result.
    let (device, mounted) = mount(crashed);
    assert_eq!(mounted.attributes(DATA).expect("an item").mode & 0o777, 0o644);
    assert_eq!(mounted.attributes(HELLO).expect("an item").size, 3);
    mounted.close().expect("RAM");
    expect_appended(&device);
}

#[test]
fn a_repair_keeps_appended_attribute_bytes() {
    let mut forge = longer_inodes();
    forge.change_inode(DATA, |inode| inode.links = 7);
    append(&mut forge, &Key::inode(DATA), &APPENDED);
    let volume = forge.build();
    let found = errors(&volume);
    assert_eq!(found, [Finding::LinkCount { ino: DATA, links: 7, counted: 2 }]);
    let device = Arc::new(volume.device);
    let shared: Arc<dyn Device> = device.clone();
    let repaired = repair_with(&shared, false, true);
    assert_eq!((repaired.errors_left(), &repaired.losses[..]), (0, &[][..]));
    expect_appended(&device);
}

/// Only a volume with an unknown feature has unknown flags and kinds. On other volumes unknown flags and kinds are the
/// result of a bit flip.
#[test]
fn unknown_flags_and_kinds_are_damage_where_every_feature_is_known() {
    let mut forge = populated();
    forge.items.get_mut(&Key::inode(HELLO)).expect("an item")[23] |= 0x80;
    let volume = forge.build();
    let key = Key::inode(HELLO);
    assert!(errors(&volume).contains(&Finding::ItemDamaged { key }), "{:?}", errors(&volume));
    let (_, mounted) = mount(volume.device);
    let refused = mounted.attributes(HELLO);
    assert!(
        matches!(refused, Err(Error::Corrupt(found)) if found.kind == CorruptionKind::Value),
        "{refused:?}"
    );

    let mut forge = populated();
    let key = Key { ino: HELLO, kind: 9, offset: 3 };
    forge.put(key, b"something".to_vec());
    assert_eq!(errors(&forge.build()), [Finding::ItemMisplaced { key }]);
}

/// Returns a populated volume with an unknown compatible feature.
fn newer() -> Forge {
    let mut forge = populated();
    forge.superblock.features.compatible = 1 << 63;
    forge
}

/// Number of items of one inode that a newer program wrote: enough for a deletion in steps.
const NEWER_ITEMS: u64 = 3000;

fn with_newer_items(forge: &mut Forge) {
    for (ino, kind, offset) in [(HELLO, 9, 3), (SUB, 9, 3), (SUB, 254, u64::MAX), (0, 10, 7)] {
        forge.put(Key { ino, kind, offset }, b"something".to_vec());
    }
    (0..NEWER_ITEMS).for_each(|offset| forge.put(Key { ino: HELLO, kind: 100, offset }, vec![1]));
}

/// Returns the keys of `ino` with an unknown kind.
fn newer_keys(device: &RamDevice, ino: u64) -> Vec<String> {
    let Ok(all) = dump(device, &DumpSubject::Inode(ino)) else { return Vec::new() };
    let items = all["items"].as_array().expect("items").iter();
    let keys = items.map(|item| item["key"].as_str().expect("a key").to_owned());
    keys.filter(|key| key.contains("kind")).collect()
}

#[test]
fn items_of_a_newer_program_are_kept_and_deleted_with_their_inode() {
    let mut forge = newer();
    with_newer_items(&mut forge);
    let volume = forge.build();
    assert_eq!(errors(&volume), []);
    let (device, mounted) = mount(volume.device);
    assert_eq!(mounted.read(HELLO, 0, 5).expect("a read").as_bytes(), b"hello");
    change_files(&mounted);
    mounted.sync_all().expect("RAM");
    mounted.unlink(ROOT_INO, b"hello", &CALLER).expect("an unlink");
    while let Work::More = mounted.work(NOW).expect("RAM") {}
    mounted.sync_all().expect("RAM");
    let crashed = device.snapshot();
    mounted.close().expect("RAM");
    let (recovered, mounted) = mount(crashed);
    mounted.close().expect("RAM");
    for device in [device, recovered] {
        assert_eq!(newer_keys(&device, HELLO), [""; 0]);
        assert_eq!(newer_keys(&device, SUB).len(), 2);
        assert_eq!(newer_keys(&device, 0).len(), 1);
        assert_eq!(check_device(&*device, true).expect("a volume").errors(), 0);
    }
}

#[test]
fn a_repair_keeps_items_of_a_newer_program() {
    let mut forge = newer();
    with_newer_items(&mut forge);
    forge.change_inode(SUB, |inode| inode.links = 7);
    let device = Arc::new(forge.build().device);
    let shared: Arc<dyn Device> = device.clone();
    let repaired = repair_with(&shared, false, true);
    assert!(repaired.before.errors() > 0);
    assert_eq!((repaired.errors_left(), &repaired.losses[..]), (0, &[][..]));
    assert_eq!(newer_keys(&device, SUB).len(), 2);
    assert_eq!(newer_keys(&device, 0).len(), 1);
    assert_eq!(newer_keys(&device, HELLO).len() as u64, NEWER_ITEMS + 1);
}

#[test]
fn flags_of_a_newer_program_are_kept() {
    const NEWER_FLAG: u32 = 1 << 31;
    let mut forge = newer();
    for ino in [ROOT_INO, HELLO, DATA, SUB] {
        forge.items.get_mut(&Key::inode(ino)).expect("an item")[23] |= 0x80;
    }
    let volume = forge.build();
    assert_eq!(errors(&volume), []);
    let (device, mounted) = mount(volume.device);
    change_files(&mounted);
    mounted.close().expect("RAM");
    for (ino, others) in [(ROOT_INO, 0), (HELLO, 1), (DATA, 2), (SUB, 0)] {
        let flags = NEWER_FLAG | others;
        assert_eq!(shown(&device, &Key::inode(ino))["flags"], flags, "inode {ino}");
    }
    assert_eq!(check_device(&*device, true).expect("a volume").errors(), 0);
}

/// The log of a newer program changes items of unknown kinds.
#[test]
fn items_of_a_newer_program_are_rolled_forward() {
    let key = Key { ino: SUB, kind: 9, offset: 3 };
    let put = Change::Put { key: key.encode(), value: vec![7; 20] };
    let deleted = Key { ino: SUB, kind: 254, offset: u64::MAX };
    let delete = Change::Delete { key: deleted.encode() };
    let mut forge = newer();
    with_newer_items(&mut forge);
    let mut volume = forge.build();
    let at = volume.head_address(0);
    volume.append(
        Head::METADATA,
        at,
        &[],
        &[],
        &encode_delta(&[put.clone(), delete.clone()]),
        true,
    );
    assert_eq!(errors(&volume), []);
    let (device, mounted) = mount(volume.device);
    mounted.close().expect("RAM");
    assert_eq!(newer_keys(&device, SUB), [format!("inode {SUB}, kind 9, 0x3")]);

    let mut volume = populated().build();
    let at = volume.head_address(0);
    volume.append(Head::METADATA, at, &[], &[], &encode_delta(&[put]), true);
    assert_eq!(errors(&volume), [Finding::DeltaKey { address: at, key }]);
}

#[test]
fn an_encoding_of_a_newer_program_is_refused() {
    let mut forge = newer();
    forge.items.get_mut(&run_key(DATA, 40)).expect("an item")[4 + 5] = 4;
    let volume = forge.build();
    let what = Incompatibility::Encoding { encoding: 4, ino: DATA };
    match check_device(&volume.device, true) {
        Err(FsckError::Incompatible(found)) => assert_eq!(found, what),
        other => panic!("{other:?}"),
    }
    let (_, mounted) = mount(volume.device);
    let refused = mounted.read(DATA, 40 * BLOCK_SIZE as u64, 1).map(drop);
    assert!(matches!(refused, Err(Error::Incompatible(found)) if found == what), "{refused:?}");
    assert_eq!(mounted.read(DATA, 0, 1).expect("a read").as_bytes(), [1]);
    let size = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
    let refused = mounted.set_attributes(DATA, &size, &CALLER).map(drop);
    assert!(matches!(refused, Err(Error::Incompatible(found)) if found == what));
    mounted.unlink(ROOT_INO, b"hello", &CALLER).expect("another file can be deleted");
    mounted.close().expect("RAM");
}

fn with_records(records: &[u8]) -> ForgedVolume {
    let mut forge = populated();
    append(&mut forge, &run_key(DATA, 0), records);
    forge.build()
}

#[test]
fn records_of_a_run_are_kept_while_it_has_mappings() {
    let volume = with_records(&SKIPPED);
    assert_eq!(errors(&volume), []);
    let (device, mounted) = mount(volume.device);
    mounted.write(DATA, 0, &[5; 3 * BLOCK_SIZE], WriteMode::default(), &CALLER).expect("room");
    let size = AttributeChanges { size: Some(2 * BLOCK_SIZE as u64), ..Default::default() };
    mounted.sync_all().expect("RAM");
    mounted.set_attributes(DATA, &size, &CALLER).expect("a size");
    mounted.sync_all().expect("RAM");
    let crashed = device.snapshot();
    mounted.close().expect("RAM");
    for (device, mounted) in [(device, None), {
        let (device, mounted) = mount(crashed);
        (device, Some(mounted))
    }] {
        if let Some(mounted) = mounted {
            assert_eq!(mounted.read(DATA, 0, 1).expect("a read").as_bytes(), [5]);
            mounted.close().expect("RAM");
        }
        let run = shown(&device, &run_key(DATA, 0));
        assert_eq!(run[2]["records"], "090103000708 09".replace(' ', ""), "{run}");
        assert_eq!(check_device(&device, true).expect("a volume").errors(), 0);
    }
}

/// A mount refuses access to this one file, and a check refuses the volume without a report of damage.
#[test]
fn a_run_that_needs_a_newer_program_is_refused() {
    let volume = with_records(&[&SKIPPED[..], &REFUSED[..]].concat());
    let what = Incompatibility::RunRecord { tag: 200, ino: DATA };
    let refuses = |refused: &sfs_core::Result<()>| matches!(refused, Err(Error::Incompatible(found)) if *found == what);
    match check_device(&volume.device, true) {
        Err(FsckError::Incompatible(found)) => assert_eq!(found, what),
        other => panic!("{other:?}"),
    }
    let (_, mounted) = mount(volume.device);
    let refused = mounted.read(DATA, 0, 1).map(drop);
    assert!(refuses(&refused), "{refused:?}");
    assert_eq!(mounted.read(HELLO, 0, 1).expect("a read").as_bytes(), b"h");
    // A write of a whole block is buffered. The sync drops the block, and other files become durable.
    mounted.write(DATA, 0, &[5; BLOCK_SIZE], WriteMode::default(), &CALLER).expect("room");
    mounted.write(HELLO, 0, b"j", WriteMode::default(), &CALLER).expect("room");
    let refused = mounted.sync_file(DATA);
    assert!(refuses(&refused), "{refused:?}");
    mounted.sync_file(HELLO).expect("RAM");
    assert_eq!(mounted.read(HELLO, 0, 5).expect("a read").as_bytes(), b"jello");
}

#[test]
fn malformed_records_are_damage() {
    let records: [&[u8]; 6] = [
        &[9],
        &[9, 0, 0, 0],
        &[9, 3, 0, 0],
        &[9, 1, 1, 0],
        &[9, 1, 0, 0, 9, 1, 0, 0],
        &[9, 1, 0, 0, 8, 1, 0, 0],
    ];
    let key = run_key(DATA, 0);
    for records in
        records.into_iter().chain([&[[9, 1, 0xf9, 2].as_slice(), &[0; 761]].concat()[..]])
    {
        let found = errors(&with_records(records));
        assert!(found.contains(&Finding::ItemDamaged { key }), "{records:?}: {found:?}");
    }
    let most = [[9, 1, 0xf8, 2].as_slice(), &[0; 760]].concat();
    assert_eq!(errors(&with_records(&most)), []);
}

/// Unwritten, shared and compressed blocks need a feature in the superblock.
#[test]
fn reserved_encodings_are_damage_where_every_feature_is_known() {
    let key = run_key(DATA, 0);
    for encoding in [0, 3, 4, 5, 6, 255] {
        let mut forge = populated();
        forge.items.get_mut(&key).expect("an item")[4 + 5] = encoding;
        let value = forge.items[&key].clone();
        let found = errors(&forge.build());
        assert!(found.contains(&Finding::ItemDamaged { key }), "{encoding}: {found:?}");
        let decoded = MappingRun::decode(&value, &key, Tolerance::Newer).map(drop);
        let what = Incompatibility::Encoding { encoding, ino: DATA };
        assert_eq!(decoded == Err(what.into()), encoding != 0, "{decoded:?}");
    }
    let what = Incompatibility::Encoding { encoding: 5, ino: DATA };
    assert_eq!(
        what.to_string(),
        "encoding 5 (Compressed) of a block of inode 17 is newer than this program knows"
    );
}
