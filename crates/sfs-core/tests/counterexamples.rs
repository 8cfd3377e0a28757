//! One test for each way in which a promise was once broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{AttributeChanges, Caller, Options, RenameMode, Seek, Work, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{Device, Event, FaultyDevice, Keep, RamDevice, RecordingDevice, image_after};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, now: NOW }
}

fn format(device: &Arc<impl Device + 'static>, segment_blocks: u64) {
    let block_count = device.geometry().block_count;
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(block_count, segment_blocks, 0).expect("it fits"),
        hash_key: [1, 2],
        created: NOW,
    };
    make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("a volume is made");
}

/// Blocks of a device for `segments` segments of 32 blocks.
fn blocks_for(segments: u64) -> u64 {
    32 + segments * 32 + 17
}

fn ram(segments: u64) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new(blocks_for(segments)));
    format(&device, 32);
    device
}

fn open(device: &Arc<impl Device + 'static>) -> Volume {
    Volume::open(device.clone(), Options::default(), NOW).expect("the volume opens")
}

fn create(volume: &Volume, name: &str) -> u64 {
    volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller()).expect("it is made").ino
}

fn write(volume: &Volume, ino: u64, block: u64, bytes: &[u8]) -> sfs_core::Result<()> {
    volume.write(ino, block * 4096, bytes, WriteMode::default(), &caller())
}

fn set_size(volume: &Volume, ino: u64, size: u64) -> sfs_core::Result<()> {
    let changes = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
    volume.set_attributes(ino, &changes, &caller()).map(drop)
}

fn read(volume: &Volume, ino: u64, offset: u64, len: usize) -> Vec<u8> {
    volume.read(ino, offset, len).expect("it reads").as_bytes().to_vec()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// A write between the planning of a commit and its taking effect was thrown away.
#[test]
fn a_write_during_a_commit_is_not_lost() {
    let device = Arc::new(RamDevice::new(256 << 8));
    format(&device, 256);
    let volume = open(&device);
    let files: Vec<u64> = (0..40).map(|i| create(&volume, &format!("f{i}"))).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                volume.sync_all().expect("it syncs");
                std::thread::yield_now();
            }
        });
        let mut last = Vec::new();
        'rounds: for round in 1..100u32 {
            for file in &files {
                let bytes = round.to_le_bytes().repeat(65_536);
                write(&volume, *file, 0, &bytes).expect("it is written");
                if read(&volume, *file, 0, bytes.len()) != bytes {
                    last.push((round, *file));
                    break 'rounds;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(last.is_empty(), "round and file of a write that was lost: {last:?}");
    });
    drop(volume.sync_all());
    drop(volume);
    let volume = open(&device);
    for file in &files {
        assert_eq!(read(&volume, *file, 0, 4), 99u32.to_le_bytes());
    }
}

/// As above, for a file that a commit takes into its tree item.
#[test]
fn an_append_during_a_commit_of_a_small_file_is_not_lost() {
    let device = Arc::new(RamDevice::new(64 << 8));
    format(&device, 256);
    let volume = open(&device);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                volume.sync_all().expect("it syncs");
                std::thread::yield_now();
            }
        });
        for round in 0..2000u32 {
            let file = create(&volume, &format!("f{round}"));
            volume.write(file, 0, &[1; 100], WriteMode::default(), &caller()).unwrap();
            volume.write(file, 100, &[2; 20_000], WriteMode::default(), &caller()).unwrap();
            let found = read(&volume, file, 0, 1 << 20);
            let sound = found.len() == 20_100 && found[100..].iter().all(|b| *b == 2);
            volume.unlink(ROOT_INO, format!("f{round}").as_bytes(), &caller()).unwrap();
            volume.forget(file, 1);
            while volume.work(NOW).expect("it works") == Work::More {}
            if !sound {
                done.store(true, Ordering::Relaxed);
                panic!("round {round}: {} bytes", found.len());
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Truncating an open file without a name took its orphan item away, and with it all hope.
#[test]
fn a_nameless_file_that_is_truncated_is_still_reclaimed() {
    let device = Arc::new(RamDevice::new(128 << 8));
    format(&device, 256);
    let volume = open(&device);
    let file = create(&volume, "f");
    for at in 0..20 {
        write(&volume, file, at * 512, &vec![7; 512 * 4096]).unwrap();
    }
    volume.sync_all().unwrap();
    let before = volume.space().free_blocks;
    volume.unlink(ROOT_INO, b"f", &caller()).unwrap();
    set_size(&volume, file, 4096 * 32).unwrap();
    volume.forget(file, 1);
    while volume.work(NOW).unwrap() == Work::More {}
    assert!(volume.attributes(file).is_err(), "the file is still there");
    assert!(volume.space().free_blocks > before + 10_000);
}

/// What a crash left to cut off a file was cut off after the file had been written again, or
/// shown again when it grew.
#[test]
fn an_unfinished_truncation_does_not_touch_what_is_written_later() {
    let ram = RamDevice::new(256 << 8);
    let device = Arc::new(RecordingDevice::new(ram, Keep::Contents));
    format(&device, 256);
    let volume = open(&device);
    let file = create(&volume, "f");
    let blocks = 18_000;
    for at in 0..blocks {
        write(&volume, file, at * 32, &[7; 4096]).unwrap();
    }
    volume.close().unwrap();
    let base = device.inner().snapshot();
    device.take_events();
    set_size(&volume, file, 4096).unwrap();
    let events = device.take_events();
    assert!(!events.is_empty(), "a commit came in between");
    let image = Arc::new(image_after(&base, &events));

    let volume = open(&image);
    let entry = volume.lookup(ROOT_INO, b"f").unwrap();
    assert_eq!(entry.inode.size, 4096, "the truncation is half done");
    write(&volume, file, 64, &[9; 4096]).unwrap();
    volume.sync_file(file).unwrap();
    assert_eq!(read(&volume, file, 32 * 4096, 4096), [0; 4096], "what was cut off is back");
    volume.forget(file, 1);
    while volume.work(NOW).unwrap() == Work::More {}
    assert_eq!(read(&volume, file, 64 * 4096, 4096), [9; 4096], "what was synced is gone");
}

/// The last block of the largest file has no next one.
#[test]
fn seeking_in_the_last_block_of_the_largest_file_ends() {
    let device = ram(40);
    let volume = open(&device);
    let file = create(&volume, "f");
    let last = (1u64 << 32) - 1;
    write(&volume, file, last, &[1; 4096]).unwrap();
    assert_eq!(volume.seek(file, last * 4096 + 5, Seek::Hole).unwrap(), 1 << 44);
    assert_eq!(volume.seek(file, 0, Seek::Data).unwrap(), last * 4096);
    assert_eq!(read(&volume, file, last * 4096, 8192), [1; 4096]);
    volume.sync_all().unwrap();
    assert_eq!(volume.seek(file, last * 4096 + 5, Seek::Hole).unwrap(), 1 << 44);
    set_size(&volume, file, (1 << 44) - 1).unwrap();
    assert_eq!(read(&volume, file, last * 4096, 8192), [1; 4095]);
    set_size(&volume, file, 1 << 44).unwrap();
    set_size(&volume, file, 5).unwrap();
    volume.sync_all().unwrap();
}

/// Everything on a full volume is overwritten in memory before a sync: it does not fit at once.
#[test]
fn overwriting_all_of_a_full_tiny_volume_can_be_synced() {
    for segments in [32, 40, 64] {
        let device = ram(segments);
        let volume = open(&device);
        let file = create(&volume, "f");
        let mut count = 0;
        while write(&volume, file, count, &[1; 4096]).is_ok() {
            count += 1;
            if count % 20 == 0 {
                volume.sync_all().unwrap();
            }
        }
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

/// A delta is estimated, and a batch has to have it whole.
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
            volume.lookup(ROOT_INO, format!("file{i}").as_bytes()).expect("it is there");
            volume.unlink(ROOT_INO, format!("file{i}").as_bytes(), &caller()).expect("it goes");
        }
        volume.close().unwrap();
    }
}

/// One sync that dirties more nodes than there are segments left to write them to.
#[test]
fn a_commit_leaves_room_for_the_checkpoint_of_what_it_changes() {
    let device = ram(2000);
    let volume = open(&device);
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
    let mut random = Random(1);
    for round in 0..60 {
        for _ in 0..200 + random.below(2500) {
            let block = random.below(count);
            write(&volume, file, block, &[round; 4096]).unwrap();
        }
        volume.sync_all().unwrap_or_else(|e| panic!("round {round}: {e}"));
        Volume::open(Arc::new(device.snapshot()), Options::default(), NOW)
            .unwrap_or_else(|e| panic!("round {round} does not mount: {e}"));
    }
    volume.close().unwrap();
}

/// An operation needs nodes that dirty ones leave no room for.
#[test]
fn a_small_cache_full_of_dirty_nodes_is_no_end() {
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
        let options = Options { cache: 1 << 20, ..Options::default() };
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
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
}

/// A summary that cannot be read hides what lives behind it: cleaning the segment gains nothing.
#[test]
fn a_damaged_summary_does_not_stop_cleaning() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(40))));
    format(&device, 32);
    let volume = open(&device);
    let file = create(&volume, "f");
    let blocks = 500;
    for at in 0..blocks {
        write(&volume, file, at, &[1; 4096]).unwrap();
    }
    volume.sync_all().unwrap();
    // One in eight blocks still lives in the first segments.
    for at in (0..blocks).filter(|at| at % 8 != 0) {
        write(&volume, file, at, &[2; 4096]).unwrap();
        if at % 31 == 0 {
            volume.sync_all().unwrap();
        }
    }
    volume.sync_all().unwrap();
    for segment in 0..8 {
        let start = 32 + segment * 32;
        device.corrupt_reads(start..start + 1);
    }
    let mut random = Random(3);
    for round in 0..4000 {
        let at = random.below(400) + 100;
        write(&volume, file, at, &[3; 4096]).unwrap();
        if round % 10 == 0 {
            volume.sync_all().unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
    }
}

/// A full volume that nobody uses must not wear the device out.
#[test]
fn cleaning_that_gains_nothing_is_not_repeated() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(200)), Keep::Counts));
    format(&device, 32);
    let volume = open(&device);
    let file = create(&volume, "f");
    let mut count = 0;
    while write(&volume, file, count, &[1; 16 * 4096]).is_ok() {
        count += 16;
        volume.sync_all().unwrap();
    }
    let later = |secs: i64| Timestamp { secs: NOW.secs + 60 + secs, nanos: 0 };
    for secs in 0..60 {
        while volume.work(later(secs)).unwrap() == Work::More {}
    }
    device.reset();
    for secs in 60..600 {
        while volume.work(later(secs)).unwrap() == Work::More {}
    }
    let written = device.counts().written_blocks;
    assert!(written < 2000, "{written} blocks were written for nothing");
}

/// A commit needs more nodes at once than the cache holds, while readers trim the cache.
#[test]
fn readers_do_not_starve_a_commit_of_its_nodes() {
    let device = Arc::new(RamDevice::new(512 << 8));
    format(&device, 256);
    let volume = open(&device);
    let count = 40_000;
    let inos: Vec<u64> = (0..count).map(|i| create(&volume, &format!("file{i}"))).collect();
    volume.close().unwrap();
    drop(volume);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = Options { cache: 1 << 20, write_buffer: 1 << 30, ..Options::default() };
        let volume = Volume::open(device, options, NOW).unwrap();
        for ino in inos.iter().step_by(2) {
            volume.write(*ino, 0, &[1; 10], WriteMode::default(), &caller()).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let (done, volume, inos) = (&done, &volume, &inos);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    while !done.load(Ordering::Relaxed) {
                        volume.attributes(inos[random.below(count) as usize]).unwrap();
                    }
                });
            }
            volume.sync_all().unwrap();
            done.store(true, Ordering::Relaxed);
        });
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
}

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

/// What a writer had read of a small file was taken for current after another had changed it.
#[test]
fn two_writers_of_a_small_file_do_not_undo_each_other() {
    let device = ram(64);
    let volume = open(&device);
    let file = create(&volume, "f");
    volume.write(file, 0, &[0; 100], WriteMode::default(), &caller()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                volume.sync_all().expect("it syncs");
            }
        });
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let volume = &volume;
                scope.spawn(move || {
                    for round in 0..20_000u32 {
                        let at = 10 + writer * 50;
                        let bytes = round.to_le_bytes();
                        volume.write(file, at, &bytes, WriteMode::default(), &caller()).unwrap();
                        if read(volume, file, at, 4) != bytes {
                            return Some((writer, round));
                        }
                    }
                    None
                })
            })
            .collect();
        let lost: Vec<_> = writers.into_iter().filter_map(|w| w.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(lost.is_empty(), "writer and round of what was lost: {lost:?}");
    });
}

/// Whatever is done to a volume that is nearly full: what was accepted can be synced, the volume
/// mounts after a crash, and deleting works.
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
                    volume = Volume::open(device.clone(), Options::default(), NOW).expect(&at_step);
                    for (name, ino) in &files {
                        let entry = volume.lookup(ROOT_INO, name.as_bytes()).expect(&at_step);
                        assert_eq!(entry.ino, *ino);
                        volume.read(*ino, 0, 1 << 20).expect(&at_step);
                    }
                }
                _ => {
                    Volume::open(Arc::new(device.snapshot()), Options::default(), NOW)
                        .expect(&at_step);
                }
            }
        }
        volume.close().expect("it closes");
    }
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
            let volume = Volume::open(image.clone(), Options::default(), NOW).expect(&at_life);
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
            let volume = Volume::open(Arc::new(crashed.snapshot()), Options::default(), NOW)
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
