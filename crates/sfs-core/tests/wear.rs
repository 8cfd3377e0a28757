//! The wear ledger and the erase cycles, compared with what a recording device counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{
    CheckpointRecord, ChunkSummary, DataLayout, Day, EXTENSION_LEN_MAX, ErrorKind, Layout,
    NodeHeader, ROOT_INO, SummaryEntry, Timestamp, WearBytes, WearLedger,
};
use sfs_core::request::{VolumeOptions, Wear, WriteMode};
use sfs_device::{
    BLOCK_SIZE, Block, Device, Event, Keep, RamDevice, RecordingDevice, Stream, image_after,
};
use sfs_sim::model::fixture::{FILE, NOW, caller, open, ram_as, settle};

const BLOCK: u64 = BLOCK_SIZE as u64;
const SECS_PER_DAY: i64 = 86_400;
const SEGMENT_BLOCKS: u64 = 64;

type Recorded = Arc<RecordingDevice<RamDevice>>;

fn new_device(data_layout: DataLayout) -> Recorded {
    let ram = ram_as(16 << 20, SEGMENT_BLOCKS, data_layout);
    Arc::new(RecordingDevice::new(ram, Keep::Contents))
}

/// Returns the time `days` days after [`NOW`].
fn on_day(days: i64) -> Timestamp {
    Timestamp { secs: NOW.secs + days * SECS_PER_DAY, ..NOW }
}

fn create(volume: &Volume, name: &str) -> u64 {
    volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller()).expect("a file").ino
}

fn write(volume: &Volume, ino: u64, block: u64, blocks: usize) {
    let bytes = vec![block as u8; blocks * BLOCK_SIZE];
    volume.write(ino, block * BLOCK, &bytes, WriteMode::default(), &caller()).expect("a write");
}

/// Returns the wear as the device has it, without this mount.
fn stored(device: &Recorded) -> Wear {
    let image = Arc::new(device.inner().snapshot());
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    Volume::open(image, options, NOW).expect("the volume opens").wear()
}

/// Bytes and erasures that a recording device has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Bytes of data in chunks.
    data: u64,
    /// All other bytes.
    metadata: u64,
    /// Number of times that each segment got a chunk at its begin.
    erases: BTreeMap<u32, u16>,
}

impl Seen {
    fn of(volume_id: u64, layout: &Layout, events: &[Event]) -> Self {
        let mut seen = Self::default();
        for event in events {
            let Event::Write { range, content, .. } = event else { continue };
            let content = content.as_ref().expect("contents are kept");
            let data = data_blocks(volume_id, range.address, content);
            seen.data += data * BLOCK;
            seen.metadata += (range.block_count - data) * BLOCK;
            if let Some(segment) = layout.segment_of(range.address)
                && layout.segment_address(segment) == range.address
            {
                *seen.erases.entry(segment).or_insert(0) += 1;
            }
        }
        seen
    }
}

/// Returns the number of data blocks in a chunk; 0 for anything else.
fn data_blocks(volume_id: u64, at: u64, content: &[Block]) -> u64 {
    for summary_blocks in 1..=content.len() {
        let bytes = Block::bytes_of(&content[..summary_blocks]);
        if let Ok(chunk) = ChunkSummary::decode(bytes, volume_id, at) {
            let is_data = |entry: &&SummaryEntry| matches!(entry, SummaryEntry::Data { .. });
            return chunk.entries.iter().filter(is_data).count() as u64;
        }
    }
    0
}

fn options() -> VolumeOptions {
    VolumeOptions { yield_cleaning: false, ..VolumeOptions::default() }
}

fn open_at(device: &Recorded, now: Timestamp) -> Volume {
    Volume::open(device.clone(), options(), now).expect("the volume opens")
}

#[test]
fn totals_days_and_erases_are_what_the_device_has_seen() {
    let device = new_device(DataLayout::Log);
    let before = stored(&device);
    assert_eq!(before.ledger.totals, WearBytes::default(), "mkfs writes no ledger");
    let volume = open_at(&device, NOW);
    let (id, layout) = (volume.superblock().volume(), volume.layout());
    let file = create(&volume, "file");
    // Nothing is cleaned while the volume is filled, and nothing is written for users while it is cleaned.
    write(&volume, file, 0, 1600);
    volume.sync_all().expect("a sync");
    settle(&volume, on_day(0)).expect("work");
    let filled = volume.wear().ledger.totals;
    assert_eq!((filled.user, filled.cleaning), (1600 * BLOCK, 0));
    let mut next = 0;
    settle(&volume, on_day(1)).expect("work");
    while volume.counters().cleaning_bytes == 0 {
        (0..200).for_each(|no| write(&volume, file, (next + no * 7) % 1600, 1));
        next += 13;
        volume.sync_all().expect("a sync");
        settle(&volume, on_day(1)).expect("work");
    }
    settle(&volume, on_day(2)).expect("work");
    volume.close().expect("the volume closes");
    let closed = volume.wear();
    drop(volume);

    let seen = Seen::of(id, &layout, &device.events());
    let wear = stored(&device);
    assert_eq!(wear, closed, "the last checkpoint has everything, itself included");
    let totals = wear.ledger.totals;
    assert!(totals.cleaning > 0);
    assert_eq!(totals.user + totals.cleaning, seen.data);
    assert_eq!(totals.metadata, seen.metadata);
    assert_eq!(totals.sum(), device.counts().written_blocks * BLOCK);
    assert_eq!(wear.device_bytes - before.device_bytes, totals.sum());
    let days: Vec<_> = wear.ledger.days().collect();
    let sum = days.iter().fold(WearBytes::default(), |mut sum, (_, bytes)| {
        sum.add(*bytes);
        sum
    });
    assert_eq!(sum, totals);
    assert_eq!((days[0].0, days[0].1.user), (Day::of(NOW), filled.user));
    assert!(days.len() >= 2 && days[1].1.cleaning > 0);

    let volume = open(Arc::new(device.inner().snapshot()), options());
    let erases = volume.segment_erases();
    for segment in 0..layout.segment_count {
        // mkfs has used segment 0, and the mount that looks has written to some segment, too.
        let counted = erases[segment as usize];
        let expected = seen.erases.get(&segment).copied().unwrap_or(0) + u16::from(segment == 0);
        assert!((expected..=expected + 1).contains(&counted), "segment {segment}: {counted}");
    }
    let total: u32 = erases.iter().map(|count| u32::from(*count)).sum();
    assert!(u64::from(total) <= wear.erases.total + 1, "this mount has opened at most one segment");
    let most = *erases.iter().max().expect("segments");
    assert!(wear.erases.max <= most && erases[wear.erases.max_segment as usize] >= wear.erases.max);
}

#[test]
fn the_ledger_survives_a_thousand_mounts() {
    let device = new_device(DataLayout::Log);
    device.reset();
    let mut user = 0;
    for no in 0..1000 {
        let volume = open_at(&device, on_day(no / 10));
        if no % 100 == 0 {
            create(&volume, &format!("{no}"));
        }
        let file = volume.lookup(ROOT_INO, b"0").expect("a file").ino;
        write(&volume, file, no as u64 % 50, 1);
        user += BLOCK;
        if no % 10 == 3 {
            // A crash: what was synced counts.
            volume.sync_all().expect("a sync");
        } else {
            volume.close().expect("the volume closes");
        }
        drop(volume);
        device.take_events();
    }
    let wear = stored(&device);
    assert_eq!(wear.ledger.totals.user, user);
    assert_eq!(wear.ledger.totals.sum(), device.counts().written_blocks * BLOCK);
    assert!(wear.ledger.recovered_chunks >= 100);
    assert_eq!(wear.ledger.days().count(), 100);
    let newest: Vec<_> = wear.ledger.days().skip(92).map(|(_, bytes)| bytes.user).collect();
    assert_eq!(newest, [10 * BLOCK; 8]);
}

#[test]
fn days_are_those_of_a_clock_that_jumps() {
    let device = new_device(DataLayout::Log);
    let volume = open_at(&device, on_day(0));
    let file = create(&volume, "file");
    let mut expected = BTreeMap::new();
    // The last one is before the volume was made: such a clock is not set, and the newest day counts.
    for (blocks, day) in [(1, 0), (2, 40), (3, 5), (4, 4000), (5, 6), (6, -3)] {
        settle(&volume, on_day(day)).expect("work");
        write(&volume, file, 0, blocks);
        volume.sync_all().expect("a sync");
        let shown = if day < 0 { 4000 } else { day };
        *expected.entry(Day::of(on_day(shown))).or_insert(0) += blocks as u64 * BLOCK;
    }
    volume.close().expect("the volume closes");
    let days: BTreeMap<_, _> =
        stored(&device).ledger.days().map(|(day, bytes)| (day, bytes.user)).collect();
    assert_eq!(days, expected);
}

/// After a crash at any request, nothing is lost that the last checkpoint had, and the chunks that roll-forward finds are
/// counted.
#[test]
fn a_crash_loses_no_count_of_the_last_checkpoint() {
    let device = new_device(DataLayout::Log);
    let volume = open_at(&device, NOW);
    let file = create(&volume, "file");
    write(&volume, file, 0, 300);
    volume.freeze().expect("a checkpoint");
    volume.thaw().expect("a checkpoint");
    let floor = volume.wear();
    let erases = volume.segment_erases();
    let base = device.inner().snapshot();
    device.reset();
    for no in 0..20 {
        write(&volume, file, no * 30, 40);
        volume.sync_all().expect("a sync");
    }
    let events = device.events();
    let mut last = 0;
    for len in 0..=events.len() {
        let image = Arc::new(image_after(&base, &events[..len]));
        let volume = open(image, options());
        let wear = volume.wear();
        let found = wear.ledger.totals.user - floor.ledger.totals.user;
        assert!(found >= last, "after {len} requests");
        last = found;
        let now = volume.segment_erases();
        assert!(erases.iter().zip(&now).all(|(before, now)| before <= now));
    }
    assert_eq!(last, 20 * 40 * BLOCK);
    drop(volume);
}

#[test]
fn data_in_place_counts_too() {
    let device = new_device(DataLayout::GreedySpace);
    let volume = open_at(&device, NOW);
    let id = volume.superblock().volume();
    let file = create(&volume, "file");
    for _ in 0..5 {
        write(&volume, file, 0, 128);
        volume.sync_all().expect("a sync");
    }
    let in_place = volume.segment_erases();
    volume.close().expect("the volume closes");
    drop(volume);
    let wear = stored(&device);
    let totals = wear.ledger.totals;
    assert_eq!(totals.user, 5 * 128 * BLOCK);
    assert_eq!(totals.sum(), device.counts().written_blocks * BLOCK);
    let chunks = |event: &Event| match event {
        Event::Write { content: Some(content), .. } => ChunkSummary::begins(&content[0].0, id),
        _ => false,
    };
    assert!(device.events().iter().any(chunks), "metadata goes to the log");
    // Two segments hold the file: taken once, and overwritten four times.
    assert_eq!(in_place.iter().filter(|count| **count == 5).count(), 2);
}

/// Returns the newest checkpoint and its address.
fn newest(device: &RamDevice) -> (CheckpointRecord, u64, u64) {
    let volume = Volume::open(
        Arc::new(device.snapshot()),
        VolumeOptions { read_only: true, ..VolumeOptions::default() },
        NOW,
    )
    .expect("the volume opens");
    let (slots, id) = (volume.layout().slots, volume.superblock().volume());
    let read = |at: u64| {
        let mut slot = Block::zeroed(16);
        device.read(at, &mut slot).expect("a RAM device does not fail");
        CheckpointRecord::decode(Block::bytes_of(&slot), id, at).ok().map(|record| (record, at, id))
    };
    slots.into_iter().filter_map(read).max_by_key(|(record, ..)| record.number).expect("a slot")
}

/// Gives the volume a ledger of `days` days of heavy use.
fn forge_history(device: &RamDevice, days: u32) {
    let (mut record, at, id) = newest(device);
    let mut ledger = WearLedger::new(Day(10_000));
    for day in 0..days {
        let user = 90_000_000_000 + u64::from(day % 17) * 1_000_000;
        let bytes = WearBytes { user, cleaning: user / 2, metadata: user / 9, defragmentation: 0 };
        ledger.add(Day(10_000 + day), bytes);
    }
    ledger.put_into(&mut record.extensions, EXTENSION_LEN_MAX);
    let bytes = record.encode(id, at);
    let blocks: Vec<Block> =
        bytes.chunks_exact(BLOCK_SIZE).map(|b| Block(b.try_into().expect("a block"))).collect();
    device.write(at, &[&blocks], Stream::default()).expect("a RAM device does not fail");
}

/// "Ledger: at most 0.1 % of log bytes with 64 MiB or more between checkpoints, no additional block below that": with the
/// longest ledger the checkpoints have as many blocks as without one, with every policy.
#[test]
fn the_longest_ledger_costs_no_block() {
    for grouping in sfs_core::policy::GROUPING_POLICIES {
        let blocks = |days: u32| {
            let device = new_device(DataLayout::Log);
            forge_history(device.inner(), days);
            let options = VolumeOptions { grouping: (*grouping).to_owned(), ..options() };
            let volume = open(device.clone(), options);
            let slots = volume.layout().slots;
            let file = create(&volume, "file");
            for round in 0..3 {
                write(&volume, file, round * 100, 100);
                settle(&volume, on_day(10 + round as i64)).expect("work");
            }
            volume.close().expect("the volume closes");
            let wear = volume.wear();
            let expected = (days.min(400) as usize, days > 400);
            let found = (wear.ledger.days().count(), wear.ledger.months().count() > 0);
            assert!(days == 0 || found == expected, "{grouping}: {found:?}");
            let stored = stored(&device).ledger;
            assert_eq!(stored.days().count(), wear.ledger.days().count(), "{grouping}");
            let of_slot = |event: &Event| match event {
                Event::Write { range, .. } if slots.contains(&range.address) => {
                    Some(range.block_count)
                }
                _ => None,
            };
            device.events().iter().filter_map(of_slot).collect::<Vec<_>>()
        };
        let (none, longest) = (blocks(0), blocks(7000));
        assert!(none.len() >= 3, "several checkpoints");
        assert_eq!(none, longest, "{grouping}");
    }
}

fn errors_of(volume: &Volume) -> Vec<ErrorKind> {
    volume.remembered().errors.iter().map(|count| count.kind).collect()
}

#[test]
fn slow_writing_is_remembered() {
    let device = new_device(DataLayout::Log);
    let volume = open_at(&device, NOW);
    (0..16).for_each(|_| volume.note_write_speed(50_000));
    (0..7).for_each(|_| volume.note_write_speed(250_000));
    assert_eq!(errors_of(&volume), []);
    volume.close().expect("the volume closes");
    drop(volume);
    // The row of slow measurements goes on in the next mount.
    let volume = open_at(&device, on_day(1));
    volume.note_write_speed(250_000);
    assert_eq!(errors_of(&volume), [ErrorKind::SlowWrite]);
    volume.close().expect("the volume closes");
    drop(volume);
    assert_eq!(errors_of(&open_at(&device, on_day(2))), [ErrorKind::SlowWrite]);
}

/// A device of which two addresses lead to one block returns, for an older node, a newer one.
#[test]
fn a_block_with_the_content_of_another_is_recognized() {
    let device = new_device(DataLayout::Log);
    let volume = open_at(&device, NOW);
    let (id, layout) = (volume.superblock().volume(), volume.layout());
    for no in 0..300 {
        create(&volume, &format!("{no:0200}"));
    }
    volume.close().expect("the volume closes");
    drop(volume);
    let image = device.inner().snapshot();
    let read = |at: u64| {
        let mut block = Block::zeroed(1);
        image.read(at, &mut block).expect("a RAM device does not fail");
        block
    };
    let end = layout.segment_address(layout.segment_count - 1);
    let nodes: Vec<u64> =
        (layout.segment_first..end).filter(|at| NodeHeader::begins(&read(*at)[0].0, id)).collect();
    let newest = read(*nodes.last().expect("nodes"));
    let mut recognized = 0;
    for at in nodes.iter().rev().skip(1).take(12) {
        let wrapped = Arc::new(image.snapshot());
        wrapped.write(*at, &[&newest], Stream::default()).expect("a RAM device does not fail");
        let options = VolumeOptions { read_only: true, ..options() };
        let Ok(volume) = Volume::open(wrapped, options, NOW) else { continue };
        for no in 0..300 {
            let _ = volume.lookup(ROOT_INO, format!("{no:0200}").as_bytes());
        }
        let errors = errors_of(&volume);
        assert_eq!(errors.contains(&ErrorKind::Misplaced), errors.contains(&ErrorKind::Tree));
        recognized += usize::from(errors.contains(&ErrorKind::Misplaced));
    }
    assert!(recognized > 0, "some of these nodes are in use");
}
