//! Small and full volumes, and small caches.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_core::request::{AttributeChanges, VolumeOptions, Work, WriteMode};
use sfs_device::RamDevice;

use crate::fixture::{NOW, Random, caller, create, fill, format, open, ram, read, set_size, write};

/// All data of a full volume is overwritten in memory before a sync: one batch cannot hold it.
#[test]
fn overwriting_all_of_a_full_tiny_volume_can_be_synced() {
    for segments in [32, 40, 64] {
        let device = ram(segments);
        let volume = open(&device);
        let file = create(&volume, "f");
        let count = fill(&volume, file, 1, 20);
        volume.sync_all().unwrap();
        for round in 2..6u8 {
            for block in 0..count {
                write(&volume, file, block, &[round; 4096]).unwrap();
            }
            volume.sync_all().unwrap_or_else(|e| panic!("{segments} segments, {round}: {e}"));
        }
        volume.close().unwrap();
        drop(volume);
        let volume = open(&device);
        assert_eq!(read(&volume, file, (count - 1) * 4096, 4096), [5; 4096]);
    }
}

/// The space for a delta is estimated, and a batch must hold the whole delta.
#[test]
fn many_small_changes_on_a_tiny_volume_can_be_synced() {
    for segments in [32, 40, 100] {
        let device = ram(segments);
        let volume = open(&device);
        let mut made = 0;
        while made < 3000 {
            let name = format!("file{made}");
            match volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller()) {
                Ok(_) => made += 1,
                Err(_) => break,
            }
        }
        volume.sync_all().unwrap_or_else(|e| panic!("{segments} segments, {made} files: {e}"));
        drop(volume);
        let volume = open(&device);
        for i in 0..made {
            volume.lookup(ROOT_INO, format!("file{i}").as_bytes()).expect("the file exists");
            volume
                .unlink(ROOT_INO, format!("file{i}").as_bytes(), &caller())
                .expect("the name is removed");
        }
        volume.close().unwrap();
    }
}

/// One sync makes more nodes dirty than the free segments can hold. Or writers clean ahead of it, and leave fewer segments than the sync
/// needs to clean: before cleaning that can wait left the reserve, the syncs after the second seed were refused whenever writers began to clean,
/// and those after the first with writers that began later.
#[test]
fn a_commit_leaves_space_for_the_checkpoint_of_its_changes() {
    for seed in [1, 2] {
        changes_of_a_full_volume_can_be_synced(VolumeOptions::default(), seed);
    }
}

/// Eight open segments had most of the space that was left, and a commit used one of them only.
#[test]
fn a_commit_uses_the_space_in_all_open_segments() {
    let options = VolumeOptions {
        grouping: "sfs-fast12".into(),
        groups: Some(8),
        ..VolumeOptions::default()
    };
    changes_of_a_full_volume_can_be_synced(options, 1);
}

fn changes_of_a_full_volume_can_be_synced(options: VolumeOptions, seed: u64) {
    let device = ram(2000);
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    let file = create(&volume, "f");
    let mut count = 0;
    while write(&volume, file, count, &[1; 16 * 4096]).is_ok() {
        count += 16;
        if count % 1600 == 0 {
            volume.sync_all().unwrap();
            while volume.work(NOW).unwrap() == Work::More {}
        }
    }
    volume.sync_all().unwrap();
    let mut random = Random(seed);
    for round in 0..60 {
        for _ in 0..200 + random.below(2500) {
            let block = random.below(count);
            write(&volume, file, block, &[round; 4096]).unwrap();
        }
        volume.sync_all().unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
        Volume::open(Arc::new(device.snapshot()), VolumeOptions::default(), NOW)
            .unwrap_or_else(|e| panic!("seed {seed}, round {round} does not mount: {e}"));
    }
    volume.close().unwrap();
}

/// An operation needs more nodes than the cache can hold beside the dirty ones.
#[test]
fn operations_complete_when_dirty_nodes_fill_the_cache() {
    let device = Arc::new(RamDevice::new(64 << 8));
    format(&device, 256);
    let volume = open(&device);
    for i in 0..12_000 {
        create(&volume, &format!("file{i}"));
    }
    volume.close().unwrap();
    drop(volume);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
        let volume = Volume::open(device, options, NOW).unwrap();
        for i in 0..12_000 {
            let entry = volume.lookup(ROOT_INO, format!("file{i}").as_bytes()).unwrap();
            let changes = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
            volume.set_attributes(entry.ino, &changes, &caller()).unwrap();
            volume.write(entry.ino, 0, &[1; 10], WriteMode::default(), &caller()).unwrap();
        }
        volume.sync_all().unwrap();
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the thread ends in time");
}

/// After every operation on a nearly full volume, accepted changes can be synced, the volume mounts after a crash, and
/// files can be deleted.
#[test]
fn a_full_tiny_volume_never_gets_stuck() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let device = ram(32 + random.below(40));
        let mut volume = open(&device);
        let mut files: Vec<(String, u64)> = Vec::new();
        for step in 0..1500 {
            let at_step = format!("seed {seed}, step {step}");
            let pick = random.below(files.len().max(1) as u64) as usize;
            match random.below(100) {
                0..20 => {
                    let name = format!("f{step}");
                    let mode = 0o100_644;
                    if let Ok(e) = volume.make_node(ROOT_INO, name.as_bytes(), mode, 0, &caller()) {
                        files.push((name, e.ino));
                    }
                }
                20..70 if !files.is_empty() => {
                    let bytes = vec![step as u8; 1 + random.below(40_000) as usize];
                    let at = random.below(400_000);
                    let mode = WriteMode::default();
                    drop(volume.write(files[pick].1, at, &bytes, mode, &caller()));
                }
                70..75 if !files.is_empty() => {
                    let size = random.below(500_000);
                    set_size(&volume, files[pick].1, size).expect(&at_step);
                }
                75..80 if !files.is_empty() => {
                    let (name, ino) = files.swap_remove(pick);
                    volume.unlink(ROOT_INO, name.as_bytes(), &caller()).expect(&at_step);
                    volume.forget(ino, 1);
                }
                80..90 => volume.sync_all().expect(&at_step),
                90..95 if !files.is_empty() => {
                    volume.sync_file(files[pick].1).expect(&at_step);
                }
                95..98 => while volume.work(NOW).expect(&at_step) == Work::More {},
                98 => {
                    volume.sync_all().expect(&at_step);
                    drop(volume);
                    volume = Volume::open(device.clone(), VolumeOptions::default(), NOW)
                        .expect(&at_step);
                    for (name, ino) in &files {
                        let entry = volume.lookup(ROOT_INO, name.as_bytes()).expect(&at_step);
                        assert_eq!(entry.ino, *ino);
                        volume.read(*ino, 0, 1 << 20).expect(&at_step);
                    }
                }
                _ => {
                    Volume::open(Arc::new(device.snapshot()), VolumeOptions::default(), NOW)
                        .expect(&at_step);
                }
            }
        }
        volume.close().expect("the volume closes");
    }
}
