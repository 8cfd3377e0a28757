//! Crashes: the states that a mount accepts, and the data that it must find.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{Layout, ROOT_INO, Timestamp};
use sfs_core::request::{RenameMode, VolumeOptions, Work};
use sfs_device::{Block, Device, Event, Keep, RamDevice, RecordingDevice, Stream, image_after};

use crate::fixture::{
    NOW, Random, blocks_for, caller, create, format, open, ram, read, set_size, write,
};

/// A name that got another file's content by exchange has that content after a crash, too.
#[test]
fn an_exchange_by_rename_makes_the_data_durable_with_the_names() {
    let device = ram(64);
    let volume = open(&device);
    let old = create(&volume, "a");
    write(&volume, old, 0, &[1; 40_960]).unwrap();
    volume.sync_all().unwrap();
    let new = create(&volume, "b");
    write(&volume, new, 0, &[2; 40_960]).unwrap();
    let other = create(&volume, "c");
    volume.rename(ROOT_INO, b"b", ROOT_INO, b"a", RenameMode::Exchange, &caller()).unwrap();
    volume.sync_file(other).unwrap();
    drop(volume);
    let volume = open(&device);
    let entry = volume.lookup(ROOT_INO, b"a").unwrap();
    assert_eq!(read(&volume, entry.ino, 0, 1 << 20), [2; 40_960]);
}

/// A file is truncated to nothing, loses its last reference, and is written again. A crash after
/// the next sync of another file left the file empty.
#[test]
fn new_data_of_a_truncated_and_forgotten_file_goes_with_the_next_delta() {
    let device = ram(64);
    let volume = open(&device);
    let file = create(&volume, "f");
    let other = create(&volume, "other");
    write(&volume, file, 0, &[1; 40_960]).unwrap();
    volume.sync_all().unwrap();
    // This round only drops the state of unreferenced files.
    volume.work(NOW).unwrap();
    set_size(&volume, file, 0).unwrap();
    volume.forget(file, 1);
    volume.work(NOW).unwrap();
    assert_eq!(volume.lookup(ROOT_INO, b"f").unwrap().ino, file);
    write(&volume, file, 0, &[2; 40_960]).unwrap();
    volume.forget(file, 1);
    volume.sync_file(other).unwrap();
    drop(volume);
    let found = read(&open(&device), file, 0, 1 << 20);
    assert!(found == [2; 40_960], "{} bytes are left", found.len());
}

/// Returns the device after a crash within the first `end` of `events`: with all requests before the last flush, and
/// a random part of the rest, some of them torn.
fn crash(base: &RamDevice, events: &[Event], end: usize, random: &mut Random) -> RamDevice {
    let events = &events[..end];
    let flushed = events.iter().rposition(|e| matches!(e, Event::Flush)).unwrap_or(0);
    let image = image_after(base, &events[..flushed]);
    for event in &events[flushed..] {
        match random.below(3) {
            0 => {}
            1 => event.apply(&image),
            _ => event.apply_torn(&image, |_| random.below(8) > 0),
        }
    }
    image
}

/// The second crash comes during recovery or soon after. Data synced before the first crash is there, and all data can
/// be read.
#[test]
fn synced_data_survives_two_crashes_in_a_row() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let base = RamDevice::new(blocks_for(32 + random.below(20)));
        let mut image = Arc::new(RecordingDevice::new(base, Keep::Contents));
        format(&image, 32);
        let mut synced: Vec<u8> = Vec::new();
        let mut syncs: Vec<(usize, Vec<u8>)> = Vec::new();
        for mount in 0..4 {
            let base = image.inner().snapshot();
            image.take_events();
            let at_mount = format!("seed {seed}, mount {mount}");
            let volume =
                Volume::open(image.clone(), VolumeOptions::default(), NOW).expect(&at_mount);
            let mut content = synced.clone();
            let mut file = None;
            for step in 0..1 + random.below(40) {
                let name = format!("{mount}-{step}");
                if random.below(3) == 0 {
                    drop(volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller()));
                }
                let ino = *file.get_or_insert_with(|| match volume.lookup(ROOT_INO, b"f") {
                    Ok(entry) => entry.ino,
                    Err(_) => create(&volume, "f"),
                });
                // Blocks only become newer: a mark is the step in which its block was written.
                let mark = (mount * 50 + step + 1) as u8;
                for _ in 0..random.below(20) {
                    let block = random.below(150) as usize;
                    if write(&volume, ino, block as u64, &[mark; 4096]).is_ok() {
                        content.resize(content.len().max(block + 1), 0);
                        content[block] = mark;
                    }
                }
                match random.below(6) {
                    0 => {
                        volume.sync_file(ino).expect(&at_mount);
                        syncs.push((image.event_count(), content.clone()));
                    }
                    1 => while volume.work(NOW).expect(&at_mount) == Work::More {},
                    _ => {}
                }
            }
            drop(volume);
            let events = image.take_events();
            let end = random.below(events.len() as u64 + 1) as usize;
            for (at, content) in syncs.drain(..) {
                if at <= end {
                    synced = content;
                }
            }
            let crashed = crash(&base, &events, end, &mut random);
            let volume = Volume::open(Arc::new(crashed.snapshot()), VolumeOptions::default(), NOW)
                .expect(&at_mount);
            let mut found = Vec::new();
            if let Ok(entry) = volume.lookup(ROOT_INO, b"f") {
                let bytes = volume.read(entry.ino, 0, 1 << 20).expect(&at_mount);
                found.extend(bytes.as_bytes().chunks(4096).map(|block| block[0]));
            }
            assert!(found.len() >= synced.len(), "{at_mount}");
            for (block, mark) in synced.iter().enumerate() {
                assert!(found[block] >= *mark, "{at_mount}, block {block}");
            }
            synced.clone_from(&found);
            image = Arc::new(RecordingDevice::new(crashed, Keep::Contents));
        }
    }
}

/// When the daemon is killed, the record of a checkpoint may be only in the device's cache. The
/// next mount treated the segments that this checkpoint had freed as Clean, overwrote them, and
/// lost data in a power cut.
#[test]
fn a_mount_flushes_before_its_first_write() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(64)), Keep::Requests));
    format(&device, 32);
    drop(open(&device));
    device.take_events();
    drop(open(&device));
    let events = device.take_events();
    assert!(matches!(events.first(), Some(Event::Flush)), "{:?}", events.first());
}

/// Returns a full volume of many small files and the requests that follow. The requests make most leaves dirty, and end
/// with a checkpoint that takes most of the free space.
fn before_a_large_checkpoint(segments: u64) -> (RamDevice, Vec<Event>) {
    let device =
        Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(segments)), Keep::Contents));
    format(&device, 32);
    let volume = open(&device);
    let large = create(&volume, "large");
    for block in 0..225 {
        write(&volume, large, block, &[7; 4096]).unwrap();
    }
    let mut files = Vec::new();
    while volume.space().free_blocks * 5 > volume.space().total_blocks {
        files.push(create(&volume, &format!("{:0200}", files.len())));
        write(&volume, *files.last().unwrap(), 0, &[1; 900]).unwrap();
        if files.len() % 64 == 0 {
            volume.sync_all().unwrap();
        }
    }
    volume.sync_all().unwrap();
    let base = device.inner().snapshot();
    device.take_events();
    let mut random = Random(59);
    for round in 0..20 {
        for _ in 0..1 + random.below(300) {
            let file = files[random.below(files.len() as u64) as usize];
            // Dirty nodes take no space from overwrites.
            write(&volume, file, 0, &[round; 900]).unwrap();
        }
        volume.sync_all().unwrap();
    }
    volume.unlink(ROOT_INO, b"large", &caller()).unwrap();
    volume.forget(large, 1);
    volume.sync_all().unwrap();
    volume.work(Timestamp { secs: NOW.secs + 31, ..NOW }).unwrap();
    drop(volume);
    (base, device.take_events())
}

/// Returns the numbers of those `events` that write a checkpoint slot, with the address of the slot.
fn slot_writes(events: &[Event], segments: u64) -> Vec<(usize, u64)> {
    let slots = Layout::new(blocks_for(segments), 32, 0).expect("the layout fits").slots;
    let slot = |event: &Event| match event {
        Event::Write { range, .. } if slots.contains(&range.address) => Some(range.address),
        _ => None,
    };
    events.iter().enumerate().filter_map(|(at, event)| Some((at, slot(event)?))).collect()
}

/// The power fails before or during the write of a checkpoint's slot. The nodes of that checkpoint,
/// to which nothing refers, occupied the space that the next mount needed for its own: no mount
/// could sync any more. If a mount could, and the power failed again during the write of a slot,
/// the next mount refused the volume: the nodes of the first checkpoint looked as if that
/// checkpoint had been durable.
#[test]
fn an_interrupted_checkpoint_leaves_its_space_to_the_next_one() {
    let mut torn_later = 0;
    for segments in [90, 93, 97, 107] {
        let (base, events) = before_a_large_checkpoint(segments);
        let tear = |image: &RamDevice, slot: u64| {
            image
                .write(slot, &[&[Block([0xa5; 4096])]], Stream(0))
                .expect("a RAM device does not fail");
        };
        let &(at, slot) = slot_writes(&events, segments).last().expect("a checkpoint");
        for is_torn in [false, true] {
            let first = image_after(&base, &events[..at]);
            if is_torn {
                tear(&first, slot);
            }
            let at_case = format!("{segments} segments, torn {is_torn}");
            let device = Arc::new(RecordingDevice::new(first.snapshot(), Keep::Contents));
            let volume = open(&device);
            assert!(volume.counters().checkpoints > 0, "{at_case}: the mount wrote no checkpoint");
            create(&volume, "new");
            volume.sync_all().unwrap_or_else(|error| panic!("{at_case}: {error}"));
            let synced = device.event_count();
            volume.close().unwrap_or_else(|error| panic!("{at_case}: {error}"));
            let events = device.take_events();
            for (at, slot) in slot_writes(&events, segments) {
                let second = image_after(&first, &events[..at]);
                tear(&second, slot);
                torn_later += 1;
                let volume = Volume::open(Arc::new(second), VolumeOptions::default(), NOW)
                    .unwrap_or_else(|error| panic!("{at_case}, then at request {at}: {error}"));
                assert!(at < synced || volume.lookup(ROOT_INO, b"new").is_ok(), "{at_case}, {at}");
            }
        }
    }
    assert!(torn_later > 8, "{torn_later}");
}

/// The slot of the newest checkpoint is damaged, and segments that it freed have been discarded or
/// overwritten. These segments held deltas between the older checkpoint and the nodes of the
/// newest: roll-forward ended early, and a mount accepted a state without synced data.
#[test]
fn a_damaged_newest_checkpoint_is_noticed_when_the_log_before_it_is_gone() {
    let device = ram(64);
    let volume = open(&device);
    let files: Vec<u64> = (0..300).map(|no| create(&volume, &no.to_string())).collect();
    let checkpoint = |after: i64| {
        for _ in 0..20 {
            volume.work(Timestamp { secs: NOW.secs + after, ..NOW }).unwrap();
        }
    };
    volume.sync_all().unwrap();
    checkpoint(310);
    for len in 1..=100 {
        set_size(&volume, files[0], len).unwrap();
        volume.sync_all().unwrap();
    }
    checkpoint(620);
    set_size(&volume, files[0], 200).unwrap();
    volume.sync_all().unwrap();
    // mkfs wrote checkpoint 2, the mount 3 to 5.
    assert_eq!(volume.counters().checkpoints, 3);
    drop(volume);
    expect_refusal_without_newest(device);
}

/// The slot of the newest checkpoint is damaged, and the batch after its nodes had opened a segment
/// that only this checkpoint made Clean. Roll-forward from the older checkpoint did not read that
/// segment, and a mount accepted the older state, which was complete because none of its blocks had
/// been discarded or overwritten.
#[test]
fn a_damaged_newest_checkpoint_is_noticed_by_a_batch_in_a_segment_that_it_freed() {
    let device = ram(64);
    let options = VolumeOptions { discard: false, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    let file = create(&volume, "f");
    let fill = |mark: u8| {
        for block in 0..800 {
            write(&volume, file, block, &[mark; 4096]).unwrap();
        }
        volume.sync_all().unwrap();
    };
    let checkpoint = |after: i64| {
        volume.work(Timestamp { secs: NOW.secs + after, ..NOW }).unwrap();
    };
    fill(1);
    checkpoint(31);
    fill(2);
    checkpoint(62);
    fill(3);
    // mkfs wrote checkpoint 2, the mount 3 to 5.
    assert_eq!(volume.counters().checkpoints, 3);
    drop(volume);
    expect_refusal_without_newest(device);
}

/// Damages the slot of checkpoint 5, on 64 segments, and expects that a mount refuses the volume.
fn expect_refusal_without_newest(device: Arc<RamDevice>) {
    let slot = Layout::new(blocks_for(64), 32, 0).expect("the layout fits").slots[1];
    device.write(slot, &[&[Block([0xa5; 4096])]], Stream(0)).expect("a RAM device does not fail");
    match Volume::open(device, VolumeOptions::default(), NOW) {
        Err(error) => assert!(error.to_string().contains("checkpoint"), "{error}"),
        Ok(_) => panic!("the mount succeeds, and synced data is gone"),
    }
}

/// Data that was written back to free memory, or in a batch of the cleaner, was not flushed before the next
/// checkpoint.
#[test]
fn data_written_back_to_free_memory_is_flushed_within_the_commit_interval() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(256 << 8), Keep::Counts));
    format(&device, 256);
    let options = VolumeOptions { write_buffer: 1 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    let file = create(&volume, "f");
    volume.sync_all().unwrap();
    let later = |secs: i64| Timestamp { secs: NOW.secs + secs, nanos: 0 };
    while volume.work(later(1)).unwrap() == Work::More {}
    write(&volume, file, 0, &[1; 1 << 20]).unwrap();
    let before = device.counts();
    for secs in 2..9 {
        while volume.work(later(secs)).unwrap() == Work::More {}
    }
    let after = device.counts();
    assert_eq!(after.flushes, before.flushes + 1, "{before:?}, {after:?}");
}
