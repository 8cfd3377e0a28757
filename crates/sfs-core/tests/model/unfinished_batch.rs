//! Roll-forward past the remains of an unfinished batch.

use std::sync::Arc;

use sfs_core::format::ROOT_INO;
use sfs_core::request::{WriteMode, XattrMode};
use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

use crate::fixture::{FILE, SEGMENT_BLOCKS, caller, open, ram, tight};

/// The first chunk of a batch reached the device, the last one did not. After the mount a chunk with the same sequence
/// number may go to another head, and the next roll-forward must not mistake the old chunk for it.
#[test]
fn an_unfinished_batch_does_not_hide_later_syncs() {
    let base: Arc<RamDevice> = Arc::new(ram(16 << 20, SEGMENT_BLOCKS));
    let volume = open(base.clone(), tight());
    let ino = volume.make_node(ROOT_INO, b"f", FILE, 0, &caller()).expect("a file").ino;
    volume.write(ino, 0, &[1; 8192], WriteMode::default(), &caller()).expect("a write");
    volume.close().expect("the volume closes");
    drop(volume);

    let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
    let volume = open(device.clone(), tight());
    for name in [&b"user.a"[..], b"user.b", b"user.c"] {
        volume.set_xattr(ino, name, &[9; 60_000], XattrMode::Any, &caller()).expect("a value");
    }
    volume.sync_all().expect("a sync");
    let events = device.events();
    let writes = events.iter().filter(|event| matches!(event, Event::Write { .. })).count();
    assert!(writes >= 2, "the delta takes more than one chunk");
    drop(volume);

    let crashed = Arc::new(image_after(&base, &events[..1]));
    let volume = open(crashed.clone(), tight());
    volume.write(ino, 0, &[2; 8192], WriteMode::default(), &caller()).expect("a write");
    volume.sync_file(ino).expect("a sync");
    drop(volume);

    let volume = open(crashed, tight());
    assert_eq!(volume.read(ino, 0, 8192).expect("the read succeeds").as_bytes(), [2; 8192]);
}
