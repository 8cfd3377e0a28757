//! Tests of commits when segments are short or the write buffer is small.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use sfs_device::RamDevice;

use super::Volume;
use crate::fixture::{
    BLOCKS, CALLER, NOW, create, new_placed, new_volume, put, resize, set_size, write,
};
use crate::format::{DataLayout, Head, INLINE_LEN_MAX, ROOT_INO, SegmentState};
use crate::log::HeadPosition;
use crate::request::RenameMode;
use crate::writeback::{CheckpointReason, CommitRequest, Progress, Selection, StepError};
use crate::{Error, Result};

fn commit_once(volume: &Volume, selection: &Selection) -> std::result::Result<Progress, StepError> {
    volume.space.commit_batch(&mut volume.log.lock(), &CommitRequest::of(selection))
}

/// A truncated file is ordered with the next delta, and its blocks are limited like the blocks of other files. Without
/// the limit every plan contained all blocks, even with few Clean segments.
#[test]
fn a_truncated_file_is_committed_in_parts() {
    let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
    let file = create(&volume, "f");
    for block in (0..1280).step_by(16) {
        put(&volume, file, block, 16, 1).expect("there is room");
    }
    volume.sync_all().expect("RAM");
    for block in (0..640).step_by(16) {
        put(&volume, file, block, 16, 2).expect("overwriting is always admitted");
    }
    set_size(&volume, file, 1279 * 4096);
    let largest = commit_once(&volume, &Selection::Largest(10));
    let all = commit_once(&volume, &Selection::All);
    assert!(all.is_ok(), "{all:?}");
    assert!(largest.is_ok(), "{largest:?}, though a commit of everything succeeds: {all:?}");
}

/// Overwrites a full volume through a write buffer of 1220 blocks, beside a file with dirty blocks that is
/// truncated by one block if `truncates`.
fn overwrite_beside(truncates: bool) -> (Result<()>, usize, u64, u64) {
    let device = Arc::new(RamDevice::new(BLOCKS));
    drop(new_volume(device.clone()));
    let options = crate::request::VolumeOptions { write_buffer: 1220 * 4096, ..Default::default() };
    let volume = Volume::open(device, options, NOW).expect("the volume opens");
    let (file, other) = (create(&volume, "f"), create(&volume, "g"));
    let mut count = 0;
    while put(&volume, file, count, 5, 1).is_ok() && put(&volume, other, count, 5, 1).is_ok() {
        count += 5;
        volume.sync_all().expect("the data was admitted");
    }
    for no in 0..1000 {
        put(&volume, [file, other][no as usize % 2], no * 7919 % count, 1, 1).expect("overwriting");
        if no % 20 == 0 {
            volume.sync_all().expect("the data was admitted");
        }
    }
    for block in (0..558).step_by(9) {
        put(&volume, file, block, 9, 2).expect("overwriting is always admitted");
    }
    if truncates {
        set_size(&volume, file, (count - 1) * 4096);
    }
    let before = volume.counters();
    let mut most = 0;
    let mut outcome = Ok(());
    let long = (0..count - 17).step_by(17).map(|block| (block, 17));
    let short = (0..count - 17).filter(|block| block % 17 > 0).map(|block| (block, 1));
    for (block, blocks) in long.chain(short) {
        outcome = put(&volume, other, block, blocks, 3);
        most = most.max(volume.dirty.pool().dirty_bytes() / 4096);
        if outcome.is_err() {
            break;
        }
    }
    let after = volume.counters();
    (outcome, most, after.stalls - before.stalls, after.segments_cleaned - before.segments_cleaned)
}

#[test]
fn overwriting_continues_beside_a_truncated_file() {
    let without = overwrite_beside(false);
    let with = overwrite_beside(true);
    assert!(without.0.is_ok() && with.0.is_ok(), "{without:?}, {with:?}");
    assert!(with.1 < 1220 + 100 && with.3 < 2 * without.3 + 100, "{without:?}, {with:?}");
}

/// The plan of small files shrinks when fewer blocks fit than estimated, so that a commit makes progress.
#[test]
fn small_files_are_committed_in_parts() {
    let mut failed = Vec::new();
    let mut tried = 0;
    for seed in 0..12u64 {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let mut files = Vec::new();
        for no in 0..(400 + 20 * seed) {
            let name = format!("{no:0>width$}", width = 20 + 9 * seed as usize);
            let Ok(made) = volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &CALLER)
            else {
                break;
            };
            if volume.write(made.ino, 0, &[1; INLINE_LEN_MAX], Default::default(), &CALLER).is_err()
            {
                break;
            }
            files.push(made.ino);
        }
        volume.sync_all().expect("the data was admitted");
        let large = create(&volume, "large");
        let mut count = 0;
        while put(&volume, large, count, 8, 1).is_ok() {
            count += 8;
            volume.sync_all().expect("the data was admitted");
        }
        for round in 0..30u64 {
            for _ in 0..20 + 3 * seed {
                let block = (round * 7919 + seed * 31 + count / 3 * 17) % count;
                put(&volume, large, block, 1, round as u8).ok();
            }
            for ino in &files {
                volume
                    .write(*ino, 0, &[round as u8; INLINE_LEN_MAX], Default::default(), &CALLER)
                    .ok();
            }
            let largest = commit_once(&volume, &Selection::Largest(2048));
            tried += 1;
            if matches!(largest, Err(StepError::Shortage(_))) {
                let all = commit_once(&volume, &Selection::All);
                if all.is_ok() {
                    failed.push((seed, round, files.len(), all));
                }
            }
            if round % 3 == 0 {
                volume.sync_all().expect("the data was admitted");
            }
        }
    }
    assert!(failed.is_empty(), "{} of {tried}: {:?}", failed.len(), &failed[..failed.len().min(5)]);
}

/// Data ordered with the next delta is committed whole if it fits, whatever other data is selected.
#[test]
fn ordered_data_is_committed_first() {
    let mut split = Vec::new();
    let mut tried = 0;
    for (large, xattrs) in [600, 800, 900, 1000].into_iter().flat_map(|l| [(l, 0), (l, 5), (l, 10)])
    {
        for ordered in (40..260).step_by(20) {
            // The ordered data alone, and with all other dirty data.
            let mut outcomes = Vec::new();
            for count in [0, 2048] {
                let device = Arc::new(RamDevice::new(BLOCKS));
                let volume = new_volume(device.clone());
                let file = create(&volume, "large");
                for block in (0..large).step_by(10) {
                    put(&volume, file, block, 10, 1).expect("there is room");
                }
                let old = create(&volume, "old");
                put(&volume, old, 0, 1, 1).expect("there is room");
                volume.sync_all().expect("RAM");
                let new = create(&volume, "new");
                put(&volume, new, 0, ordered, 2).expect("there is room");
                volume
                    .rename(ROOT_INO, b"new", ROOT_INO, b"old", RenameMode::Replace, &CALLER)
                    .expect("the file is renamed");
                for block in 0..400 {
                    put(&volume, file, block, 1, 3).expect("overwriting is always admitted");
                }
                for no in 0..xattrs {
                    let name = format!("user.{no}");
                    let mode = crate::request::XattrMode::Any;
                    drop(volume.set_xattr(file, name.as_bytes(), &[9; 65536], mode, &CALLER));
                }
                if !volume.dirty.has_ordered() {
                    break;
                }
                let selection = match count {
                    0 => Selection::Files(Default::default()),
                    _ => Selection::Largest(count),
                };
                let outcome = commit_once(&volume, &selection);
                drop(volume);
                let volume =
                    Volume::open(device, Default::default(), NOW).expect("the volume opens");
                let found = volume.lookup(ROOT_INO, b"old").expect("a name");
                let size = found.inode.size as usize / 4096;
                outcomes.push((size == 1 || size == ordered, size, outcome));
            }
            tried += usize::from(outcomes.len() == 2);
            if let [(true, size, Ok(_)), (false, left, outcome)] = &outcomes[..] {
                let outcome = format!("{outcome:?}");
                split.push(format!(
                    "large {large}, {xattrs} xattrs: {left} of {ordered}, alone {size}, {outcome}"
                ));
            }
        }
    }
    assert!(split.is_empty(), "{} of {tried}: {:#?}", split.len(), &split[..split.len().min(8)]);
}

/// The memory of dirty data is bounded with the smallest write buffer that a mount accepts and the largest writes.
#[test]
fn a_small_write_buffer_is_not_overrun() {
    let device = Arc::new(RamDevice::new(32 + 4000 * 32 + 17));
    let layout = crate::format::Layout::new(32 + 4000 * 32 + 17, 32, 0).expect("the layout fits");
    let superblock = crate::format::Superblock {
        uuid: *b"0123456789abcdef",
        label: crate::format::Label::NONE,
        layout,
        hash_key: [1, 2],
        data_layout: crate::format::DataLayout::Log,
        created: NOW,
        ..crate::format::Superblock::new(layout)
    };
    crate::make(device.clone(), &superblock, &crate::root_directory(0, 0, NOW)).expect("made");
    let options = crate::request::VolumeOptions { write_buffer: 1 << 20, ..Default::default() };
    let volume = Volume::open(device, options, NOW).expect("the volume opens");
    let file = create(&volume, "f");
    let mut most = 0;
    for no in 0..100 {
        put(&volume, file, no * 256, 256, 1).expect("there is room");
        most = most.max(volume.dirty.pool().dirty_bytes());
    }
    assert!(most <= 4 << 20, "{most} bytes held by a buffer of 1 MiB");
}

/// Inline content takes blocks when it outgrows its tree item: on a full volume the space was not checked, and
/// syncs failed from then on.
#[test]
fn small_files_that_grow_on_a_full_volume_are_admitted_or_refused() {
    for data_layout in DataLayout::ALL {
        let (_, volume) = new_placed(data_layout);
        let small: Vec<u64> = (0..900).map(|no| create(&volume, &format!("f{no}"))).collect();
        small.iter().for_each(|ino| write(&volume, *ino, &[1; 100]));
        volume.sync_all().expect("there is room");
        let large = create(&volume, "large");
        let full = (0..BLOCKS).find(|block| {
            let refused = put(&volume, large, *block, 1, 1).is_err();
            volume.sync_all().expect("the data was admitted");
            refused
        });
        assert!(full.is_some(), "{data_layout:?}");
        for (no, ino) in (0u64..).zip(&small) {
            // A file grows by a truncation, or by a write past its first block.
            let grown = match no % 2 {
                0 => resize(&volume, *ino, 5000),
                _ => put(&volume, *ino, 9, 1, 2),
            };
            assert!(grown.is_ok() || matches!(grown, Err(Error::NoSpace)), "{grown:?}");
        }
        let synced = volume.sync_all();
        assert!(synced.is_ok(), "{data_layout:?}: {synced:?}");
        assert_eq!(volume.audit().expect("the audit counts"), [], "{data_layout:?}");
    }
}

/// Space for a block belongs to one file until the block is dirty: two files that grew at the same time were
/// admitted to the same block.
#[test]
fn files_that_grow_at_the_same_time_are_admitted_one_after_the_other() {
    let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
    let small = ["a", "b"].map(|name| create(&volume, name));
    small.iter().for_each(|ino| write(&volume, *ino, &[1; 100]));
    let large = create(&volume, "large");
    volume.sync_all().expect("there is room");
    // Dirty blocks leave space for exactly one more.
    let dirty = (0..BLOCKS).find(|block| {
        put(&volume, large, *block, 1, 1).expect("there is room");
        volume.space.admit_at_once(2).is_none()
    });
    assert!(dirty.is_some() && volume.space.admit_at_once(1).is_some());
    std::thread::scope(|scope| {
        let first = volume.admit_size(small[0], 5000).expect("there is room");
        let (say, said) = channel();
        let (volume, small) = (&volume, &small);
        let second = scope.spawn(move || {
            let admitted = volume.admit_size(small[1], 5000);
            let _ = say.send(());
            admitted.map(drop)
        });
        // The second file waits for the first to grow, or it has been admitted to the same space.
        let is_early = said.recv_timeout(Duration::from_millis(200)).is_ok();
        let file = volume.inodes.get(small[0]);
        let io = file.io_write();
        volume.set_size(&file, 5000).expect("the size was admitted");
        drop((io, first));
        let second = second.join().expect("no panic");
        assert!(!is_early, "the second file was admitted before the first had grown: {second:?}");
        assert!(matches!(second, Err(Error::NoSpace)), "{second:?}");
    });
}

/// Regression: a checkpoint for which too few segments were Clean sealed the open segments of unused groups all the same.
/// Their room was lost when it was needed most.
#[test]
fn a_checkpoint_without_room_leaves_the_heads_of_unused_groups_open() {
    let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
    create(&volume, "f");
    let mut log = volume.log.lock();
    let segment_blocks = volume.superblock.layout().segment_blocks;
    let unused = Head(3);
    let (open, taken) = {
        let usage = &mut volume.metadata.write().usage;
        let open = usage.open(unused, 1).expect("a Clean segment");
        let taken: Vec<u32> = std::iter::from_fn(|| usage.open(Head::METADATA, 1)).collect();
        (open, taken)
    };
    log.heads.set(unused, HeadPosition { segment: open, next_block: 0 });
    let full = *taken.first().expect("more Clean segments");
    log.heads.set(Head::METADATA, HeadPosition { segment: full, next_block: segment_blocks });
    let refused = volume.space.checkpoint(&mut log, CheckpointReason::Interval);
    assert!(matches!(refused, Err(StepError::Shortage(_))));
    assert_eq!(log.heads.get(unused).map(|at| at.segment), Some(open));
    assert_eq!(volume.metadata.read().usage.entry(open).state, SegmentState::Open);
}
