//! What went wrong in crashes.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{Layout, ROOT_INO, Timestamp};
use sfs_core::request::{RenameMode, VolumeOptions, Work};
use sfs_device::{Block, Device, Event, Keep, RamDevice, RecordingDevice, Stream, image_after};

use crate::rig::{
    NOW, Random, blocks_for, caller, create, format, open, ram, read, set_size, write,
};

/// A name that got another file's content by exchange must have it after a crash, too.
#[test]
fn an_exchange_takes_the_data_along() {
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

/// A file that was emptied, and that nobody knew any more before it was written again, was left
/// empty by a crash after the next sync of something else.
#[test]
fn a_file_that_is_emptied_and_forgotten_goes_with_the_next_delta() {
    let device = ram(64);
    let volume = open(&device);
    let file = create(&volume, "f");
    let other = create(&volume, "other");
    write(&volume, file, 0, &[1; 40_960]).unwrap();
    volume.sync_all().unwrap();
    // A round that finds nothing to do but to drop what nobody needs.
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

/// What a crash leaves of `events`: all before the last flush in the first `end`, and of the rest
/// some, torn.
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

/// Two crashes in a row, the second during recovery or soon after: what was synced before the first
/// is there, and everything can be read.
#[test]
fn two_crashes_in_a_row_keep_what_was_synced() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let base = RamDevice::new(blocks_for(32 + random.below(20)));
        let mut image = Arc::new(RecordingDevice::new(base, Keep::Contents));
        format(&image, 32);
        let mut synced: Vec<u8> = Vec::new();
        let mut syncs: Vec<(usize, Vec<u8>)> = Vec::new();
        for life in 0..4 {
            let base = image.inner().snapshot();
            image.take_events();
            let at_life = format!("seed {seed}, life {life}");
            let volume =
                Volume::open(image.clone(), VolumeOptions::default(), NOW).expect(&at_life);
            let mut content = synced.clone();
            let mut file = None;
            for step in 0..1 + random.below(40) {
                let name = format!("{life}-{step}");
                if random.below(3) == 0 {
                    drop(volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller()));
                }
                let ino = *file.get_or_insert_with(|| match volume.lookup(ROOT_INO, b"f") {
                    Ok(entry) => entry.ino,
                    Err(_) => create(&volume, "f"),
                });
                // Blocks only ever become newer: each says in which step it was written.
                let mark = (life * 50 + step + 1) as u8;
                for _ in 0..random.below(20) {
                    let block = random.below(150) as usize;
                    if write(&volume, ino, block as u64, &[mark; 4096]).is_ok() {
                        content.resize(content.len().max(block + 1), 0);
                        content[block] = mark;
                    }
                }
                match random.below(6) {
                    0 => {
                        volume.sync_file(ino).expect(&at_life);
                        syncs.push((image.event_count(), content.clone()));
                    }
                    1 => while volume.work(NOW).expect(&at_life) == Work::More {},
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
                .expect(&at_life);
            let mut found = Vec::new();
            if let Ok(entry) = volume.lookup(ROOT_INO, b"f") {
                let bytes = volume.read(entry.ino, 0, 1 << 20).expect(&at_life);
                found.extend(bytes.as_bytes().chunks(4096).map(|block| block[0]));
            }
            assert!(found.len() >= synced.len(), "{at_life}");
            for (block, mark) in synced.iter().enumerate() {
                assert!(found[block] >= *mark, "{at_life}, block {block}");
            }
            synced.clone_from(&found);
            image = Arc::new(RecordingDevice::new(crashed, Keep::Contents));
        }
    }
}

/// The daemon was killed while a checkpoint's record was only in the device's cache. The next mount
/// took what that checkpoint let go for Clean, wrote over it, and then the power went.
#[test]
fn a_mount_makes_durable_what_it_read_before_it_writes() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(64)), Keep::Requests));
    format(&device, 32);
    drop(open(&device));
    device.take_events();
    drop(open(&device));
    let events = device.take_events();
    assert!(matches!(events.first(), Some(Event::Flush)), "{:?}", events.first());
}

/// A full volume of many small files, most of whose leaves are dirty, and the requests that led there
/// from what it was before. The last are those of a checkpoint, which takes most of the room.
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
            // What waits for a checkpoint takes no room from what is overwritten.
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

/// Which of `events` write a checkpoint slot, and where.
fn slot_writes(events: &[Event], segments: u64) -> Vec<(usize, u64)> {
    let slots = Layout::new(blocks_for(segments), 32, 0).expect("it fits").slots;
    let slot = |event: &Event| match event {
        Event::Write { range, .. } if slots.contains(&range.address) => Some(range.address),
        _ => None,
    };
    events.iter().enumerate().filter_map(|(at, event)| Some((at, slot(event)?))).collect()
}

/// The power went before a checkpoint's slot was written, or in the middle of it. Its nodes, of which
/// nobody knows, kept the room that the next mount needed for its own: neither that mount nor any
/// after it could sync. Where one could, and the power went again in the middle of a slot, the volume
/// was refused: the first nodes looked as if their checkpoint had been durable.
#[test]
fn a_checkpoint_that_was_cut_short_leaves_its_room_to_the_next() {
    let mut torn_later = 0;
    for segments in [90, 93, 97, 107] {
        let (base, events) = before_a_large_checkpoint(segments);
        let tear = |image: &RamDevice, slot: u64| {
            image.write(slot, &[&[Block([0xa5; 4096])]], Stream(0)).expect("RAM");
        };
        let &(at, slot) = slot_writes(&events, segments).last().expect("a checkpoint");
        for is_torn in [false, true] {
            let first = image_after(&base, &events[..at]);
            if is_torn {
                tear(&first, slot);
            }
            let said = format!("{segments} segments, torn {is_torn}");
            let device = Arc::new(RecordingDevice::new(first.snapshot(), Keep::Contents));
            let volume = open(&device);
            assert!(volume.counters().checkpoints > 0, "{said}: no checkpoint begins its life");
            create(&volume, "new");
            volume.sync_all().unwrap_or_else(|error| panic!("{said}: {error}"));
            let synced = device.event_count();
            volume.close().unwrap_or_else(|error| panic!("{said}: {error}"));
            let events = device.take_events();
            for (at, slot) in slot_writes(&events, segments) {
                let second = image_after(&first, &events[..at]);
                tear(&second, slot);
                torn_later += 1;
                let volume = Volume::open(Arc::new(second), VolumeOptions::default(), NOW)
                    .unwrap_or_else(|error| panic!("{said}, then at request {at}: {error}"));
                assert!(at < synced || volume.lookup(ROOT_INO, b"new").is_ok(), "{said}, {at}");
            }
        }
    }
    assert!(torn_later > 8, "{torn_later}");
}

/// The newest checkpoint's slot has rotted, and what it let go has been discarded or written over, the
/// deltas that lead from the older checkpoint to its nodes among it: roll-forward ended before them, and
/// a mount took a state without what was synced.
#[test]
fn a_checkpoint_that_rots_is_missed_also_when_the_log_before_it_is_gone() {
    let device = ram(64);
    let volume = open(&device);
    let files: Vec<u64> = (0..300).map(|no| create(&volume, &no.to_string())).collect();
    let checkpoint = |after: i64| {
        for _ in 0..20 {
            volume.work(Timestamp { secs: NOW.secs + after, ..NOW }).unwrap();
        }
    };
    volume.sync_all().unwrap();
    checkpoint(31);
    for len in 1..=100 {
        set_size(&volume, files[0], len).unwrap();
        volume.sync_all().unwrap();
    }
    checkpoint(62);
    set_size(&volume, files[0], 200).unwrap();
    volume.sync_all().unwrap();
    // mkfs wrote checkpoint 2, the mount 3 to 5.
    assert_eq!(volume.counters().checkpoints, 3);
    drop(volume);
    rot_newest_and_refuse(device);
}

/// The newest checkpoint's slot has rotted, and the batch after its nodes had opened a segment that only
/// this checkpoint made Clean. Seen from the older one that batch was nowhere, and a mount took the older
/// state, of which nothing had been discarded or written over.
#[test]
fn what_follows_a_checkpoint_that_rots_is_found_in_what_it_let_go() {
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
    rot_newest_and_refuse(device);
}

/// The slot of checkpoint 5, on 64 segments, rots; the volume is not mounted without it.
fn rot_newest_and_refuse(device: Arc<RamDevice>) {
    let slot = Layout::new(blocks_for(64), 32, 0).expect("it fits").slots[1];
    device.write(slot, &[&[Block([0xa5; 4096])]], Stream(0)).expect("RAM");
    match Volume::open(device, VolumeOptions::default(), NOW) {
        Err(error) => assert!(error.to_string().contains("checkpoint"), "{error}"),
        Ok(_) => panic!("it mounts, and what was synced is gone"),
    }
}

/// What was written out to make room, or went with what the cleaner moved, was flushed by nobody before
/// the next checkpoint.
#[test]
fn what_was_written_a_while_ago_is_durable() {
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
