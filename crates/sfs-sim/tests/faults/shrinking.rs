//! Tests on devices that become smaller, and on image files in a full filesystem.

use std::io::ErrorKind;
use std::sync::Arc;

use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::WriteMode;
use sfs_core::{Error, Volume};
use sfs_device::Device;
use sfs_sim::empty_volume::empty_volume;
use sfs_sim::image::CowImage;
use sfs_sim::model::fixture::{FILE, NOW, caller, open, tight};
use sfs_sim::silent_faults::SilentFaultDevice;

static SYNCED: [u8; 20_000] = [1; 20_000];

/// Makes a volume with a synced file.
fn begin() -> (Arc<SilentFaultDevice>, Volume, u64) {
    let device = Arc::new(SilentFaultDevice::new(empty_volume(DataLayout::Log, 34)));
    let volume = open(device.clone(), tight());
    let ino = volume.make_node(ROOT_INO, b"synced", FILE, 0, &caller()).expect("a file").ino;
    volume.write(ino, 0, &SYNCED, WriteMode::default(), &caller()).expect("a write");
    volume.sync_all().expect("a sync");
    (device, volume, ino)
}

/// Writes and syncs new files until an operation fails, and returns the error.
fn write_until_it_fails(volume: &Volume) -> Error {
    for no in 0..200 {
        let name = format!("file-{no}");
        let write = || -> Result<(), Error> {
            let entry = volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller())?;
            volume.write(entry.ino, 0, &[2; 30_000], WriteMode::default(), &caller())?;
            volume.sync_file(entry.ino)
        };
        if let Err(error) = write() {
            return error;
        }
    }
    panic!("200 files were written to a device that cannot take them");
}

/// Asserts that the volume stays read-only and can still be read.
fn assert_read_only_for_good(volume: &Volume, ino: u64) {
    assert!(matches!(volume.sync_all(), Err(Error::Stopped)));
    let refused = volume.write(ino, 0, &[3; 10], WriteMode::default(), &caller());
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    assert!(matches!(volume.close(), Err(Error::Stopped)));
    let bytes = volume.read(ino, 0, 30_000).expect("a read");
    assert!(bytes.as_bytes() == SYNCED);
}

/// "A device that fails a write turns the volume read-only; data in memory can still be read."
#[test]
fn a_device_that_shrinks_turns_the_volume_read_only() {
    let (device, volume, ino) = begin();
    device.shrink(32 + 6 * 32);
    let error = write_until_it_fails(&volume);
    assert!(matches!(error, Error::Device(_)), "{error:?}");
    let message = error.to_string();
    assert!(message.starts_with("write of ") && message.contains(" failed: "), "{message}");
    assert_read_only_for_good(&volume, ino);
}

/// A mount detects a smaller device; its error message has both sizes.
#[test]
fn a_device_that_has_shrunk_is_refused() {
    let (device, volume, _) = begin();
    volume.close().expect("the volume closes");
    let whole = device.image();
    let block_count = whole.geometry().block_count;
    let smaller = CowImage::new(block_count - 40);
    for address in 0..block_count - 40 {
        smaller.edit(address, |bytes| *bytes = *whole.block(address));
    }
    match Volume::open(Arc::new(smaller), tight(), NOW) {
        Err(error @ Error::DeviceTooSmall { .. }) => {
            let sizes = format!(
                "the device has {} blocks, but its volume has {block_count}",
                block_count - 40
            );
            assert_eq!(error.to_string(), sizes);
        }
        other => panic!("{:?}", other.err()),
    }
}

/// ENOSPC in the filesystem of a sparse image file is handled as any other failed write.
#[test]
fn a_full_disk_beneath_the_image_turns_the_volume_read_only() {
    for room in [0, 1, 7, 30, 100] {
        let (device, volume, ino) = begin();
        device.fill(room);
        match write_until_it_fails(&volume) {
            Error::Device(error) => assert_eq!(error.source.kind(), ErrorKind::StorageFull),
            error => panic!("{error:?}"),
        }
        assert_read_only_for_good(&volume, ino);
        drop(volume);
        // With free space again, the synced data can be read.
        device.fill(u64::MAX);
        let volume = open(device, tight());
        assert!(volume.read(ino, 0, 30_000).expect("a read").as_bytes() == SYNCED);
    }
}
