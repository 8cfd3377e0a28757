//! Tests of the steps of a thread for the log, and of the room that writes wait for.

use std::sync::Arc;
use std::time::Duration;

use sfs_device::RamDevice;

use crate::Volume;
use crate::fixture::{BLOCKS, NOW, create, new_volume, put};
use crate::format::{Corruption, CorruptionKind, Structure, Timestamp};
use crate::request::{AccessTimePolicy, Caller, VolumeOptions, Work, WriteMode};

const BUFFER_BLOCKS: usize = 256;
const MIB: usize = 1 << 20;
const AT_ONCE: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(60);

fn volume_with_thread() -> Volume {
    let device = Arc::new(RamDevice::new(BLOCKS));
    drop(new_volume(device.clone()));
    let write_buffer = BUFFER_BLOCKS * 4096;
    let options = VolumeOptions { write_buffer, has_log_thread: true, ..VolumeOptions::default() };
    Volume::open(device, options, NOW).expect("the volume opens")
}

fn fill(volume: &Volume, file: u64, blocks: usize) {
    put(volume, file, 0, blocks, 1).expect("the device has space");
}

/// Regression: a writer wrote the batch itself, while it held the thread that served it.
#[test]
fn a_writer_leaves_write_back_to_the_thread() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    let before = volume.counters().device_bytes_written;
    fill(&volume, file, BUFFER_BLOCKS);
    assert_eq!(volume.counters().device_bytes_written, before, "the writer wrote a batch");
    assert!(volume.is_log_work_due() && !volume.has_write_room(file, MIB, AT_ONCE));
    while volume.is_log_work_due() {
        assert!(volume.log_step().expect("RAM does not fail"));
    }
    assert!(volume.has_write_room(file, MIB, AT_ONCE));
    assert!(volume.counters().device_bytes_written > before);
}

#[test]
fn a_file_within_its_share_does_not_wait_for_a_large_one() {
    let volume = volume_with_thread();
    let (large, small) = (create(&volume, "large"), create(&volume, "small"));
    fill(&volume, large, BUFFER_BLOCKS);
    assert!(!volume.has_write_room(large, 4096, AT_ONCE));
    assert!(volume.has_write_room(small, 4096, AT_ONCE));
    assert!(!volume.has_write_room(small, MIB, AT_ONCE), "more than a share");
    assert!(volume.has_write_room(large, 4096, LONG), "it has waited long");
    fill(&volume, small, BUFFER_BLOCKS / 8);
    for waited in [AT_ONCE, LONG] {
        assert!(!volume.has_write_room(small, 4096, waited), "9/8 are used");
    }
}

/// Room is not given out twice: the data that a write with room has put into the buffer counts for the next.
#[test]
fn the_buffer_never_takes_more_than_its_marks() {
    let volume = volume_with_thread();
    let files: Vec<u64> = (0..40).map(|n| create(&volume, &format!("file-{n}"))).collect();
    let mut accepted = 0;
    for round in 0..BUFFER_BLOCKS {
        for file in &files {
            if volume.has_write_room(*file, 4096, LONG) {
                put(&volume, *file, round as u64, 1, 1).expect("the device has space");
                accepted += 1;
            }
        }
    }
    let most = BUFFER_BLOCKS + BUFFER_BLOCKS / 8;
    assert!((BUFFER_BLOCKS / 2..=most).contains(&accepted), "{accepted} blocks of {BUFFER_BLOCKS}");
}

#[test]
fn a_step_writes_no_more_than_the_bound() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    fill(&volume, file, BUFFER_BLOCKS);
    volume.bound_batches(8);
    let before = volume.counters().device_bytes_written;
    assert!(volume.log_step().expect("RAM does not fail"));
    let written = volume.counters().device_bytes_written - before;
    assert!((8 * 4096..=12 * 4096).contains(&written), "{written} bytes");
}

/// The commit of everything goes in bounded batches as well, and leaves nothing behind.
#[test]
fn a_sync_of_everything_goes_in_parts() {
    let all = |volume: &Volume| volume.sync_all().expect("RAM does not fail");
    goes_in_parts(volume_with_thread(), all);
}

/// A sync of another file waits for one batch of the background's commit, and not for all.
#[test]
fn the_commit_of_the_background_goes_in_parts() {
    let all = |volume: &Volume| {
        volume.work(NOW).expect("RAM does not fail");
        let later = Timestamp { secs: NOW.secs + 6, ..NOW };
        while volume.work(later).expect("RAM does not fail") == Work::More {}
    };
    goes_in_parts(volume_with_thread(), all);
}

fn goes_in_parts(volume: Volume, commit_all: impl Fn(&Volume)) {
    let file = create(&volume, "file");
    fill(&volume, file, BUFFER_BLOCKS / 2);
    volume.bound_batches(16);
    let before = volume.counters();
    commit_all(&volume);
    let after = volume.counters();
    assert_eq!(after.commits - before.commits, 1, "one flush");
    assert_eq!(after.data_bytes - before.data_bytes, (BUFFER_BLOCKS / 2 * 4096) as u64);
    assert!(after.summary_bytes - before.summary_bytes >= 7 * 4096, "several batches");
    volume.sync_all().expect("RAM does not fail");
    assert_eq!(volume.counters().commits, after.commits, "nothing is left");
}

#[test]
fn a_volume_that_has_stopped_lets_no_write_wait() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    fill(&volume, file, BUFFER_BLOCKS);
    volume.shut_down();
    assert!(volume.has_write_room(file, MIB, AT_ONCE));
    assert!(volume.log_step().is_err() && !volume.is_log_work_due());
}

/// One commit serves the announced syncs: later ones find nothing to write or flush.
#[test]
fn announced_syncs_share_a_commit() {
    let volume = volume_with_thread();
    let files: Vec<u64> = (0..8).map(|n| create(&volume, &format!("file-{n}"))).collect();
    let stream = create(&volume, "stream");
    let announced = files.iter().map(|file| {
        fill(&volume, *file, 1);
        volume.announce_sync(*file)
    });
    let tickets: Vec<u64> = announced.collect();
    let before = volume.counters();
    for (file, ticket) in files.iter().zip(tickets) {
        // A stream goes on beside the syncs, so that the log is never without something to flush.
        fill(&volume, stream, 4);
        volume.sync_announced_after(*file, (ticket, false), &mut 0).expect("RAM does not fail");
    }
    let after = volume.counters();
    assert_eq!(after.commits, before.commits + 1);
    assert_eq!(after.data_bytes - before.data_bytes, 8 * 4096, "the stream was not synced");
    fill(&volume, files[0], 1);
    volume.sync_file(files[0]).expect("RAM does not fail");
    assert!(volume.counters().commits > after.commits, "a later sync has a generation of its own");
}

/// A sync that no other has served writes what the file has then, and a served one writes nothing.
#[test]
fn an_announced_sync_includes_what_is_changed_before_its_answer() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    fill(&volume, file, 1);
    let ticket = volume.announce_sync(file);
    volume.sync_file(file).expect("RAM does not fail");
    let later = volume.announce_sync(file);
    assert!(later > ticket);
    fill(&volume, file, 2);
    volume.sync_announced_after(file, (later, true), &mut 0).expect("RAM does not fail");
    let before = volume.counters().commits;
    volume.sync_announced_after(file, (later, false), &mut 0).expect("RAM does not fail");
    volume.sync_data_after(file, &mut 0).expect("RAM does not fail");
    assert_eq!(volume.counters().commits, before, "everything was durable");
}

/// A sync of everything serves those that were announced before it began, and no later one.
#[test]
fn one_sync_of_everything_serves_all_that_wait() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    let tickets = [volume.announce_sync_all(), volume.announce_sync_all()];
    let mut commits = vec![volume.counters().commits];
    for ticket in tickets {
        fill(&volume, file, 1);
        volume.sync_all_announced(ticket).expect("RAM does not fail");
        commits.push(volume.counters().commits);
    }
    assert_eq!([commits[1] - commits[0], commits[2] - commits[1]], [1, 0]);
    let later = volume.announce_sync_all();
    volume.sync_all_announced(later).expect("RAM does not fail");
    assert_eq!(volume.counters().commits, commits[2] + 1);
}

/// Regression: a sync that waited while data was lost succeeded, if another sync had been told of the loss first.
#[test]
fn a_sync_that_waits_while_data_is_lost_is_told() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    let lose = || {
        fill(&volume, file, 1);
        let damage = Corruption::in_block(Structure::Node, 7, CorruptionKind::Checksum);
        volume.dirty.lose_file(&volume.inodes.get(file), damage.into());
    };
    let waiting = volume.announce_sync_all();
    lose();
    volume.sync_all().expect_err("the first sync after the loss");
    let later = volume.announce_sync_all();
    volume.sync_all_announced(waiting).expect_err("it waited while data was lost");
    volume.sync_all_announced(later).expect("its data is durable");

    let [waiting, other] = [volume.announce_sync_all(), volume.announce_sync_all()];
    lose();
    volume.sync_all().expect_err("the first sync after the loss");
    volume.sync_all().expect("the loss was reported");
    for ticket in [waiting, other] {
        volume.sync_all_announced(ticket).expect_err("served, but it waited while data was lost");
    }
    volume.sync_all_announced(volume.announce_sync_all()).expect("nothing is lost");

    let (ticket, mut losses) = (volume.announce_sync(file), volume.losses_of(file));
    lose();
    volume.sync_file(file).expect_err("the first sync after the loss");
    volume.sync_announced_after(file, (ticket, false), &mut losses).expect_err("it waited, too");
    volume.sync_announced_after(file, (ticket, false), &mut losses).expect("it was told");
}

/// Regression: an announced sync succeeded without the time of access, if another sync had served its ticket before the background put
/// the time into the tree.
#[test]
fn an_announced_sync_has_the_time_of_access() {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let volume = new_volume(device.clone());
    volume.set_access_times(AccessTimePolicy::Strict);
    let (file, other) = (create(&volume, "file"), create(&volume, "other"));
    fill(&volume, file, 1);
    fill(&volume, other, 1);
    volume.sync_all().expect("RAM does not fail");
    let read = Timestamp { secs: NOW.secs + 5, ..NOW };
    assert!(volume.note_access(file, read).expect("a file"));
    assert!(!volume.is_sync_announced());
    let ticket = volume.announce_sync(file);
    assert!(volume.is_sync_announced());
    volume.sync_file(other).expect("RAM does not fail");
    volume.write_access_times().expect("RAM does not fail");
    volume.sync_announced_after(file, (ticket, false), &mut 0).expect("RAM does not fail");
    let recovered = Volume::open(Arc::new(device.snapshot()), VolumeOptions::default(), NOW);
    let inode = recovered.expect("the volume opens").attributes(file).expect("a file");
    assert_eq!(inode.atime, read);
}

/// Regression: a copy took twice the write buffer before it waited for the log.
#[test]
fn a_copy_stops_where_the_buffer_has_no_room() {
    let volume = volume_with_thread();
    let (source, target) = (create(&volume, "source"), create(&volume, "target"));
    for part in 0..2 {
        put(&volume, source, part * BUFFER_BLOCKS as u64, BUFFER_BLOCKS, 1).expect("space");
        volume.sync_all().expect("RAM does not fail");
    }
    let len = 2 * MIB as u64;
    let mut copied = 0;
    let mut calls = 0;
    while copied < len {
        let before = volume.counters().device_bytes_written;
        let mode = WriteMode::default();
        let (from, to) = ((source, copied), (target, copied));
        let caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };
        copied += volume.copy_range(from, to, len - copied, mode, &caller).expect("a copy");
        assert_eq!(volume.counters().device_bytes_written, before, "the copy wrote a batch");
        calls += 1;
        while volume.is_log_work_due() {
            assert!(volume.log_step().expect("RAM does not fail"));
        }
    }
    assert_eq!((copied, calls), (len, 2));
}

/// Beyond the last mark a writer writes one batch at a time, until the buffer has room again.
#[test]
fn a_writer_beyond_the_last_mark_writes_bounded_batches() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    volume.bound_batches(16);
    let before = volume.counters().data_bytes;
    let mut taken = 0;
    while volume.counters().data_bytes == before {
        put(&volume, file, taken, 1, 1).expect("space");
        taken += 1;
    }
    let written = volume.counters().data_bytes - before;
    assert!(taken as usize > BUFFER_BLOCKS * 3 / 2, "{taken} blocks were taken");
    assert!((4096..=32 * 4096).contains(&written), "{written} bytes");
}

/// A change of metadata leaves the delta to the thread, until twice as many changes wait.
#[test]
fn changes_of_metadata_leave_the_log_to_the_thread() {
    let volume = volume_with_thread();
    let before = volume.counters().device_bytes_written;
    let mut made = 0;
    while !volume.is_log_work_due() {
        create(&volume, &format!("name-{made}"));
        made += 1;
    }
    assert!(made > 1000, "{made}");
    assert_eq!(volume.counters().device_bytes_written, before, "a change wrote a batch");
    assert!(volume.log_step().expect("RAM does not fail"));
    assert!(volume.counters().device_bytes_written > before);
    assert!(!volume.is_log_work_due());
}

/// Without dirty data a step writes nothing: a frozen volume stays as it is.
#[test]
fn a_step_leaves_a_frozen_volume_alone() {
    let volume = volume_with_thread();
    let file = create(&volume, "file");
    fill(&volume, file, BUFFER_BLOCKS);
    volume.freeze().expect("the volume is frozen");
    let before = volume.counters().device_bytes_written;
    assert!(!volume.is_log_work_due());
    volume.log_step().expect("RAM does not fail");
    assert_eq!(volume.counters().device_bytes_written, before);
    volume.thaw().expect("the volume is thawed");
    while volume.work(NOW).expect("RAM does not fail") == Work::More {}
}
