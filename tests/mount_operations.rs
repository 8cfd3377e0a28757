//! Filesystem operations through the kernel. Their results are the same after an unmount, a check
//! and another mount.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

#[path = "mount_operations/content.rs"]
mod content;
#[path = "mount_operations/names.rs"]
mod names;
#[path = "mount_operations/overlay.rs"]
mod overlay;
#[path = "mount_operations/snapshot.rs"]
mod snapshot;
#[path = "mount_operations/space.rs"]
mod space;
#[path = "mount_operations/times.rs"]
mod times;
#[path = "mount_operations/transport.rs"]
mod transport;

use std::io;
use std::path::Path;

use harness::{CACHES, TestVolume, can_mount};
use sfs_core::format::DataLayout;
use snapshot::snapshot;

const SIZE: &str = "256M";

/// Runs `scenario` in the root of a new volume, with and without write-back by the kernel's cache.
/// All files must be the same on the next mount, and the check must find nothing.
fn on_volumes(scenario: fn(&Path)) {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        println!("-o {options}");
        run(&TestVolume::new(SIZE), options, scenario);
    }
}

fn run(volume: &TestVolume, options: &str, scenario: fn(&Path)) {
    let mount = volume.mount(options);
    scenario(&mount.dir);
    let before = snapshot(&mount.dir);
    mount.unmount();
    assert!(volume.check().unmounted, "the last checkpoint is missing");
    let mount = volume.mount("ro");
    let after = snapshot(&mount.dir);
    mount.unmount();
    for (path, was) in &before {
        assert_eq!(after.get(path), Some(was), "{} has changed, {options}", path.display());
    }
    assert_eq!(before.len(), after.len(), "names have appeared, {options}");
}

/// Asserts that `outcome` is the error `code`.
#[track_caller]
fn expect_errno<T: std::fmt::Debug>(outcome: Result<T, impl Into<io::Error>>, code: i32) {
    let error: io::Error = outcome.expect_err("the operation fails").into();
    assert_eq!(error.raw_os_error(), Some(code), "{error}");
}

/// The data layout does not change the result of any operation.
#[test]
fn mounted_volumes_behave_alike_in_every_data_layout() {
    if !can_mount() {
        return;
    }
    std::thread::scope(|scope| {
        for data_layout in &DataLayout::ALL[1..] {
            scope.spawn(|| {
                for scenario in [content::EVERYTHING, names::EVERYTHING].into_iter().flatten() {
                    let volume = TestVolume::placed(SIZE, data_layout.name());
                    run(&volume, "writeback", *scenario);
                }
            });
        }
    });
}

#[test]
fn mounted_block_devices_behave_like_images() {
    if !can_mount() {
        return;
    }
    for scenario in
        [content::EVERYTHING, names::EVERYTHING, times::EVERYTHING].into_iter().flatten()
    {
        let Some(volume) = TestVolume::on_loop(SIZE) else { return };
        run(&volume, "writeback", *scenario);
    }
}
