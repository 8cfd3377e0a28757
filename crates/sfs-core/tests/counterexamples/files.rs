//! Single files: truncation, holes, the largest file, attributes, lookup by number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sfs_core::format::ROOT_INO;
use sfs_core::request::{Seek, VolumeOptions, Work, WriteMode, XattrMode};
use sfs_core::{Error, Volume};
use sfs_device::{Keep, RamDevice, RecordingDevice, image_after};

use crate::fixture::{NOW, blocks_for, caller, create, format, open, ram, read, set_size, write};

/// The truncation of an open file without a name deleted the file's orphan item, and the file was never deleted.
#[test]
fn a_truncated_file_without_a_name_is_still_deleted() {
    let device = Arc::new(RamDevice::new(128 << 8));
    format(&device, 256);
    let volume = open(&device);
    let file = create(&volume, "f");
    for at in 0..20 {
        write(&volume, file, at * 512, &vec![7; 512 * 4096]).unwrap();
    }
    volume.sync_all().unwrap();
    let before = volume.space().free_blocks;
    volume.unlink(ROOT_INO, b"f", &caller()).unwrap();
    set_size(&volume, file, 4096 * 32).unwrap();
    volume.forget(file, 1);
    while volume.work(NOW).unwrap() == Work::More {}
    assert!(volume.attributes(file).is_err(), "the file is still there");
    assert!(volume.space().free_blocks > before + 10_000);
}

/// A truncation that a crash interrupts is finished before the file is extended. An unfinished truncation
/// removed blocks that were written later, or showed the old content again.
#[test]
fn an_unfinished_truncation_does_not_remove_later_writes() {
    let ram = RamDevice::new(256 << 8);
    let device = Arc::new(RecordingDevice::new(ram, Keep::Contents));
    format(&device, 256);
    let volume = open(&device);
    let file = create(&volume, "f");
    let blocks = 18_000;
    for at in 0..blocks {
        write(&volume, file, at * 32, &[7; 4096]).unwrap();
    }
    volume.close().unwrap();
    let base = device.inner().snapshot();
    device.take_events();
    set_size(&volume, file, 4096).unwrap();
    let events = device.take_events();
    assert!(!events.is_empty(), "no commit came in between");
    let image = Arc::new(image_after(&base, &events));

    let volume = open(&image);
    let entry = volume.lookup(ROOT_INO, b"f").unwrap();
    assert_eq!(entry.inode.size, 4096, "the truncation has not taken effect");
    write(&volume, file, 64, &[9; 4096]).unwrap();
    volume.sync_file(file).unwrap();
    assert_eq!(read(&volume, file, 32 * 4096, 4096), [0; 4096], "truncated content is shown again");
    volume.forget(file, 1);
    while volume.work(NOW).unwrap() == Work::More {}
    assert_eq!(read(&volume, file, 64 * 4096, 4096), [9; 4096], "synced data is gone");
}

/// A search treated all blocks after the inline content as data, and visited each of them.
#[test]
fn an_extended_small_file_has_a_hole_after_its_content() {
    let volume = open(&ram(40));
    let file = create(&volume, "f");
    volume.write(file, 0, b"little", WriteMode::default(), &caller()).unwrap();
    volume.sync_all().unwrap();
    set_size(&volume, file, 1 << 44).unwrap();
    for _ in ["before a commit", "after a commit"] {
        assert_eq!(volume.seek(file, 0, Seek::Data).unwrap(), 0);
        assert_eq!(volume.seek(file, 0, Seek::Hole).unwrap(), 4096);
        assert_eq!(volume.seek(file, 1 << 30, Seek::Hole).unwrap(), 1 << 30);
        assert!(matches!(volume.seek(file, 1 << 30, Seek::Data), Err(Error::OutOfRange)));
        volume.sync_all().unwrap();
    }
}

/// The number of the last block is the largest one, so a search must not add to it.
#[test]
fn seeking_in_the_last_block_of_the_largest_file_terminates() {
    let device = ram(40);
    let volume = open(&device);
    let file = create(&volume, "f");
    let last = (1u64 << 32) - 1;
    write(&volume, file, last, &[1; 4096]).unwrap();
    assert_eq!(volume.seek(file, last * 4096 + 5, Seek::Hole).unwrap(), 1 << 44);
    assert_eq!(volume.seek(file, 0, Seek::Data).unwrap(), last * 4096);
    assert_eq!(read(&volume, file, last * 4096, 8192), [1; 4096]);
    volume.sync_all().unwrap();
    assert_eq!(volume.seek(file, last * 4096 + 5, Seek::Hole).unwrap(), 1 << 44);
    set_size(&volume, file, (1 << 44) - 1).unwrap();
    assert_eq!(read(&volume, file, last * 4096, 8192), [1; 4095]);
    set_size(&volume, file, 1 << 44).unwrap();
    set_size(&volume, file, 5).unwrap();
    volume.sync_all().unwrap();
}

/// A volume that was remounted read-only deleted a file, and cleaned to make space for that.
#[test]
fn forget_at_rest_writes_nothing() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(200)), Keep::Requests));
    format(&device, 32);
    let volume = open(&device);
    let (file, filler) = (create(&volume, "f"), create(&volume, "filler"));
    write(&volume, file, 0, &vec![7; 64 * 4096]).unwrap();
    let full = (0..).find(|at| write(&volume, filler, at * 16, &vec![7; 16 * 4096]).is_err());
    assert!(full.is_some_and(|at| at > 200), "the volume is full");
    volume.unlink(ROOT_INO, b"f", &caller()).unwrap();
    volume.sync_all().unwrap();
    device.take_events();
    volume.forget_at_rest(file, 1);
    assert!(device.take_events().is_empty(), "something was written");
    assert!(volume.attributes(file).is_ok(), "the file waits for background work");
    while volume.work(NOW).unwrap() == Work::More {}
    assert!(volume.attributes(file).is_err(), "the file is still there");
}

/// The listing started over for each node that it had to load, while other requests evicted the earlier ones: any user
/// could keep it running for ever.
#[test]
fn a_listing_of_attributes_does_not_start_over_for_each_node() {
    const COUNT: usize = 200;
    let device = Arc::new(RamDevice::new(1 << 18));
    format(&device, 256);
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options.clone(), NOW).unwrap();
    let (file, other) = (create(&volume, "f"), create(&volume, "g"));
    for at in 0..COUNT {
        let name = format!("user.{at}");
        let value = vec![7; 65_536];
        volume.set_xattr(file, name.as_bytes(), &value, XattrMode::Any, &caller()).unwrap();
    }
    volume.close().unwrap();
    let volume = Volume::open(device, options, NOW).unwrap();
    let before = volume.counters().nodes_read;
    let is_over = AtomicBool::new(false);
    let names = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                volume.attributes(other).unwrap();
                std::thread::yield_now();
            }
        });
        let names = volume.xattr_names(file);
        is_over.store(true, Ordering::Relaxed);
        names.unwrap()
    });
    assert_eq!(names.iter().filter(|byte| **byte == 0).count(), COUNT);
    let nodes = volume.counters().nodes_read - before;
    // Each node once, at most: those with the values are read along.
    assert!(nodes < 20 * COUNT as u64, "{nodes} nodes were read for {COUNT} names");
}

/// NFS and `open_by_handle_at` look files of every kind up by number.
#[test]
fn a_file_is_found_by_its_number_while_it_has_a_name() {
    let device = Arc::new(RamDevice::new(128 << 8));
    format(&device, 256);
    let volume = open(&device);
    let file = create(&volume, "f");
    assert_eq!(volume.lookup(file, b".").unwrap().ino, file);
    assert_eq!(volume.lookup(ROOT_INO, b".").unwrap().ino, ROOT_INO);
    assert!(matches!(volume.lookup(file, b".."), Err(Error::NotDirectory)));
    assert!(matches!(volume.lookup(file, b"x"), Err(Error::NotDirectory)));
    volume.unlink(ROOT_INO, b"f", &caller()).unwrap();
    assert!(matches!(volume.lookup(file, b"."), Err(Error::NotFound)));
    assert!(matches!(volume.lookup(file + 1000, b"."), Err(Error::NotFound)));
}
