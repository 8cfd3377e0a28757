//! The drive against its data sheet and the laws of its mechanics, in virtual time.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use sfs_device::{BLOCK_SIZE, Block, Device, FaultKind, FaultRule, Operations, Stream};
use sfs_hdd::{CommandQueue, DriveProfile, HardDrive, HddDevice};
use sfs_ssd::{HostRequest, ModelClock, ModelDevice, RequestKind, Ssd, SsdProfile, TimeMode};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn drive(bytes: u64) -> HardDrive {
    HardDrive::new(DriveProfile::by_name("deskstar").expect("a profile").with_capacity(bytes))
}

/// Returns the `no`th of a row of numbers that look random, below `bound`.
fn random(no: u64, bound: u64) -> u64 {
    let mixed = (no + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29) % bound
}

fn requests(kind: RequestKind, count: u64, len: u64, capacity: u64) -> Vec<HostRequest> {
    let at = |no| random(no, capacity / len) * len;
    (0..count).map(|no| HostRequest::new(kind, at(no), len)).collect()
}

/// Serves requests one after the other, and returns the time of all in seconds.
fn seconds(drive: &mut HardDrive, requests: impl IntoIterator<Item = HostRequest>) -> f64 {
    let began_ns = drive.idle_ns();
    let mut now_ns = began_ns;
    for request in requests {
        now_ns = drive.serve(&request, now_ns).ended_ns;
    }
    (now_ns - began_ns) as f64 / 1e9
}

fn run(kind: RequestKind, from: u64, count: u64, len: u64) -> impl Iterator<Item = HostRequest> {
    (0..count).map(move |no| HostRequest::new(kind, from + no * len, len))
}

fn mb_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds
}

#[test]
fn reads_and_writes_in_order_have_the_rates_of_the_data_sheet() {
    let sheet = DriveProfile::by_name("deskstar").expect("a profile").data_sheet;
    let last_zone = |drive: &HardDrive| drive.geometry().zone_start(29) * 512 / 4096 * 4096 + 4096;
    for (kind, tolerance) in [(RequestKind::Read, 0.02), (RequestKind::Write, 0.05)] {
        let mut outer = drive(500_000_000_000);
        let mut inner = drive(500_000_000_000);
        let from = last_zone(&inner);
        let count = 2048;
        for (drive, from, stated) in
            [(&mut outer, 0, sheet.outer_mb_per_s), (&mut inner, from, sheet.inner_mb_per_s)]
        {
            let seconds = seconds(drive, run(kind, from, count, 128 << 10));
            let rate = mb_per_s(count * (128 << 10), seconds);
            assert!((rate / stated - 1.0).abs() < tolerance, "{kind:?}: {rate} of {stated} MB/s");
        }
    }
}

#[test]
fn large_writes_lose_no_revolution_for_each_command() {
    let sheet = DriveProfile::by_name("deskstar").expect("a profile").data_sheet;
    let mut drive = drive(500_000_000_000);
    let mut took = seconds(&mut drive, run(RequestKind::Write, 0, 256, MIB));
    took += seconds(&mut drive, [HostRequest::new(RequestKind::Flush, 0, 0)]);
    let rate = mb_per_s(256 * MIB, took);
    assert!((rate / sheet.outer_mb_per_s - 1.0).abs() < 0.02, "{rate} MB/s");
    assert!(drive.counters().rotation_ns < 2 * 8_333_333, "{:?}", drive.counters());
}

#[test]
fn random_reads_take_a_seek_and_half_a_turn() {
    let mut drive = drive(500_000_000_000);
    let capacity = drive.capacity();
    let sheet = drive.profile().data_sheet;
    let took = seconds(&mut drive, requests(RequestKind::Read, 4096, 512, capacity));
    let stated = sheet.random_4096_s / sheet.typical;
    assert!((took / stated - 1.0).abs() < 0.02, "{took} s of {stated} s");
    let turns = drive.counters().rotation_ns as f64 / 4096.0 / 8_333_333.0;
    assert!((turns - 0.5).abs() < 0.02, "{turns} turns");
}

#[test]
fn more_waiting_reads_make_shorter_ways_and_none_starves() {
    let mut last = 0.0;
    for depth in [1, 4, 16, 32] {
        let mut drive = drive(100 * GIB);
        let capacity = drive.capacity();
        let queue = CommandQueue::new(depth);
        let mut longest_ns = 0;
        let ended_ns = queue.run(
            &mut drive,
            0,
            requests(RequestKind::Read, 2000, 4096, capacity),
            |_, done| {
                longest_ns = longest_ns.max(done.response_ns());
            },
        );
        let per_s = 2000.0 / (ended_ns as f64 / 1e9);
        assert!(per_s > last * 1.08, "depth {depth}: {per_s} reads/s after {last}");
        assert!(longest_ns < queue.wait_max_ns + 32 * 24_000_000, "depth {depth}: {longest_ns}");
        last = per_s;
    }
    assert!((140.0..260.0).contains(&last), "{last} reads/s at a depth of 32");
}

#[test]
fn a_write_ends_in_the_cache_and_a_flush_empties_it() {
    let mut cached = drive(10 * GIB);
    let capacity = cached.capacity();
    let writes = || requests(RequestKind::Write, 100, 4096, capacity);
    let quick = seconds(&mut cached, writes());
    assert!(quick < 0.1, "{quick} s");
    assert!(cached.cached_bytes() > 50 * 4096, "{}", cached.cached_bytes());
    let flushed = seconds(&mut cached, [HostRequest::new(RequestKind::Flush, 0, 0)]);
    assert_eq!(cached.cached_bytes(), 0);

    let profile = cached.profile().clone().with_write_cache(0);
    let mut direct = HardDrive::new(profile);
    let slow = seconds(&mut direct, writes());
    assert!(slow > 1.0 && flushed < slow, "{slow} s one by one, {flushed} s in the drive's order");
    // An idle drive writes back by itself.
    let mut idle = drive(10 * GIB);
    seconds(&mut idle, writes());
    idle.serve(&HostRequest::new(RequestKind::Read, 0, 4096), 60_000_000_000);
    assert_eq!(idle.cached_bytes(), 0);
}

#[test]
fn what_was_read_ahead_or_just_written_needs_no_seek() {
    let mut drive = drive(10 * GIB);
    let read = |at| HostRequest::new(RequestKind::Read, at, 4096);
    let first = drive.serve(&read(64 * MIB), 0);
    assert!(first.service_ns() > 1_000_000);
    let next = drive.serve(&read(64 * MIB + 4096), first.ended_ns + 5_000_000);
    assert!(next.service_ns() < 500_000, "{next:?}");
    let far = drive.serve(&read(9 * GIB), next.ended_ns);
    assert!(far.service_ns() > 2_000_000, "{far:?}");
    let written = drive.serve(&HostRequest::new(RequestKind::Write, 5 * GIB, 4096), far.ended_ns);
    let again = drive.serve(&read(5 * GIB), written.ended_ns);
    assert!(again.service_ns() < 500_000, "{again:?}");
    assert_eq!(drive.counters().buffer_hits, 2);
}

#[test]
fn the_same_requests_take_the_same_time_in_every_run() {
    let time = || {
        let mut drive = drive(GIB);
        let capacity = drive.capacity();
        seconds(&mut drive, requests(RequestKind::Write, 5000, 8192, capacity));
        (drive.idle_ns(), *drive.counters())
    };
    assert_eq!(time(), time());
}

fn blocks(value: u8, count: usize) -> Vec<Block> {
    vec![Block([value; BLOCK_SIZE]); count]
}

#[test]
fn waiting_requests_are_reordered_in_real_time() {
    let device = Arc::new(HddDevice::with_clock(drive(GIB), ModelClock::new(TimeMode::RealTime)));
    assert!(device.serves_together());
    let capacity = device.geometry().block_count;
    let began = Instant::now();
    let threads: Vec<_> = (0..8)
        .map(|thread_no| {
            let device = device.clone();
            thread::spawn(move || {
                for no in 0..8 {
                    let address = random(thread_no * 8 + no, capacity);
                    device.read(address, &mut blocks(0, 1)).expect("read");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let took = began.elapsed().as_secs_f64();
    // One at a time would take 64 * 12.8 ms; the requests cannot end before the model does.
    let modelled = device.with_model(|drive| drive.free_ns()) as f64 / 1e9;
    assert!(modelled < 0.85 * 64.0 * 0.0128, "{modelled} s");
    assert!(took >= modelled, "{took} s of {modelled} s");
}

#[test]
fn two_devices_share_a_clock() {
    let clock = ModelClock::new(TimeMode::Virtual);
    let profile = SsdProfile::by_name("ssd-m").expect("a profile").with_capacity(256 * MIB);
    let ssd = ModelDevice::with_clock(Ssd::new(&profile.config()).expect("an SSD"), clock.clone());
    let hdd = HddDevice::with_clock(drive(GIB), clock.clone());
    ssd.write(0, &[&blocks(1, 8)], Stream(0)).expect("written");
    let ssd_ns = clock.now_ns();
    let mut found = blocks(0, 1);
    hdd.read(77, &mut found).expect("read");
    let hdd_ns = clock.now_ns();
    assert!(hdd_ns - ssd_ns > 100_000 && ssd_ns > 0, "{ssd_ns} {hdd_ns}");
    ssd.read(3, &mut found).expect("read");
    assert_eq!(found[0].0[9], 1);
    // The SSD's request arrived when the drive had ended, although the SSD was idle.
    assert!(clock.now_ns() > hdd_ns);
    hdd.set_time_mode(TimeMode::RealTime);
    assert_eq!(ssd.time_mode(), TimeMode::RealTime);
}

#[test]
fn faults_fail_change_lose_and_delay_requests() {
    let device = HddDevice::with_clock(drive(GIB), ModelClock::new(TimeMode::Virtual));
    let only = |reads, writes| Operations { reads, writes, flushes: false, discards: false };
    let rule = |kind, operations, range| FaultRule { range, ..FaultRule::new(kind, operations) };
    let add = |rule| device.with_faults(|faults| faults.add(rule));
    let heal = || device.with_faults(|faults| faults.heal());
    let read = |address| {
        let mut found = blocks(0, 1);
        device.read(address, &mut found).map(|()| found[0].0)
    };
    device.write(10, &[&blocks(1, 4)], Stream(0)).expect("written");

    add(rule(FaultKind::Error, only(true, false), Some(11..12)));
    let error = read(11).expect_err("an error by the rule");
    assert_eq!(error.source.raw_os_error(), Some(5));
    assert_eq!(read(12).expect("not in the range"), [1; BLOCK_SIZE]);
    heal();

    add(rule(FaultKind::Lost, only(false, true), Some(11..12)));
    device.write(10, &[&blocks(2, 2), &blocks(2, 1)], Stream(0)).expect("acknowledged");
    assert_eq!([10, 11, 12].map(|at| read(at).expect("read")[0]), [2, 1, 2]);
    heal();

    add(rule(FaultKind::WrongData, only(true, false), Some(12..13)));
    assert_ne!(read(12).expect("read"), [2; BLOCK_SIZE]);
    heal();
    assert_eq!(read(12).expect("read"), [2; BLOCK_SIZE], "the stored data was not changed");
    add(rule(FaultKind::WrongData, only(false, true), None));
    device.write(13, &[&blocks(3, 1)], Stream(0)).expect("acknowledged");
    heal();
    assert_ne!(read(13).expect("read"), [3; BLOCK_SIZE], "stored wrongly");

    let before_ns = device.now_ns();
    add(rule(FaultKind::Slow(50_000_000), Operations::ALL, None));
    device.flush().expect("flushed");
    assert!(device.now_ns() - before_ns >= 50_000_000);
}
