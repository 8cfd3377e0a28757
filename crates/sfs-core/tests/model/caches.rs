//! Caches that are smaller than the nodes that one operation needs.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_core::request::{Caller, VolumeOptions, WriteMode, XattrMode};
use sfs_device::RamDevice;

use crate::fixture::{FILE, caller, open, ram, tight};
use crate::watchdog::within;

const FILES: u32 = 1500;

/// Returns the options of [`tight`] with a write buffer so large that only a sync writes it back.
fn with_large_buffer() -> VolumeOptions {
    VolumeOptions { write_buffer: 64 << 20, ..tight() }
}

/// Creates [`FILES`] files, each with a leaf of the tree for itself.
fn make_files(volume: &Volume, caller: &Caller) -> Vec<u64> {
    let mut files = Vec::new();
    for no in 0..FILES {
        let name = format!("file-{no}");
        let file = volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, caller).expect("a file");
        volume.set_xattr(file.ino, b"user.a", &[1; 3000], XattrMode::Any, caller).expect("a value");
        volume.forget(file.ino, 1);
        files.push(file.ino);
    }
    files
}

/// A commit that changes more leaves than the cache holds loads all of them.
#[test]
fn a_commit_may_need_more_nodes_than_the_cache_holds() {
    within(60, || {
        let device: Arc<RamDevice> = Arc::new(ram(64 << 20, 256));
        let volume = open(device.clone(), with_large_buffer());
        let files = make_files(&volume, &caller());
        volume.close().expect("the volume closes");
        let volume = open(device, with_large_buffer());
        for ino in &files {
            volume.write(*ino, 0, &[7; 5000], WriteMode::default(), &caller()).expect("a write");
        }
        volume.sync_all().expect("a sync");
        for ino in &files {
            assert_eq!(
                volume.read(*ino, 0, 9000).expect("the read succeeds").as_bytes(),
                [7; 5000]
            );
        }
    });
}

/// Dirty nodes cannot be evicted. Other nodes can still be loaded when the dirty ones exceed the cache.
#[test]
fn operations_go_on_with_more_dirty_nodes_than_the_cache_holds() {
    within(60, || {
        let device: Arc<RamDevice> = Arc::new(ram(64 << 20, 256));
        let volume = open(device.clone(), with_large_buffer());
        let files = make_files(&volume, &caller());
        volume.close().expect("the volume closes");
        let volume = open(device, with_large_buffer());
        for ino in &files {
            volume
                .set_xattr(*ino, b"user.b", &[2; 1000], XattrMode::Create, &caller())
                .expect("a value");
        }
        for ino in &files {
            assert_eq!(volume.xattr(*ino, b"user.a").expect("a value"), [1; 3000]);
        }
        volume.sync_all().expect("a sync");
    });
}
