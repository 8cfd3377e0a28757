//! Overwriting of volumes that are full or nearly full.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::policy::GROUPING_POLICIES;
use sfs_core::request::{VolumeOptions, Work};
use sfs_device::{FaultyDevice, RamDevice};

use crate::fixture::{NOW, Random, blocks_for, caller, create, fill, format, ram, write};

/// Returns random options of policy, cleaning and buffer.
fn any_options(random: &mut Random) -> VolumeOptions {
    VolumeOptions {
        grouping: GROUPING_POLICIES[random.below(GROUPING_POLICIES.len() as u64) as usize].into(),
        yield_cleaning: random.below(2) == 0,
        write_buffer: (1 << 20) << random.below(7),
        ..VolumeOptions::default()
    }
}

/// Accepted writes can be synced for every size and policy, with cleaning in the background or not.
/// Background cleaning may have planned its moves when much space was free; a commit takes that
/// space before the moves are written.
#[test]
fn overwritten_blocks_can_be_synced_whatever_the_policy() {
    // Seed 26 got `NoSpace` after cleaning had gained nothing twice.
    for seed in (0..24).chain([26]) {
        let mut random = Random(seed * 7919 + 1);
        let sizes = [32 + random.below(40), 60 + random.below(300), 300 + random.below(900)];
        let segments = sizes[random.below(3) as usize];
        let options = any_options(&mut random);
        let at = format!("seed {seed}, {segments} segments, {}", options.grouping);
        let device = ram(segments);
        let volume = Volume::open(device, options, NOW).unwrap();
        let file = create(&volume, "f");
        let mut count = 0;
        let most = segments * 30 * (60 + random.below(60)) / 100;
        while count < most && write(&volume, file, count, &[1; 16 * 4096]).is_ok() {
            count += 16;
            if count % 1600 == 0 {
                volume.sync_all().unwrap();
            }
        }
        volume.sync_all().unwrap();
        let steps = [0, 60, 60][random.below(3) as usize];
        for round in 0..150 {
            for _ in 0..random.below(steps + 1) {
                if volume.work(NOW).unwrap() != Work::More {
                    break;
                }
            }
            let shift = random.below(12);
            for _ in 0..1 + random.below(1 << shift) {
                write(&volume, file, random.below(count), &[round as u8; 4096])
                    .unwrap_or_else(|e| panic!("{at}: write in round {round}: {e}"));
            }
            volume.sync_all().unwrap_or_else(|e| panic!("{at}: sync in round {round}: {e}"));
        }
        volume.close().unwrap_or_else(|e| panic!("{at}: close: {e}"));
    }
}

/// Small files with long names make many nodes dirty at once, and cleaning makes more nodes dirty.
/// The space that cleaning gained was reserved for the checkpoint that it needed, and the sync
/// failed after that checkpoint although space was free.
#[test]
fn admitted_writes_can_be_synced() {
    for seed in 120..150 {
        let mut random = Random(seed);
        let segments = 100 + random.below(100);
        let volume = Volume::open(ram(segments), any_options(&mut random), NOW).unwrap();
        let large = create(&volume, "large");
        let (mut small, mut blocks) = (Vec::new(), 0);
        for step in 0..300 {
            let at = format!("seed {seed}, {segments} segments, step {step}");
            let space = volume.space();
            let has_room = space.free_blocks * 100 > space.total_blocks * 8;
            match random.below(12) {
                0..=1 if has_room => {
                    for _ in 0..1 + random.below(60) {
                        let name = format!("{:0200}", small.len());
                        let made =
                            volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller());
                        small.extend(made.map(|entry| entry.ino));
                    }
                }
                0..=4 if !small.is_empty() => {
                    for _ in 0..1 + random.below(200) {
                        let file = small[random.below(small.len() as u64) as usize];
                        drop(write(&volume, file, 0, &[step as u8; 900]));
                    }
                }
                10 => while matches!(volume.work(NOW), Ok(Work::More)) {},
                _ => {
                    let most = [300, 40, 40, 40][random.below(4) as usize];
                    let grows = has_room && random.below(2) == 0;
                    for _ in 0..1 + random.below(most) {
                        let block = if grows { blocks } else { random.below(blocks + 1) };
                        if write(&volume, large, block, &[step as u8; 4096]).is_ok() {
                            blocks = blocks.max(block + 1);
                        }
                    }
                }
            }
            if random.below(3) == 0 {
                volume
                    .sync_all()
                    .unwrap_or_else(|e| panic!("{at}: sync: {e}: {:?}", volume.space()));
            }
        }
    }
}

/// The device fails while the write makes space in the write buffer. Such a write was refused although its data was in
/// the buffer already.
#[test]
fn a_refused_write_does_not_change_the_file() {
    for nth in 1..6 {
        let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(64))));
        format(&device, 32);
        let options = VolumeOptions { write_buffer: 1 << 20, ..VolumeOptions::default() };
        let volume = Volume::open(device.clone(), options, NOW).expect("the volume opens");
        let file = create(&volume, "f");
        volume.sync_all().expect("there is space");
        device.fail_nth(sfs_device::Operation::Write, nth);
        let mut refused = None;
        for block in 0..600 {
            let written = write(&volume, file, block, &[7; 4096]);
            let size = volume.attributes(file).expect("the file exists").size;
            let is_kept = size > block * 4096;
            assert_eq!(written.is_ok(), is_kept, "block {block}, write {nth}: {written:?}");
            if written.is_err() {
                refused = Some(block);
                break;
            }
        }
        assert!(refused.is_some(), "write {nth} did not fail");
        volume.sync_all().expect_err("dirty data cannot become durable");
    }
}

/// A full volume can be overwritten under every policy, and an idle one does not wear out the device.
#[test]
fn an_idle_full_volume_stops_cleaning_under_every_policy() {
    for grouping in GROUPING_POLICIES {
        for segments in [100, 300] {
            let at = format!("{grouping}, {segments} segments");
            let options =
                VolumeOptions { grouping: grouping.to_string(), ..VolumeOptions::default() };
            let volume = Volume::open(ram(segments), options, NOW).unwrap();
            let file = create(&volume, "f");
            let count = fill(&volume, file, 16, 16);
            let mut random = Random(segments);
            for round in 0..count {
                write(&volume, file, random.below(count), &[2; 4096]).unwrap();
                if round % 50 == 0 {
                    volume.sync_all().unwrap_or_else(|e| panic!("{at}: sync {round}: {e}"));
                }
            }
            let later = |secs: i64| Timestamp { secs: NOW.secs + 60 + secs, nanos: 0 };
            for secs in 0..60 {
                let mut steps = 0;
                while volume.work(later(secs)).unwrap() == Work::More {
                    steps += 1;
                    assert!(steps < 100_000, "{at}: background work does not end");
                }
            }
            let before = volume.counters().device_bytes_written;
            for secs in 60..600 {
                while volume.work(later(secs)).unwrap() == Work::More {}
            }
            let written = (volume.counters().device_bytes_written - before) / 4096;
            assert!(written < 500, "{at}: {written} blocks were written by an idle volume");
        }
    }
}

/// The last block of a file and the blocks appended to it belong to different groups.
#[test]
fn appending_keeps_the_write_buffer_within_its_budget() {
    for grouping in ["dac", "sfs", "sfs-fast12", "sepbit"] {
        let options = VolumeOptions {
            grouping: grouping.into(),
            write_buffer: 4 << 20,
            ..VolumeOptions::default()
        };
        let volume = Volume::open(ram(4000), options, NOW).unwrap();
        let file = create(&volume, "f");
        write(&volume, file, 0, &[1; 5 * 4096 + 100]).unwrap();
        volume.sync_all().unwrap();
        let mut at = 5 * 4096 + 100;
        for _ in 0..4000 {
            volume.write(file, at, &[2; 4096], Default::default(), &caller()).unwrap();
            at += 4096;
        }
        let waiting = 4000 - volume.counters().data_bytes / 4096;
        assert!(waiting < 2048, "{grouping}: {waiting} blocks wait in a buffer of 1024");
    }
}

/// Read errors exclude segments from cleaning. A segment that has since been emptied and written again can be cleaned
/// like any other.
#[test]
fn a_freed_segment_is_no_longer_excluded_from_cleaning() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(100))));
    format(&device, 32);
    let options = VolumeOptions {
        grouping: "none".into(),
        yield_cleaning: false,
        ..VolumeOptions::default()
    };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    let file = create(&volume, "f");
    let fill = |file: u64| fill(&volume, file, 4, 4);
    let count = fill(file);
    let mut random = Random(3);
    // Reads of most segments return wrong bytes for a while.
    device.corrupt_reads(32..32 + 80 * 32);
    for round in 0..3000 {
        if write(&volume, file, random.below(count), &[2; 4096]).is_err()
            || round % 10 == 0 && volume.sync_all().is_err()
        {
            break;
        }
        drop(volume.work(NOW));
    }
    device.heal();
    volume.unlink(ROOT_INO, b"f", &caller()).unwrap();
    volume.forget(file, 1);
    volume.sync_all().unwrap();
    while volume.work(NOW).unwrap() == Work::More {}

    let file = create(&volume, "g");
    let count = fill(file);
    for round in 0..6000 {
        write(&volume, file, random.below(count), &[3; 4096])
            .unwrap_or_else(|e| panic!("write {round}: {e}"));
        if round % 10 == 0 {
            volume.sync_all().unwrap_or_else(|e| panic!("sync {round}: {e}"));
        }
    }
}
