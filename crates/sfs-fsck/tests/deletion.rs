//! Deletion of a file with more extended attributes than one step deletes: no errors between the steps.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, Work, XattrMode};
use sfs_device::RamDevice;

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };

fn volume(device: &Arc<RamDevice>) -> Volume {
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(8192, 128, 0).expect("a layout"),
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: NOW,
        ..Superblock::new(Layout::new(8192, 128, 0).expect("a layout"))
    };
    let root = sfs_core::root_directory(0, 0, NOW);
    sfs_core::make(device.clone(), &superblock, &root).expect("a volume is made");
    Volume::open(device.clone(), Default::default(), NOW).expect("a mount")
}

fn expect_clean(device: &RamDevice, step: usize) {
    let mut never_cancel = |_| ControlFlow::Continue(());
    let options = sfs_fsck::CheckOptions { data: true };
    let report = sfs_fsck::check(device, &options, &mut never_cancel).expect("there is a volume");
    assert_eq!(report.errors(), 0, "after step {step}: {:?}", report.findings.kept());
}

#[test]
fn a_file_with_many_attributes_is_deleted_in_steps() {
    let device = Arc::new(RamDevice::new(8192));
    let volume = volume(&device);
    let file = volume.make_node(ROOT_INO, b"f", 0o100_644, 0, &CALLER).expect("a file").ino;
    for n in 0..60 {
        let name = format!("user.{n}");
        let value = [n; 60_000];
        volume.set_xattr(file, name.as_bytes(), &value, XattrMode::Any, &CALLER).expect("set");
    }
    volume.forget(file, 1);
    volume.unlink(ROOT_INO, b"f", &CALLER).expect("an item");
    let mut steps = 1;
    loop {
        volume.sync_all().expect("a sync");
        expect_clean(&device.snapshot(), steps);
        match volume.work(NOW).expect("a step") {
            Work::More => steps += 1,
            Work::Idle(_) => break,
        }
    }
    assert!((4..8).contains(&steps), "3540 items in {steps} steps of 1024");
    volume.attributes(file).expect_err("the file is deleted");
    expect_clean(&device.snapshot(), steps);
}
