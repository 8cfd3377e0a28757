//! Limits: the largest file.

use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{FILE_BLOCKS_MAX, ROOT_INO};
use sfs_core::request::{AttributeChanges, Seek, WriteMode};
use sfs_device::RamDevice;

use crate::fixture::{FILE, SEGMENT_BLOCKS, caller, open, ram, tight};

#[test]
fn the_last_block_of_the_largest_file_can_be_used() {
    let device: Arc<RamDevice> = Arc::new(ram(8 << 20, SEGMENT_BLOCKS));
    let volume = open(device.clone(), tight());
    let ino = volume.make_node(ROOT_INO, b"f", FILE, 0, &caller()).expect("a file").ino;
    let len = FILE_BLOCKS_MAX * 4096;
    let last = len - 4096;
    let mode = WriteMode::default();
    volume.write(ino, last, &[5; 4096], mode, &caller()).expect("a write");
    let refused = volume.write(ino, len - 1, &[5; 2], mode, &caller());
    assert!(matches!(refused, Err(Error::FileTooLarge)));
    volume.sync_all().expect("a sync");
    drop(volume);

    let volume = open(device, tight());
    assert_eq!(volume.attributes(ino).expect("attributes").size, len);
    assert_eq!(volume.read(ino, last, 8192).expect("the read succeeds").as_bytes(), [5; 4096]);
    assert_eq!(volume.seek(ino, 0, Seek::Data).expect("data"), last);
    assert_eq!(volume.seek(ino, last, Seek::Hole).expect("the end"), len);
    assert_eq!(volume.seek(ino, 0, Seek::Hole).expect("a hole"), 0);
    let cut = AttributeChanges { size: Some(last + 1), ..Default::default() };
    volume.set_attributes(ino, &cut, &caller()).expect("a truncation");
    let grow = AttributeChanges { size: Some(len), ..Default::default() };
    volume.set_attributes(ino, &grow, &caller()).expect("an extension");
    let mut expected = [0; 4096];
    expected[0] = 5;
    assert_eq!(volume.read(ino, last, 8192).expect("the read succeeds").as_bytes(), expected);
    let too_far = AttributeChanges { size: Some(len + 1), ..Default::default() };
    let refused = volume.set_attributes(ino, &too_far, &caller());
    assert!(matches!(refused, Err(Error::FileTooLarge)));
}
