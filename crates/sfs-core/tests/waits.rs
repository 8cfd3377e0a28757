//! How long requests wait for cleaning, in virtual time: on a nearly full volume on a slow card, with a thread for the log and a
//! background that work whenever the program thinks.
//!
//! The model is that of an SD card, with allocation units, and so segments, of a quarter of the size. A request waits for every request to the device since
//! it was made, also for those of a step of the background that was under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sfs_core::Volume;
use sfs_core::format::{DataLayout, Key, Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, VolumeOptions, Work, WriteMode};
use sfs_device::{Block, Device, DeviceError, Geometry, Stream};
use sfs_ssd::{Ssd, SsdDevice, SsdProfile, TimeMode};

const BLOCK: usize = 4096;
const SEGMENT_BLOCKS: u64 = 256;
const SEGMENTS: u64 = 256;
const MS: u64 = 1_000_000;

/// Model of a card, and the time for which it has rested.
struct Card {
    inner: SsdDevice,
    rested_ns: AtomicU64,
}

impl Card {
    fn new(blocks: u64) -> Self {
        let profile = SsdProfile::by_name("sd").expect("a profile");
        let segment = SEGMENT_BLOCKS * BLOCK as u64;
        let profile = profile.with_cluster_size(segment).with_capacity(blocks * BLOCK as u64);
        let ssd = Ssd::new(&profile.config()).expect("a sound geometry");
        let inner = SsdDevice::new(ssd, TimeMode::Virtual, true);
        Self { inner, rested_ns: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        self.inner.now_ns() + self.rested_ns.load(Ordering::Relaxed)
    }

    fn pass(&self, ns: u64) {
        self.rested_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Device for Card {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.inner.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.inner.discard(address, count)
    }
}

/// A simple generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Machine {
    card: Arc<Card>,
    volume: Volume,
    numbers: Numbers,
    database: u64,
    database_blocks: u64,
    files: VecDeque<(String, u64)>,
    made: u64,
}

/// Sizes of the files, in blocks.
const SIZES: [u64; 4] = [4, 16, 64, 256];

impl Machine {
    fn new(percent: u64) -> Self {
        Self::defragmenting(percent, 0)
    }

    /// Makes a volume that is `percent` full, and that defragments within `defrag` percent of what is written.
    fn defragmenting(percent: u64, defrag: u8) -> Self {
        let blocks = (SEGMENTS + 8) * SEGMENT_BLOCKS;
        let card = Arc::new(Card::new(blocks));
        let layout = Layout::new(blocks, SEGMENT_BLOCKS, 0).expect("the layout fits");
        let superblock = Superblock {
            label: Label::NONE,
            data_layout: DataLayout::Log,
            created: at(0),
            ..Superblock::new(layout)
        };
        let root = sfs_core::root_directory(0, 0, at(0));
        sfs_core::make(card.clone(), &superblock, &root).expect("a volume is made");
        let options = VolumeOptions {
            has_log_thread: true,
            write_buffer: 16 << 20,
            idle_defragmentation: defrag,
            ..VolumeOptions::default()
        };
        let volume = Volume::open(card.clone(), options, at(0)).expect("the volume opens");
        // 20 ms of writing, as the shell asks for while programs sync, but at least 64.
        volume.bound_batches(64);
        let caller = caller_at(0);
        let database = volume.make_node(ROOT_INO, b"database", 0o100_644, 0, &caller);
        let database = database.expect("a file is made").ino;
        let space = volume.space();
        let database_blocks = space.total_blocks * percent / 100 / 2;
        let (numbers, files) = (Numbers(7), VecDeque::new());
        let mut machine = Self { card, volume, numbers, database, database_blocks, files, made: 0 };
        machine.fill(percent);
        machine
    }

    fn caller(&self) -> Caller {
        caller_at(self.card.now())
    }

    fn used_percent(&self) -> u64 {
        let space = self.volume.space();
        100 - space.free_blocks * 100 / space.total_blocks
    }

    /// Writes `count` blocks, once they have room.
    fn write(&mut self, ino: u64, block: u64, count: u64) {
        let bytes = vec![self.numbers.below(256) as u8; count as usize * BLOCK];
        let since = self.card.now();
        loop {
            let waited = Duration::from_nanos(self.card.now() - since);
            if self.volume.has_write_room(ino, bytes.len(), waited) {
                break;
            }
            self.volume.log_step().expect("the card does not fail");
        }
        let (mode, offset) = (WriteMode::default(), block * BLOCK as u64);
        self.volume.write(ino, offset, &bytes, mode, &self.caller()).expect("there is space");
    }

    fn make_file(&mut self, blocks: u64) {
        let name = format!("file-{}", self.made);
        self.made += 1;
        let made = self.volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &self.caller());
        let ino = made.expect("a file is made").ino;
        self.write(ino, 0, blocks);
        self.volume.forget(ino, 1);
        self.files.push_back((name, blocks));
    }

    fn replace_file(&mut self) {
        let at = self.numbers.below(self.files.len() as u64) as usize;
        let (name, blocks) = self.files.swap_remove_back(at).expect("a file");
        let removed = self.volume.unlink(ROOT_INO, name.as_bytes(), &self.caller());
        removed.expect("the file is removed");
        self.make_file(blocks);
    }

    fn change_database(&mut self) {
        let hot = self.numbers.below(10) < 8;
        let range = if hot { self.database_blocks / 5 } else { self.database_blocks };
        let block = self.numbers.below(range.max(1));
        self.write(self.database, block, 1);
    }

    fn fill(&mut self, percent: u64) {
        for block in (0..self.database_blocks).step_by(64) {
            self.write(self.database, block, 64);
        }
        while self.used_percent() < percent {
            let blocks = SIZES[self.numbers.below(4) as usize];
            self.make_file(blocks);
            self.work_until(0);
        }
        // Two thirds of the bytes replace whole files.
        let mut written = 0;
        while written < SEGMENTS * SEGMENT_BLOCKS {
            for number in 0..128 {
                self.change_database();
                if number % 64 == 63 {
                    self.volume.sync_file(self.database).expect("a sync");
                }
            }
            (0..4).for_each(|_| self.replace_file());
            written += 128 + 4 * 85;
            self.work_until(0);
        }
        self.volume.sync_all().expect("a sync");
    }

    /// Reads the database in order.
    fn read_database(&self) {
        for block in (0..self.database_blocks).step_by(256) {
            let read = self.volume.read(self.database, block * BLOCK as u64, 256 * BLOCK);
            read.expect("the card does not fail");
        }
    }

    /// Lets the thread for the log and the background work until `end`; a step that has begun goes to its end.
    fn work_until(&mut self, end: u64) {
        loop {
            while self.volume.is_log_work_due() && self.volume.log_step().expect("no failure") {}
            let step = self.volume.work(at(self.card.now())).expect("the card does not fail");
            let now = self.card.now();
            match step {
                Work::More if now < end => {}
                Work::Idle(pause) if now < end => {
                    let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX).max(MS);
                    self.card.pass(pause.min(end - now));
                }
                _ => return,
            }
        }
    }
}

fn at(ns: u64) -> Timestamp {
    let secs = 1_700_000_000 + (ns / (1000 * MS)) as i64;
    Timestamp { secs, nanos: (ns % (1000 * MS)) as u32 }
}

fn caller_at(ns: u64) -> Caller {
    Caller { uid: 0, gid: 0, now: at(ns), umask: None }
}

/// Waits of requests.
#[derive(Default)]
struct Waits(Vec<u64>);

impl Waits {
    fn percentile(&mut self, thousandths: usize) -> u64 {
        self.0.sort_unstable();
        self.0[(self.0.len() - 1) * thousandths / 1000] / MS
    }
}

/// Runs `count` requests that follow pauses of `think`, and returns their waits.
fn run(machine: &mut Machine, count: usize, think: u64, request: impl Fn(&mut Machine)) -> Waits {
    let mut waits = Waits::default();
    for _ in 0..count {
        let arrival = machine.card.now() + think;
        machine.work_until(arrival);
        request(machine);
        waits.0.push(machine.card.now() - arrival);
    }
    waits
}

fn commit(machine: &mut Machine) {
    (0..2).for_each(|_| machine.change_database());
    machine.volume.sync_file(machine.database).expect("a sync");
}

fn install(machine: &mut Machine) {
    machine.replace_file();
    let (name, _) = machine.files.back().expect("a file").clone();
    let found = machine.volume.lookup(ROOT_INO, name.as_bytes()).expect("the file is there");
    machine.volume.sync_file(found.ino).expect("a sync");
    machine.volume.forget(found.ino, 1);
}

/// A burst, as the checkpoint of a database: 4 MiB at random, and a sync.
fn burst(machine: &mut Machine) {
    (0..1024).for_each(|_| machine.change_database());
    machine.volume.sync_file(machine.database).expect("a sync");
}

/// Runs a load, and returns its waits and the number of blocks that cleaning moved for each 1,000 of users.
fn measure(
    machine: &mut Machine,
    name: &str,
    (count, think): (usize, u64),
    request: fn(&mut Machine),
) -> (Waits, u64) {
    let before = machine.volume.counters();
    let mut waits = run(machine, count, think, request);
    let after = machine.volume.counters();
    let of_users = after.user_bytes_written - before.user_bytes_written;
    let per_mille = (after.cleaning_bytes - before.cleaning_bytes) * 1000 / of_users.max(1);
    println!(
        "{name}: p50 {}, p99 {}, longest {} ms; {per_mille} blocks moved for 1,000 of users; {} stalls, {} Clean",
        waits.percentile(500),
        waits.percentile(990),
        waits.percentile(1000),
        after.stalls - before.stalls,
        machine.volume.status().segments.clean,
    );
    (waits, per_mille)
}

/// A writer commits a part of a round of cleaning, and a thread that lacks segments goes on with the first that it gains. The
/// longest waits are those for such a thread.
#[test]
#[ignore = "half a minute: cargo test -p sfs-core --test waits -- --ignored --nocapture"]
fn requests_wait_for_bounded_steps_of_cleaning() {
    let mut machine = Machine::new(90);
    for (name, count, think, request, longest_max) in [
        ("commit", 1500, 5 * MS, commit as fn(&mut Machine), 1500),
        ("commit without pause", 1500, 0, commit, 500),
        ("install without pause", 150, 0, install, 650),
        ("burst after 2 s", 10, 2_000 * MS, burst, 650),
    ] {
        let (mut waits, _) = measure(&mut machine, name, (count, think), request);
        let longest = waits.percentile(1000);
        assert!(longest <= longest_max, "{name}: {longest} ms");
    }
}

/// A line of a log, and a sync.
fn append(machine: &mut Machine) {
    let (name, blocks) = machine.files.back().expect("a file").clone();
    let found = machine.volume.lookup(ROOT_INO, name.as_bytes()).expect("the file is there");
    machine.write(found.ino, blocks - 1, 1);
    machine.volume.sync_file(found.ino).expect("a sync");
    machine.volume.forget(found.ino, 1);
}

/// Prints percentiles of waits, and returns the longest.
fn report(name: &str, waits: &mut Waits) -> u64 {
    let [p50, p99, p999, longest] = [500, 990, 999, 1000].map(|part| waits.percentile(part));
    println!(
        "{name}: {} waits, p50 {p50}, p99 {p99}, p99.9 {p999}, longest {longest} ms",
        waits.0.len()
    );
    longest
}

/// The first write and fsync after a pause in which the volume defragments by itself, or is scrubbed, wait for one step.
#[test]
#[ignore = "a minute: cargo test -p sfs-core --test waits -- --ignored --nocapture"]
fn first_writes_wait_for_one_step_of_defragmentation_or_scrub() {
    let mut machine = Machine::defragmenting(70, 100);
    let mut alone = Waits::default();
    let mut beside = Waits::default();
    while beside.0.len() < 1000 {
        // Files that were written a minute ago, and are then read in order, are put in order.
        (0..2000).for_each(|_| machine.change_database());
        machine.volume.sync_all().expect("a sync");
        machine.card.pass(61_000 * MS);
        machine.work_until(0);
        machine.read_database();
        for _ in 0..100 {
            let pause = 300 * MS + machine.numbers.below(200) * MS;
            let moved = |machine: &Machine| machine.volume.counters().defragmentation_bytes;
            let before = moved(&machine);
            let mut wait = run(&mut machine, 1, pause, append);
            let waits = if moved(&machine) > before { &mut beside } else { &mut alone };
            waits.0.append(&mut wait.0);
        }
    }
    let longest = report("after idle defragmentation", &mut beside);
    let longest_alone = report("after a rest", &mut alone);
    let mut scrubbed = Waits::default();
    let from_the_start = |machine: &Machine| machine.volume.begin_scrub(Key::MIN).expect("a scrub");
    let mut scrub = from_the_start(&machine);
    while scrubbed.0.len() < 1000 {
        let arrival = machine.card.now() + machine.numbers.below(200) * MS;
        while machine.card.now() < arrival {
            machine.volume.scrub_step(&mut scrub);
            if scrub.is_done() {
                scrub = from_the_start(&machine);
            }
        }
        append(&mut machine);
        scrubbed.0.push(machine.card.now() - arrival);
        machine.work_until(0);
    }
    let longest_scrubbed = report("beside a scrub", &mut scrubbed);
    assert!(longest <= longest_alone.max(100) + 100, "{longest} ms");
    assert!(longest_scrubbed <= longest_alone.max(100) + 100, "{longest_scrubbed} ms");
}
