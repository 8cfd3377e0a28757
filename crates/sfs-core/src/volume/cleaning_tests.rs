//! Tests of cleaning rounds: rounds that end early, and the dirty nodes that rounds cause.

use std::sync::Arc;

use sfs_device::{Device, FaultyDevice, Operation, RamDevice};

use crate::Volume;
use crate::clean::watermarks::{Urgency, garbage, urgency};
use crate::clean::{Cleaner, CleanerParts, CleaningRound, ReadStep};
use crate::fixture::{
    CALLER, LARGE_SEGMENT_BLOCKS, NOW, create, large_segments_on, new_volume_of,
    new_with_large_segments, put, write,
};
use crate::format::{ROOT_INO, Timestamp};
use crate::log::ChunkReader;
use crate::policy::full_scan;
use crate::request::{ErrorReaction, VolumeOptions, Work};
use crate::writeback::{CheckpointReason, Merging};

/// Returns a cleaner of `volume` beside that of its space control.
fn cleaner_of(volume: &Volume) -> Cleaner {
    let Volume { superblock, metadata, dirty, io, health, counters, options, .. } = volume;
    let parts = CleanerParts {
        superblock: superblock.clone(),
        metadata: metadata.clone(),
        dirty: dirty.clone(),
        io: io.clone(),
        chunks: ChunkReader::new(io.clone(), superblock.clone()),
        health: health.clone(),
        counters: counters.clone(),
    };
    Cleaner::new(parts, options.write_buffer, options.cache)
}

/// Returns a volume whose large segments are full of the blocks of a file, all but an eighth of them live.
fn with_large_segments() -> Volume {
    let volume = new_with_large_segments(40, VolumeOptions::default());
    let file = create(&volume, "f");
    for block in (0..3 * LARGE_SEGMENT_BLOCKS).step_by(256) {
        put(&volume, file, block, 256, 1).expect("there is room");
        volume.sync_all().expect("RAM");
    }
    for block in (0..3 * LARGE_SEGMENT_BLOCKS).step_by(512) {
        put(&volume, file, block, 64, 2).expect("there is room");
    }
    volume.sync_all().expect("RAM");
    volume
}

/// Regression: a round that ended while its last victim was being read, because cleaning was not
/// urgent any more, counted that victim as emptied. The second time, the victim was reported as
/// damage of the log.
#[test]
fn a_victim_that_was_read_in_part_is_not_taken_for_damaged() {
    let volume = with_large_segments();
    let cleaner = cleaner_of(&volume);
    for _ in 0..6 {
        let mut round = CleaningRound::default();
        assert!(matches!(cleaner.read_step(&mut round), ReadStep::Read { .. }));
        assert!((100..=256).contains(&round.moves().len()), "a part of the victim");
        let garbage = garbage(&volume.superblock.layout(), &volume.metadata.read());
        cleaner.finish(&mut round, garbage, 0);
        let reason = CheckpointReason::Interval;
        volume.space.checkpoint(&mut volume.log.lock(), reason).expect("RAM");
        cleaner.reconsider_excluded(false);
    }
    assert!(volume.remembered().is_empty(), "{:?}", volume.remembered());
    assert_eq!(volume.counters().segments_cleaned, 0);
}

/// Number of blocks of a device with room for the files.
const BLOCKS: u64 = 64 << 8;

/// Number of files of 1000 bytes; their nodes fill segments of 32 blocks.
const FILES: usize = 8000;

/// Number of dirty nodes that cleaning may cause with the smallest cache, and the nodes of one more
/// victim with their parents.
const DIRTY_NODES_MAX: usize = 512 + 2 * 32;

/// Makes files whose nodes fill many segments, and deletes a quarter.
fn fill_with_nodes(volume: &Volume) {
    for no in 0..FILES {
        let ino = create(volume, &no.to_string());
        write(volume, ino, &[7; 1000]);
        volume.forget(ino, 1);
        if no % 400 == 0 {
            volume.sync_all().expect("RAM");
        }
    }
    volume.sync_all().expect("RAM");
    for no in (0..FILES).step_by(4) {
        volume.unlink(ROOT_INO, no.to_string().as_bytes(), &CALLER).expect("the file is removed");
    }
}

/// Number of clean nodes that the smallest cache holds beside the dirty nodes.
const CLEAN_NODES_MAX: usize = 128;

/// Regression: the nodes of a whole segment became dirty beyond the limit of the cache, and the
/// nodes that cleaning had read stayed in memory until another operation read nodes.
#[test]
fn a_victim_with_many_nodes_waits_for_a_checkpoint() {
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = new_with_large_segments(40, options);
    fill_with_nodes(&volume);
    let cleaner = cleaner_of(&volume);
    let mut has_waited = false;
    for _ in 0..3 {
        let reason = CheckpointReason::Interval;
        volume.space.checkpoint(&mut volume.log.lock(), reason).expect("RAM");
        for _ in 0..10 {
            let mut round = cleaner.read_round(0);
            let garbage = garbage(&volume.superblock.layout(), &volume.metadata.read());
            cleaner.finish(&mut round, garbage, 0);
            let tree = &volume.metadata.read().tree;
            let (dirty, all) = (tree.dirty_count(), tree.node_count());
            assert!(dirty <= DIRTY_NODES_MAX, "{dirty} dirty nodes");
            assert!(all <= dirty + CLEAN_NODES_MAX, "{all} nodes, {dirty} dirty");
        }
        has_waited |= cleaner.waits_for_checkpoint();
    }
    assert!(has_waited && volume.counters().segments_cleaned > 1, "{:?}", volume.counters());
}

/// Regression: cleaning segments of metadata made any number of nodes dirty: ten times as many as
/// the cache may hold.
#[test]
fn cleaning_makes_no_more_nodes_dirty_than_the_cache_holds() {
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = new_volume_of(Arc::new(RamDevice::new(BLOCKS)), BLOCKS, options);
    fill_with_nodes(&volume);
    let cleaner = cleaner_of(&volume);
    let dirty_nodes = || volume.metadata.read().tree.dirty_count();
    for _ in 0..3 {
        let reason = CheckpointReason::Interval;
        volume.space.checkpoint(&mut volume.log.lock(), reason).expect("RAM");
        let before = dirty_nodes();
        for _ in 0..40 {
            let mut round = cleaner.read_round(0);
            let garbage = garbage(&volume.superblock.layout(), &volume.metadata.read());
            cleaner.finish(&mut round, garbage, 0);
        }
        let after = dirty_nodes();
        assert!(before + 100 < after && after <= DIRTY_NODES_MAX, "{before}, then {after}");
    }
    assert_eq!(volume.audit().expect("an audit"), []);
}

/// Time, in seconds, in which the volume must be at rest; before its start, the volume may settle.
const REST_SECS: std::ops::Range<i64> = 120..720;

/// Regression: while victims waited for a checkpoint, cleaning that gains nothing was not recorded as futile. A volume at
/// rest moved full segments for ever: 5,400 in ten minutes, 10 GiB.
#[test]
fn cleaning_ends_on_a_volume_at_rest() {
    let options = VolumeOptions { cache: 8 << 20, ..VolumeOptions::default() };
    let volume = new_with_large_segments(40, options);
    for no in 0..FILES / 2 {
        let ino = create(&volume, &no.to_string());
        write(&volume, ino, &[7; 1000]);
        volume.forget(ino, 1);
        if no % 400 == 0 {
            volume.sync_all().expect("RAM");
        }
    }
    let file = create(&volume, "f");
    for block in (0..6000).step_by(256) {
        put(&volume, file, block, 256, 1).expect("there is room");
        volume.sync_all().expect("RAM");
    }
    for no in (0..FILES / 2).step_by(4) {
        volume.unlink(ROOT_INO, no.to_string().as_bytes(), &CALLER).expect("the file is removed");
    }
    volume.sync_all().expect("RAM");
    let rest = |secs: std::ops::Range<i64>| {
        for secs in secs {
            let now = Timestamp { secs: NOW.secs + secs, ..NOW };
            while volume.work(now).expect("background work succeeds") == Work::More {}
        }
        volume.counters()
    };
    let filled = volume.counters().device_bytes_written;
    let before = rest(0..REST_SECS.start);
    let settling_mib = (before.device_bytes_written - filled) >> 20;
    assert!(settling_mib < 50, "{settling_mib} MiB to come to rest");
    let after = rest(REST_SECS);
    let cleaned = after.segments_cleaned - before.segments_cleaned;
    let bytes = after.device_bytes_written - before.device_bytes_written;
    assert!(cleaned < 8, "{cleaned} segments cleaned, {} MiB written", bytes >> 20);
}

/// Number of segments of a volume that does not score all of them for each victim.
const MANY_SEGMENTS: u64 = 1200;

/// The scores that the metadata keeps follow every death, seal and release of a mounted volume.
#[test]
fn the_victim_among_many_segments_is_that_of_a_full_scan() {
    let blocks = MANY_SEGMENTS * 32 + 64;
    let volume = new_volume_of(Arc::new(RamDevice::new(blocks)), blocks, VolumeOptions::default());
    let file = create(&volume, "f");
    let file_blocks = MANY_SEGMENTS * 32 / 4 * 3;
    for block in (0..file_blocks).step_by(64) {
        put(&volume, file, block, 64, 1).expect("there is room");
    }
    assert!(!volume.metadata.write().usage.take_changed().is_empty(), "changed segments are kept");
    let mut random = SmallRandom(1);
    let mut same = 0;
    for step in 0..600 {
        for _ in 0..32 {
            // Most writes go to an eighth of the file.
            let hot = if random.below(8) == 0 { file_blocks } else { file_blocks / 8 };
            put(&volume, file, random.below(hot), 1, 2).expect("overwriting needs no room");
        }
        volume.sync_all().expect("RAM");
        while volume.work(NOW).expect("RAM") == Work::More {}
        let mut metadata = volume.metadata.write();
        metadata.score_segments(32);
        let at = (32, metadata.usage.clock.now());
        let expected = full_scan(&*metadata.victim_policy, metadata.usage.entries(), at, |_| true);
        assert!(expected.is_some(), "step {step}");
        same += u32::from(metadata.best_victim(32, |_| true) == expected);
    }
    assert!(same >= 594, "{same} of 600 choices are those of a full scan");
    let cleaned = volume.counters().segments_cleaned;
    assert!(cleaned > 50, "{cleaned} segments cleaned");
}

/// Number of groups of the grouping policy in which each write moves a block up one group.
const DAC_GROUPS: u8 = crate::policy::GROUPS_MAX;

/// Returns a volume of `segments` large segments, `full` of which are full of the blocks of a file, and that file. The
/// volume has the policies `grouping` and `victim`.
fn with_full_segments(
    (full, segments): (u64, u64),
    (grouping, victim): (&str, &str),
) -> (Volume, u64) {
    let options = VolumeOptions {
        yield_cleaning: false,
        grouping: grouping.to_owned(),
        groups: (grouping == "dac").then_some(DAC_GROUPS),
        victim: Some(victim.to_owned()),
        ..VolumeOptions::default()
    };
    let volume = new_with_large_segments(segments, options);
    let file = create(&volume, "full");
    for block in (0..full * 500).step_by(250) {
        put(&volume, file, block, 250, 1).expect("there is room");
    }
    volume.sync_all().expect("RAM");
    (volume, file)
}

fn urgency_of(volume: &Volume) -> Urgency {
    urgency(&volume.superblock.layout(), &volume.metadata.read())
}

/// Does all background work that is due.
fn work(volume: &Volume) {
    while volume.work(NOW).expect("RAM") == Work::More {}
}

/// Regression: where old segments that are full had the best score, the background found no victim worth cleaning, although
/// others were half garbage. A volume that had all time for cleaning moved more blocks than users wrote. Or segments became
/// so few that the background chose the full ones, gained nothing, and gave up.
#[test]
fn the_background_cleans_garbage_beside_full_segments_of_a_higher_score() {
    [550, 580].into_iter().for_each(clean_beside_full_segments);
}

/// Overwrites `hot_extents` extents of a file beside full segments, and checks how much the cleaner moves.
fn clean_beside_full_segments(hot_extents: u64) {
    let (volume, _) = with_full_segments((90, 147), ("sfs", "cost-age"));
    let hot = create(&volume, "hot");
    let mut random = SmallRandom(1);
    let before = volume.counters();
    for step in 0..600 {
        for _ in 0..32 {
            put(&volume, hot, random.below(hot_extents) * 16, 16, 2).expect("there is room");
        }
        volume.sync_all().expect("RAM");
        work(&volume);
        assert!(urgency_of(&volume) < Urgency::Steady, "step {step}");
    }
    let after = volume.counters();
    let written = after.user_bytes_written - before.user_bytes_written;
    let moved = after.cleaning_bytes - before.cleaning_bytes;
    assert_eq!(after.stalls, 0);
    assert!(written / 8 < moved && moved < written / 2, "{moved} bytes moved, {written} written");
}

/// Regression: a choice that found nothing worth cleaning while enough segments were Clean kept a
/// volume that had become short of Clean segments from cleaning.
#[test]
fn victims_that_are_not_worthwhile_at_rest_are_cleaned_when_segments_are_short() {
    let (volume, file) = with_full_segments((130, 161), ("dac", "greedy"));
    for block in (0..130 * 500).step_by(500) {
        put(&volume, file, block, 12, 2).expect("there is room");
    }
    volume.sync_all().expect("RAM");
    // The open segment of each group holds room that is not Clean.
    let hot = create(&volume, "hot");
    for group in 0..u64::from(DAC_GROUPS) {
        let blocks = usize::from(DAC_GROUPS) - group as usize;
        put(&volume, hot, group, blocks, 2).expect("there is room");
        volume.sync_all().expect("RAM");
    }
    let new = create(&volume, "new");
    for block in (0..).step_by(250) {
        put(&volume, new, block, 250, 3).expect("there is room");
        volume.sync_all().expect("RAM");
        if urgency_of(&volume) >= Urgency::Steady {
            break;
        }
        work(&volume);
    }
    let before = volume.counters().segments_cleaned;
    work(&volume);
    let cleaned = volume.counters().segments_cleaned - before;
    assert!(cleaned > 0, "{before} segments cleaned before Clean segments were short, none after");
}

/// Regression: a commit that was short of Clean segments wrote blocks of all groups to one open segment, although Drained
/// segments only waited for a flush. Cleaning then moved 1.5 bytes for each byte that users wrote here, and moves 1.0 now.
#[test]
fn groups_share_no_segment_while_others_can_be_released() {
    let options = VolumeOptions { yield_cleaning: false, ..VolumeOptions::default() };
    let volume = new_with_large_segments(121, options);
    let file = create(&volume, "f");
    let file_blocks = 84 * 500;
    for block in (0..file_blocks).step_by(250) {
        put(&volume, file, block, 250, 1).expect("there is room");
    }
    volume.sync_all().expect("RAM");
    let mut random = SmallRandom(1);
    let before = volume.counters();
    for _ in 0..200 {
        for _ in 0..512 {
            // The smallest of four numbers is more likely to be small.
            let block = (0..4).map(|_| random.below(file_blocks)).min().expect("four numbers");
            put(&volume, file, block, 1, 2).expect("overwriting needs no room");
        }
        volume.sync_all().expect("RAM");
    }
    let after = volume.counters();
    let written = after.user_bytes_written - before.user_bytes_written;
    let moved = after.cleaning_bytes - before.cleaning_bytes;
    assert!(moved < written / 10 * 12, "{moved} bytes moved, {written} written");
}

/// Returns a volume on `device` every segment of which is half garbage, the file of the live blocks, and its number of
/// extents of 32 blocks.
fn with_half_garbage(device: Arc<dyn Device>, on_error: ErrorReaction) -> (Volume, u64, u64) {
    let options = VolumeOptions { yield_cleaning: false, on_error, ..VolumeOptions::default() };
    let volume = large_segments_on(device, options);
    let (kept, removed) = (create(&volume, "kept"), create(&volume, "removed"));
    let mut extents = 0;
    while volume.space().available_blocks > 3000 {
        for file in [kept, removed] {
            put(&volume, file, extents * 32, 32, extents as u8).expect("there is room");
        }
        extents += 1;
        if extents % 4 == 0 {
            volume.sync_all().expect("RAM");
        }
    }
    volume.sync_all().expect("RAM");
    volume.unlink(ROOT_INO, b"removed", &CALLER).expect("removed");
    volume.forget(removed, 2);
    while volume.space.delete_orphan_step().expect("RAM") {}
    volume.sync_all().expect("RAM");
    (volume, kept, extents)
}

/// Regression: each part of a round put only its own blocks in order, so that neighbours stayed apart.
#[test]
fn a_round_that_is_committed_in_parts_joins_neighbours() {
    let volume = new_with_large_segments(60, VolumeOptions::default());
    let (kept, removed) = (create(&volume, "kept"), create(&volume, "removed"));
    for no in 0..2000 {
        // 100 even blocks, then the odd ones between them.
        let block = no / 200 * 200 + no % 100 * 2 + no / 100 % 2;
        put(&volume, kept, block, 1, 1).expect("there is room");
        put(&volume, removed, block, 1, 2).expect("there is room");
        if no % 50 == 49 {
            volume.sync_all().expect("RAM");
        }
    }
    volume.sync_all().expect("RAM");
    volume.unlink(ROOT_INO, b"removed", &CALLER).expect("removed");
    volume.forget(removed, 2);
    while volume.space.delete_orphan_step().expect("RAM") {}
    volume.sync_all().expect("RAM");
    let runs = || volume.file_blocks(kept, 0, 0).expect("a file").runs.len();
    let before = runs();
    volume.space.bound_batches(64);
    let cleaner = cleaner_of(&volume);
    let mut round = CleaningRound::default();
    while round.read_victims() < 8 && cleaner.read_step(&mut round) != ReadStep::RoundComplete {}
    let moves = round.moves().len();
    volume.space.commit_in_parts(&mut round, &mut 0).expect("there is room");
    assert!(runs() + moves / 2 < before, "{moves} moves, {before} and {} runs", runs());
}

fn faulty_device() -> Arc<FaultyDevice<RamDevice>> {
    Arc::new(FaultyDevice::new(RamDevice::new(161 * LARGE_SEGMENT_BLOCKS)))
}

/// Does the background work that is possible while all reads fail.
fn work_while_reads_fail(volume: &Volume, faulty: &FaultyDevice<RamDevice>) {
    faulty.fail_all(Operation::Read, true);
    while volume.work(NOW).is_ok_and(|work| work == Work::More {}) {}
    faulty.heal();
}

/// Regression: each segment that the device failed to read for a moment was excluded from cleaning until the next mount, so
/// that users were refused although two fifths of the volume were free.
#[test]
fn a_moment_of_read_errors_costs_no_space() {
    let faulty = faulty_device();
    let (volume, _, extents) = with_half_garbage(faulty.clone(), ErrorReaction::Continue);
    let new = create(&volume, "new");
    let mut has_failed = false;
    for extent in 0..extents - 100 {
        put(&volume, new, extent * 32, 32, 3).expect("half of the volume was freed");
        if extent % 4 == 3 {
            volume.sync_all().expect("half of the volume was freed");
        }
        if !has_failed && urgency_of(&volume) != Urgency::None {
            has_failed = true;
            let before = volume.counters().segments_cleaned;
            work_while_reads_fail(&volume, &faulty);
            let cleaned = volume.counters().segments_cleaned - before;
            assert_eq!(cleaned, 0, "no segment could be read");
        }
        work(&volume);
    }
    assert!(has_failed, "cleaning was due");
    volume.close().expect("the data has room");
}

/// Segments that the device failed to read are tried again before a writer is refused.
#[test]
fn segments_that_failed_are_tried_before_a_writer_is_refused() {
    let faulty = faulty_device();
    let (volume, ..) = with_half_garbage(faulty.clone(), ErrorReaction::Continue);
    let new = create(&volume, "new");
    for extent in 0.. {
        if urgency_of(&volume) != Urgency::None {
            break;
        }
        put(&volume, new, extent * 32, 32, 3).expect("there is room");
        volume.sync_all().expect("RAM");
    }
    work_while_reads_fail(&volume, &faulty);
    while volume.space.reclaim(&mut volume.log.lock()).expect("RAM") {}
    let garbage = garbage(&volume.superblock.layout(), &volume.metadata.read()).blocks;
    assert!(garbage < 16 * LARGE_SEGMENT_BLOCKS, "{garbage} blocks of garbage are left");
}

/// Regression: the cleaner counted a block that the device failed to read as damaged, and writing ended with
/// `errors=remount-ro`.
#[test]
fn a_block_that_the_device_fails_to_read_is_not_damaged() {
    let faulty = faulty_device();
    let (volume, kept, _) = with_half_garbage(faulty.clone(), ErrorReaction::RemountReadOnly);
    let mapping = volume.metadata.read_txn(|txn| txn.mapping(kept, 40)).expect("RAM");
    let address = mapping.expect("the block was written").address;
    faulty.fail_reads(address..address + 1);
    while volume.space.reclaim(&mut volume.log.lock()).expect("other segments are readable") {}
    faulty.heal();
    assert!(!volume.health.has_stopped(), "no block is damaged");
    volume.sync_all().expect("RAM");
}

/// Regression: a commit that was short of Clean segments while a worthwhile checkpoint could release some moved
/// the blocks of other segments first.
#[test]
fn a_commit_releases_segments_before_it_cleans_others() {
    let blocks = 46 * 32 + 64;
    let options = VolumeOptions { write_buffer: 4 << 20, ..VolumeOptions::default() };
    let volume = new_volume_of(Arc::new(RamDevice::new(blocks)), blocks, options);
    let file = create(&volume, "f");
    let file_blocks = volume.space().available_blocks * 7 / 10;
    put(&volume, file, 0, file_blocks as usize, 1).expect("there is room");
    volume.sync_all().expect("RAM");
    let mut random = SmallRandom(31);
    let mut releases = 0;
    for step in 0..2000 {
        for _ in 0..8 {
            put(&volume, file, random.below(file_blocks), 1, 2).expect("overwriting needs no room");
        }
        let before = volume.counters();
        let merging = volume.space.merging();
        volume.sync_all().expect("RAM");
        let after = volume.counters();
        if merging == Merging::Never && after.stalls == before.stalls + 1 {
            releases += 1;
            assert_eq!(after.segments_cleaned, before.segments_cleaned, "step {step}");
        }
    }
    assert!(releases > 20, "{releases} commits released segments");
}

/// Pseudo-random numbers (xorshift64).
struct SmallRandom(u64);

impl SmallRandom {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
