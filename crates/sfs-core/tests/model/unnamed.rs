//! Files that are created without a name: they get a first name or are deleted.

use std::sync::Arc;

use sfs_core::format::ROOT_INO;
use sfs_core::request::{AttributeChanges, WriteMode};
use sfs_core::{Error, Volume};
use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

use crate::fixture::{DIRECTORY, FILE, SEGMENT_BLOCKS, caller, open, ram, tight};

const LEN: usize = 100_000;

fn base() -> RamDevice {
    ram(8 << 20, SEGMENT_BLOCKS)
}

/// Creates a file without a name, of [`LEN`] bytes.
fn unnamed(volume: &Volume) -> u64 {
    let made = volume.make_unnamed(ROOT_INO, 0o640, &caller()).expect("the file is created");
    assert_eq!((made.inode.links, made.inode.mode), (0, 0o100_640));
    let write = volume.write(made.ino, 0, &[7; LEN], WriteMode::default(), &caller());
    write.expect("a write");
    made.ino
}

/// Asserts that `ino` is deleted and that the usage table agrees with the tree.
fn assert_gone(volume: &Volume, ino: u64) {
    volume.close().expect("the volume closes");
    assert!(matches!(volume.attributes(ino), Err(Error::NotFound)));
    assert_eq!(volume.audit().expect("the audit succeeds"), []);
}

#[test]
fn a_file_without_a_name_is_deleted_with_its_last_reference() {
    let volume = open(Arc::new(base()), tight());
    let ino = unnamed(&volume);
    volume.sync_all().expect("a sync");
    volume.forget(ino, 1);
    assert_gone(&volume, ino);
}

#[test]
fn a_file_without_a_name_is_deleted_after_a_crash() {
    let device = Arc::new(base());
    let volume = open(device.clone(), tight());
    let ino = unnamed(&volume);
    volume.sync_all().expect("a sync");
    drop(volume);
    assert_gone(&open(device, tight()), ino);
}

#[test]
fn a_power_cut_leaves_a_new_file_with_its_first_name_or_deletes_it() {
    let base = base();
    let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
    let volume = open(device.clone(), tight());
    let ino = unnamed(&volume);
    volume.sync_all().expect("a sync");
    volume.link(ino, ROOT_INO, b"name", &caller()).expect("the first name of the file");
    volume.sync_file(ino).expect("a sync");
    let events = device.events();
    drop(volume);
    let mut named = 0;
    for issued in 0..=events.len() {
        let volume = open(Arc::new(image_after(&base, &events[..issued])), tight());
        match volume.lookup(ROOT_INO, b"name") {
            Ok(found) => {
                assert_eq!((found.ino, found.inode.links), (ino, 1));
                assert_eq!(
                    volume.read(ino, 0, LEN).expect("the read succeeds").as_bytes(),
                    [7; LEN]
                );
                assert_eq!(volume.audit().expect("the audit succeeds"), []);
                named += 1;
            }
            Err(_) => assert_gone(&volume, ino),
        }
    }
    let last_flush = events.iter().rposition(|event| *event == Event::Flush).expect("a flush");
    assert!(named >= events.len() - last_flush, "a name that was synced is lost");
}

#[test]
fn only_a_file_created_without_a_name_can_get_a_first_name() {
    let volume = open(Arc::new(base()), tight());
    let link = |ino, name: &[u8]| volume.link(ino, ROOT_INO, name, &caller());
    let removed = volume.make_node(ROOT_INO, b"a", FILE, 0, &caller()).expect("a file").ino;
    volume.unlink(ROOT_INO, b"a", &caller()).expect("the name is removed");
    assert!(matches!(link(removed, b"b"), Err(Error::NotFound)));

    let ino = unnamed(&volume);
    let linked = link(ino, b"c").expect("the first name of the file");
    assert_eq!(linked.inode.links, 1);
    assert_eq!(link(ino, b"d").expect("the second name of the file").inode.links, 2);
    for name in [&b"c"[..], b"d"] {
        volume.unlink(ROOT_INO, name, &caller()).expect("the name is removed");
    }
    assert!(matches!(link(ino, b"e"), Err(Error::NotFound)), "the file has had a name");
    volume.forget(ino, 3);
    volume.forget(removed, 1);
    assert_gone(&volume, ino);
}

#[test]
fn a_file_without_a_name_inherits_the_group_of_its_directory() {
    let volume = open(Arc::new(base()), tight());
    let mode = DIRECTORY | 0o2000;
    let dir =
        volume.make_node(ROOT_INO, b"dir", mode, 0, &caller()).expect("the file is created").ino;
    let changes = AttributeChanges { gid: Some(77), ..AttributeChanges::default() };
    volume.set_attributes(dir, &changes, &caller()).expect("the attributes change");
    let made = volume.make_unnamed(dir, 0o600, &caller()).expect("the file is created");
    assert_eq!((made.inode.uid, made.inode.gid), (1000, 77));
    let in_a_file = volume.make_unnamed(made.ino, 0o600, &caller());
    assert!(matches!(in_a_file, Err(Error::NotDirectory)));
    volume.remove_directory(ROOT_INO, b"dir", &caller()).expect("the directory is empty");
    assert!(matches!(volume.make_unnamed(dir, 0o600, &caller()), Err(Error::NotFound)));
}
