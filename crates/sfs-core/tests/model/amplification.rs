//! Metadata that is written for an amount of data (docs/DESIGN.md).

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_core::request::{Counters, VolumeOptions, Work, WriteMode};
use sfs_device::RamDevice;

use crate::fixture::{FILE, after, caller, open, ram, settle};
use crate::random::SplitMix64;

/// Returns the bytes of metadata and summaries per byte of data between two readings of the counters.
fn overhead(before: &Counters, now: &Counters) -> f64 {
    let metadata = |c: &Counters| c.metadata_bytes + c.summary_bytes;
    let data = now.data_bytes - before.data_bytes;
    (metadata(now) - metadata(before)) as f64 / data as f64
}

fn write(volume: &Volume, ino: u64, offset: u64, bytes: &[u8]) {
    volume.write(ino, offset, bytes, WriteMode::default(), &caller()).expect("a write");
}

/// "Metadata written: <= 2% of data for sequential writing, <= 10% for 4 KiB random overwriting."
#[test]
fn metadata_overhead_is_within_its_limits() {
    const LEN: u64 = 256 << 20;
    let device: Arc<RamDevice> = Arc::new(ram(640 << 20, 1024));
    let volume = open(device, VolumeOptions::default());
    let ino = volume.make_node(ROOT_INO, b"f", FILE, 0, &caller()).expect("a file").ino;
    let before = volume.counters();
    let bytes = vec![5; 1 << 20];
    let mut millis = 0;
    for offset in (0..LEN).step_by(bytes.len()) {
        write(&volume, ino, offset, &bytes);
        // The rate is about 50 MB/s.
        millis += 20;
        settle(&volume, after(millis)).expect("background work succeeds");
    }
    volume.sync_all().expect("a sync");
    settle(&volume, after(millis + 310_000)).expect("background work succeeds");
    let written = volume.counters();
    assert!(written.checkpoints > before.checkpoints, "the measurement contains a checkpoint");
    let share = overhead(&before, &written);
    assert!(share <= 0.02, "sequential writing: {:.2}%", 100.0 * share);

    let mut random = SplitMix64::new(1);
    millis += 310_000;
    for _ in 0..40_000 {
        let block = random.below(LEN / 4096);
        write(&volume, ino, block * 4096, &bytes[..4096]);
        // The rate is about 2,000 writes a second.
        if random.one_in(20) {
            millis += 10;
            settle(&volume, after(millis)).expect("background work succeeds");
        }
    }
    volume.sync_all().expect("a sync");
    settle(&volume, after(millis + 310_000)).expect("background work succeeds");
    let overwritten = volume.counters();
    assert!(overwritten.checkpoints > written.checkpoints, "the measurement contains a checkpoint");
    let share = overhead(&written, &overwritten);
    assert!(share <= 0.10, "random overwriting: {:.2}%", 100.0 * share);
}

/// Appends 200 bytes every `gap_ms` for an hour, and does background work when the volume asks for
/// it. Returns the number of bytes written to the device, and the number of commits.
fn log_for_an_hour(gap_ms: u64, commits_soon: bool) -> (u64, u64) {
    let options = VolumeOptions { commits_soon, ..VolumeOptions::default() };
    let volume = open(Arc::new(ram(256 << 20, 1024)), options);
    let ino = volume.make_node(ROOT_INO, b"log", FILE, 0, &caller()).expect("a file").ino;
    let (mut millis, mut next_line, mut len) = (0, 0, 0);
    while millis < 3_600_000 {
        if millis >= next_line {
            write(&volume, ino, len, &[7; 200]);
            len += 200;
            next_line += gap_ms;
        }
        let pause = loop {
            match volume.work(after(millis)).expect("RAM does not fail") {
                Work::More => {}
                Work::Idle(pause) => break pause.as_millis() as u64,
            }
        };
        millis = next_line.min(millis + pause.max(1));
    }
    let counters = volume.counters();
    (counters.device_bytes_written, counters.commits)
}

/// Commits after short pauses cost a program that writes a log at most 2 % more written bytes, at
/// any interval between the writes.
#[test]
fn commits_after_short_pauses_cost_little() {
    for gap_ms in [30, 100, 300, 700, 3000, 10_000] {
        let (bytes, commits) = log_for_an_hour(gap_ms, false);
        let (soon_bytes, soon_commits) = log_for_an_hour(gap_ms, true);
        println!("{gap_ms} ms: {bytes} bytes, {commits} commits; {soon_bytes}, {soon_commits}");
        assert!(
            soon_bytes * 100 <= bytes * 102,
            "{gap_ms} ms: {bytes} bytes in {commits} commits, {soon_bytes} in {soon_commits}"
        );
    }
}

/// Number of blocks of the file that the mixed load overwrites.
const OVERWRITTEN_BLOCKS: u64 = 160 << 20 >> 12;

/// Number of files that the mixed load makes before it deletes them.
const CYCLE_FILES: u64 = 20_000;

/// Overwrites a file at random while files are made and deleted, on a volume of 512 MiB that is
/// full of dead blocks, with a cache and a write buffer of `budget_bytes` each. Returns the number
/// of bytes that users wrote, and the number written to the device.
fn mixed_load(budget_bytes: usize) -> (u64, u64) {
    let options =
        VolumeOptions { cache: budget_bytes, write_buffer: budget_bytes, ..Default::default() };
    let volume = open(Arc::new(ram(512 << 20, 1024)), options);
    let ino = volume.make_node(ROOT_INO, b"large", FILE, 0, &caller()).expect("a file").ino;
    let bytes = vec![5; 1 << 20];
    for offset in (0..OVERWRITTEN_BLOCKS * 4096).step_by(bytes.len()) {
        write(&volume, ino, offset, &bytes);
    }
    let (mut random, mut millis, mut before) = (SplitMix64::new(1), 0, volume.counters());
    for step in 0..7 * CYCLE_FILES {
        if step == CYCLE_FILES {
            before = volume.counters();
        }
        for _ in 0..4 {
            let block = random.below(OVERWRITTEN_BLOCKS);
            write(&volume, ino, block * 4096, &bytes[..4096]);
        }
        let name = |step: u64| format!("{}", step % CYCLE_FILES);
        if step % (2 * CYCLE_FILES) < CYCLE_FILES {
            let made = volume.make_node(ROOT_INO, name(step).as_bytes(), FILE, 0, &caller());
            let made = made.expect("a file").ino;
            write(&volume, made, 0, &bytes[..1000]);
            volume.forget(made, 1);
        } else {
            volume.unlink(ROOT_INO, name(step).as_bytes(), &caller()).expect("the file is there");
        }
        if step % 10 == 0 {
            millis += 5;
            settle(&volume, after(millis)).expect("background work succeeds");
        }
    }
    volume.sync_all().expect("a sync");
    let now = volume.counters();
    let since = |of: fn(&Counters) -> u64| of(&now) - of(&before);
    (since(|c| c.user_bytes_written), since(|c| c.device_bytes_written))
}

/// Small memory budgets must not cost much flash wear. `cargo xtask test --long` runs this test.
#[test]
#[ignore = "takes minutes"]
fn a_mixed_load_writes_little_more_with_small_budgets() {
    for (mib, most) in [(2, 2.3), (8, 1.3), (64, 1.1)] {
        let (user, device) = mixed_load(mib << 20);
        let amplification = device as f64 / user as f64;
        println!("{mib} MiB: {user} bytes of users, {device} written, {amplification:.4}");
        assert!(amplification <= most, "{mib} MiB: {amplification:.4}");
    }
}
