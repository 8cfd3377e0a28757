//! Files that are made without a name: they get one, or go.

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

/// A file without a name, of [`LEN`] bytes.
fn unnamed(volume: &Volume) -> u64 {
    let made = volume.make_unnamed(ROOT_INO, 0o640, &caller()).expect("it is made");
    assert_eq!((made.inode.links, made.inode.mode), (0, 0o100_640));
    let write = volume.write(made.ino, 0, &[7; LEN], WriteMode::default(), &caller());
    write.expect("a write");
    made.ino
}

/// Nothing of `ino` is left, and every block is accounted for.
fn assert_gone(volume: &Volume, ino: u64) {
    volume.close().expect("it closes");
    assert!(matches!(volume.attributes(ino), Err(Error::NotFound)));
    assert_eq!(volume.audit().expect("a whole tree"), []);
}

#[test]
fn a_file_without_a_name_goes_with_its_last_reference() {
    let volume = open(Arc::new(base()), tight());
    let ino = unnamed(&volume);
    volume.sync_all().expect("a sync");
    volume.forget(ino, 1);
    assert_gone(&volume, ino);
}

#[test]
fn a_file_without_a_name_goes_with_a_crash() {
    let device = Arc::new(base());
    let volume = open(device.clone(), tight());
    let ino = unnamed(&volume);
    volume.sync_all().expect("a sync");
    drop(volume);
    assert_gone(&open(device, tight()), ino);
}

#[test]
fn a_file_without_a_name_gets_one_or_goes_wherever_the_power_fails() {
    let base = base();
    let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
    let volume = open(device.clone(), tight());
    let ino = unnamed(&volume);
    volume.sync_all().expect("a sync");
    volume.link(ino, ROOT_INO, b"name", &caller()).expect("its first name");
    volume.sync_file(ino).expect("a sync");
    let events = device.events();
    drop(volume);
    let mut named = 0;
    for issued in 0..=events.len() {
        let volume = open(Arc::new(image_after(&base, &events[..issued])), tight());
        match volume.lookup(ROOT_INO, b"name") {
            Ok(found) => {
                assert_eq!((found.ino, found.inode.links), (ino, 1));
                assert_eq!(volume.read(ino, 0, LEN).expect("it reads").as_bytes(), [7; LEN]);
                assert_eq!(volume.audit().expect("a whole tree"), []);
                named += 1;
            }
            Err(_) => assert_gone(&volume, ino),
        }
    }
    let last_flush = events.iter().rposition(|event| *event == Event::Flush).expect("a flush");
    assert!(named >= events.len() - last_flush, "what was synced has its name");
}

#[test]
fn only_a_file_that_was_made_without_a_name_may_get_its_first() {
    let volume = open(Arc::new(base()), tight());
    let link = |ino, name: &[u8]| volume.link(ino, ROOT_INO, name, &caller());
    let removed = volume.make_node(ROOT_INO, b"a", FILE, 0, &caller()).expect("a file").ino;
    volume.unlink(ROOT_INO, b"a", &caller()).expect("it goes");
    assert!(matches!(link(removed, b"b"), Err(Error::NotFound)));

    let ino = unnamed(&volume);
    let linked = link(ino, b"c").expect("its first name");
    assert_eq!(linked.inode.links, 1);
    assert_eq!(link(ino, b"d").expect("its second").inode.links, 2);
    for name in [&b"c"[..], b"d"] {
        volume.unlink(ROOT_INO, name, &caller()).expect("it goes");
    }
    assert!(matches!(link(ino, b"e"), Err(Error::NotFound)), "it has had one");
    volume.forget(ino, 3);
    volume.forget(removed, 1);
    assert_gone(&volume, ino);
}

#[test]
fn a_file_without_a_name_has_the_group_that_it_would_have_with_one() {
    let volume = open(Arc::new(base()), tight());
    let mode = DIRECTORY | 0o2000;
    let dir = volume.make_node(ROOT_INO, b"dir", mode, 0, &caller()).expect("it is made").ino;
    let changes = AttributeChanges { gid: Some(77), ..AttributeChanges::default() };
    volume.set_attributes(dir, &changes, &caller()).expect("it is changed");
    let made = volume.make_unnamed(dir, 0o600, &caller()).expect("it is made");
    assert_eq!((made.inode.uid, made.inode.gid), (1000, 77));
    let in_a_file = volume.make_unnamed(made.ino, 0o600, &caller());
    assert!(matches!(in_a_file, Err(Error::NotDirectory)));
    volume.remove_directory(ROOT_INO, b"dir", &caller()).expect("it is empty");
    assert!(matches!(volume.make_unnamed(dir, 0o600, &caller()), Err(Error::NotFound)));
}
