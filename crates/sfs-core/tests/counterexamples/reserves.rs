//! Reserves of Clean segments: a commit leaves room for the checkpoint of its changes, and removing files always helps.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_core::request::{Work, WriteMode, XattrMode};
use sfs_device::{Device, RamDevice};
use sfs_testkit::number_from_env;

use crate::fixture::{NOW, Random, caller, create, format, open, ram, read, write};

/// Length of an attribute that leaves no room in the leaf of its file.
const ATTRIBUTE_LEN: usize = 3700;

/// Length of content that is stored in the tree.
const CONTENT_LEN: usize = 1024;

/// Regression: content in the tree divided the leaf of each file, and the batch left less than the checkpoint of all these leaves
/// took. The sync succeeded, nothing could be written any more, and removing files did not help.
#[test]
fn small_files_that_divide_their_leaves_can_be_synced() {
    for (segment_blocks, segments, files, clean) in
        [(32, 110, 700, 46), (32, 160, 1000, 59), (32, 240, 1400, 100), (64, 160, 2000, 60)]
    {
        let case = format!("{segments} segments of {segment_blocks} blocks, {files} files");
        let device = Arc::new(RamDevice::new((segments + 1) * segment_blocks + 17));
        format(&device, segment_blocks);
        let volume = open(&device);
        let files: Vec<u64> = (0..files).map(|at| with_attribute(&volume, at)).collect();
        fill_up_to(&volume, clean);
        for file in &files {
            write(&volume, *file, 0, &[9; CONTENT_LEN]).unwrap_or_else(|e| panic!("{case}: {e}"));
        }
        volume.sync_all().unwrap_or_else(|e| panic!("{case}: sync: {e}"));
        volume.checkpoint().unwrap_or_else(|e| panic!("{case}: checkpoint: {e}"));
        volume.unlink(ROOT_INO, b"filler", &caller()).expect("it is there");
        volume.close().unwrap_or_else(|e| panic!("{case}: close: {e}"));
        drop(volume);
        let volume = open(&device);
        for file in &files {
            assert_eq!(read(&volume, *file, 0, 2 * CONTENT_LEN), [9; CONTENT_LEN], "{case}");
        }
        write(&volume, create(&volume, "new"), 0, &[1; 4096]).expect("there is room");
        volume.sync_all().expect("there is room");
    }
}

/// Makes a file whose attribute fills a leaf.
fn with_attribute(volume: &Volume, at: u64) -> u64 {
    let ino = create(volume, &format!("file{at}"));
    let value = [7; ATTRIBUTE_LEN];
    volume.set_xattr(ino, b"user.x", &value, XattrMode::Any, &caller()).expect("there is room");
    if at % 64 == 63 {
        volume.sync_all().expect("there is room");
        while volume.work(NOW).expect("RAM does not fail") == Work::More {}
    }
    ino
}

/// Writes a file until at most `clean` segments are Clean.
fn fill_up_to(volume: &Volume, clean: u32) {
    volume.sync_all().expect("there is room");
    volume.checkpoint().expect("there is room");
    let filler = create(volume, "filler");
    for at in 0.. {
        if volume.status().segments.clean <= clean {
            break;
        }
        write(volume, filler, 20 * at, &[1; 20 * 4096]).expect("there is room");
        volume.sync_all().expect("there is room");
        if at % 10 == 9 {
            volume.checkpoint().expect("there is room");
        }
    }
    volume.checkpoint().expect("there is room");
}

/// Regressions: a shrink that was refused waited for itself, and one that succeeded left fewer Clean segments than cleaning needs,
/// so that nothing could be written any more.
#[test]
fn a_shrunk_volume_can_be_written() {
    let first = number_from_env("SFS_SEED", 280);
    for seed in first..first + number_from_env("SFS_SEEDS", 10) {
        let run = AssertUnwindSafe(|| shrink_and_write(seed));
        if let Err(failure) = catch_unwind(run) {
            eprintln!(
                "replay: SFS_SEED={seed} SFS_SEEDS=1 cargo test --workspace --test counterexamples -- a_shrunk_volume"
            );
            resume_unwind(failure);
        }
    }
}

/// Changes files, and the size of the volume.
fn shrink_and_write(seed: u64) {
    let mut random = Random(seed * 7919 + 3);
    let device = ram(64 + random.below(60));
    let volume = open(&device);
    let mut files: Vec<(String, u64)> = Vec::new();
    for step in 0..400 {
        let at = random.below(files.len().max(1) as u64) as usize;
        match random.below(100) {
            0..15 => {
                let name = format!("f{step}");
                let made = volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller());
                files.extend(made.map(|made| (name, made.ino)));
            }
            15..60 if !files.is_empty() => {
                let (offset, len) = (random.below(300_000), 1 + random.below(60_000));
                let bytes = vec![step as u8; len as usize];
                // The volume may be full.
                let _ = volume.write(files[at].1, offset, &bytes, WriteMode::default(), &caller());
            }
            60..70 if files.len() > 4 => {
                let (name, ino) = files.swap_remove(at);
                volume.unlink(ROOT_INO, name.as_bytes(), &caller()).expect("it is there");
                volume.forget(ino, 1);
                while volume.work(NOW).expect("RAM does not fail") == Work::More {}
            }
            70..85 => volume.sync_all().expect("what was accepted has room"),
            85..90 => drop(volume.checkpoint().expect("what was accepted has room")),
            90..94 if step > 60 => {
                let (least, most) = (volume.least_block_count(), device.geometry().block_count);
                let size = least + random.below((most - least).max(1));
                // It may be too small.
                let _ = volume.shrink_volume(size, step);
                if random.below(2) == 0 {
                    volume.grow_volume(None, step + 1000).expect("there is room");
                }
            }
            _ => {}
        }
    }
}
