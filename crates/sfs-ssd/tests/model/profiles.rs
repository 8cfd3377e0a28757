//! Tests that every profile has its published bandwidths, and that a block device over it stores data.

use std::time::Instant;

use crate::fixture::XorShift64;
use sfs_device::{BLOCK_SIZE, Block, Device, Stream};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{
    Arrivals, HostRequest, RequestKind, RequestQueue, Scheduling, Ssd, SsdDevice, SsdProfile,
    TimeMode, profiles,
};

const MIB: u64 = 1 << 20;

/// Published bandwidths of sequential writes, sequential reads and random reads of 4 KiB, in kB/s, and the
/// size of a clustered block in MiB.
const PUBLISHED: [(&str, [u64; 3], u64); 8] = [
    ("ssd-h", [170_000, 216_900, 13_800], 16),
    ("ssd-m", [87_000, 212_600, 10_600], 32),
    ("ssd-l", [38_000, 69_100, 5_300], 16),
    ("sandisk", [50_000, 67_000, 14_000], 4),
    ("samsung", [80_000, 100_000, 14_000], 8),
    ("mtron", [80_000, 100_000, 14_000], 4),
    ("sd", [10_000, 20_000, 4_000], 4),
    ("emmc", [30_000, 100_000, 12_000], 8),
];

/// Measures the bandwidth of `kind` requests of `len` bytes at `offsets`, `depth` at a time, in kB/s.
fn bandwidth(
    ssd: &mut Ssd,
    kind: RequestKind,
    offsets: &[u64],
    len: u64,
    depth: usize,
    now_ns: &mut u64,
) -> u64 {
    let queue = RequestQueue {
        scheduling: Scheduling::Fcfs,
        depth,
        arrivals: Arrivals::Eager,
        merging: false,
    };
    let requests = offsets.iter().map(|&offset| HostRequest::new(kind, offset, len));
    let began_ns = *now_ns;
    *now_ns = queue.run(ssd, began_ns, requests, |_, _| {});
    offsets.len() as u64 * len * 1_000_000 / (*now_ns - began_ns)
}

#[test]
fn modelled_bandwidths_are_within_five_percent_of_the_published_ones() {
    for (name, published, cluster_mib) in PUBLISHED {
        let profile = SsdProfile::by_name(name).expect("a profile").with_capacity(512 * MIB);
        assert_eq!(profile.geometry.cluster_size(), cluster_mib * MIB, "{name}");
        let mut ssd = Ssd::new(&profile.config()).expect("a device");
        let mut now_ns = 0;
        let all: Vec<u64> = (0..256).map(|no| no * MIB).collect();
        let write = bandwidth(&mut ssd, RequestKind::Write, &all, MIB, 4, &mut now_ns);
        let read = bandwidth(&mut ssd, RequestKind::Read, &all, MIB, 4, &mut now_ns);
        let mut random = XorShift64::new(1);
        let blocks: Vec<u64> = (0..1000).map(|_| u64::from(random.below(65_536)) * 4096).collect();
        let random = bandwidth(&mut ssd, RequestKind::Read, &blocks, 4096, 1, &mut now_ns);
        println!("{name}: write {write} kB/s, read {read} kB/s, random read {random} kB/s");
        for (found, expected) in [write, read, random].into_iter().zip(published) {
            assert!(
                found.abs_diff(expected) * 20 < expected,
                "{name}: {found}, not {expected} kB/s"
            );
        }
    }
}

#[test]
fn every_profile_can_be_scaled_down_with_every_layer() {
    for profile in profiles() {
        let superblock = Layer::Superblock { log_blocks: 5, width: 4 };
        let [fast, bast] = [Layer::Fast { log_blocks: 9 }, Layer::Bast { log_blocks: 3 }];
        for layer in [Layer::GREEDY, fast, bast, superblock] {
            let small = profile.clone().with_layer(layer).with_capacity(100 * MIB);
            assert!(Ssd::new(&small.config()).is_some(), "{} {layer}", small.name);
            assert!(small.geometry.capacity() <= 100 * MIB, "{} {layer}", small.name);
        }
    }
}

fn blocks(content: u8, count: usize) -> Vec<Block> {
    vec![Block([content; BLOCK_SIZE]); count]
}

#[test]
fn the_block_device_stores_data_and_counts_requests() {
    let profile = SsdProfile::by_name("sd").expect("a profile").with_capacity(64 * MIB);
    let ssd = Ssd::new(&profile.config()).expect("a device");
    let device = SsdDevice::new(ssd, TimeMode::Virtual, profile.erase_size_known);
    assert_eq!(device.geometry().preferred_erase_size, 4 * MIB);
    device.write(10, &[&blocks(1, 2), &blocks(2, 1)], Stream(0)).expect("written");
    device.flush().expect("flushed");
    let mut found = blocks(9, 4);
    device.read(10, &mut found).expect("read");
    assert!(found.iter().map(|block| block.0[17]).eq([1, 1, 2, 0]));
    device.discard(10, 1).expect("discarded");
    let past = device.geometry().block_count;
    assert!(device.write(past, &[&blocks(1, 1)], Stream(0)).is_err());
    assert!(device.discard(past, 1).is_err());
    let counters = device.with_model(|ssd| *ssd.counters());
    let requests = [counters.write_requests, counters.read_requests, counters.trim_requests];
    assert_eq!((requests, counters.flush_requests), ([1, 1, 1], 1));
    assert_eq!((counters.flash_pages_programmed, counters.host_pages_trimmed), (3, 1));
    assert!(device.now_ns() > 0);
}

#[test]
fn real_time_requests_take_at_least_the_modelled_time() {
    let profile = SsdProfile::by_name("sd").expect("a profile").with_capacity(64 * MIB);
    let ssd = Ssd::new(&profile.config()).expect("a device");
    let began = std::time::Instant::now();
    let device = SsdDevice::new(ssd, TimeMode::RealTime, false);
    for address in 0..20 {
        device.write(address, &[&blocks(1, 1)], Stream(0)).expect("written");
    }
    // A random read of 4 KiB takes 1 ms on this card, and programming takes longer.
    assert!(began.elapsed().as_millis() >= 20);
}

/// A card takes one command at a time, however many threads wait.
#[test]
fn requests_of_several_threads_follow_each_other_in_real_time() {
    const THREADS: u64 = 8;
    let profile = SsdProfile::by_name("sd").expect("a profile").with_capacity(64 * MIB);
    let ssd = Ssd::filled(&profile.config()).expect("a device");
    let device = SsdDevice::new(ssd, TimeMode::Virtual, false);
    device.set_time_mode(TimeMode::RealTime);
    let (began, before_ns) = (Instant::now(), device.now_ns());
    std::thread::scope(|scope| {
        for no in 0..THREADS {
            let device = &device;
            scope.spawn(move || device.read(no * 997, &mut blocks(9, 1)).expect("read"));
        }
    });
    let modelled_ns = device.now_ns() - before_ns;
    // A random read of 4 KiB takes 1 ms.
    assert!(modelled_ns >= THREADS * 1_000_000, "{modelled_ns}");
    assert!(began.elapsed().as_nanos() as u64 >= modelled_ns, "{modelled_ns}");
}

/// Writes `count` blocks. Any 12 consecutive writes go to different erase blocks of the SD card, so
/// that nearly every write causes a merge there.
fn write_scattered(device: &SsdDevice, count: u64) {
    let cluster_blocks = 4 * MIB / BLOCK_SIZE as u64;
    for no in 0..count {
        let address = no % 12 * cluster_blocks + no;
        device.write(address, &[&blocks(1, 1)], Stream(0)).expect("written");
    }
}

#[test]
fn a_device_ages_in_virtual_time_and_then_takes_real_time() {
    let profile = SsdProfile::by_name("sd").expect("a profile").with_capacity(64 * MIB);
    let ssd = Ssd::filled(&profile.config()).expect("a device");
    let device = SsdDevice::new(ssd, TimeMode::Virtual, false);
    let began = Instant::now();
    write_scattered(&device, 200);
    let aged_ns = device.now_ns();
    let took_ns = || began.elapsed().as_nanos() as u64;
    assert!(aged_ns > 20_000_000_000 && took_ns() < aged_ns / 2, "{aged_ns} {}", took_ns());

    device.set_time_mode(TimeMode::RealTime);
    assert_eq!(device.time_mode(), TimeMode::RealTime);
    let (began, before_ns) = (Instant::now(), device.now_ns());
    let mut found = blocks(9, 1);
    (0..20).for_each(|no| device.read(no, &mut found).expect("read"));
    let (took, modelled_ns) = (began.elapsed(), device.now_ns() - before_ns);
    // A random read of 4 KiB takes 1 ms. The reads do not wait for the virtual time of the ageing.
    assert!(took.as_millis() >= 20 && took.as_secs() < 10, "{took:?}");
    assert!(modelled_ns >= 20_000_000 && modelled_ns <= took.as_nanos() as u64, "{modelled_ns}");

    device.set_time_mode(TimeMode::Virtual);
    let (began, before_ns) = (Instant::now(), device.now_ns());
    write_scattered(&device, 200);
    let aged_ns = device.now_ns() - before_ns;
    assert!(aged_ns > 20_000_000_000 && began.elapsed().as_secs() < 10, "{aged_ns}");
}

#[test]
fn the_change_to_real_time_does_not_wait_for_work_in_the_background() {
    let profile = SsdProfile::by_name("ssd-m").expect("a profile").with_capacity(64 * MIB);
    let ssd = Ssd::new(&profile.config()).expect("a device");
    let device = SsdDevice::new(ssd, TimeMode::Virtual, false);
    write_scattered(&device, 100);
    device.set_time_mode(TimeMode::RealTime);
    let idle_ns = device.with_model(|ssd| ssd.idle_ns());
    assert!(device.now_ns() >= idle_ns, "{} {idle_ns}", device.now_ns());
    // A second change to the same mode leaves the clock alone.
    let before_ns = device.now_ns();
    device.set_time_mode(TimeMode::RealTime);
    assert_eq!(device.now_ns(), before_ns);
}

#[test]
fn smaller_erase_blocks_leave_capacity_and_timing_alone() {
    let profile = SsdProfile::by_name("ssd-m").expect("a profile");
    let scaled = profile.clone().with_cluster_size(4 * MIB).with_capacity(1024 * MIB);
    assert_eq!(scaled.geometry.cluster_size(), 4 * MIB);
    assert_eq!(scaled.geometry.elements(), profile.geometry.elements());
    assert_eq!((scaled.timing, scaled.layer), (profile.timing, profile.layer));
    let ssd = Ssd::new(&scaled.config()).expect("a device");
    assert_eq!(ssd.capacity(), 1024 * MIB);
}
