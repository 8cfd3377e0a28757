//! Several threads on one volume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_core::request::{AttributeChanges, RenameMode, VolumeOptions, WriteMode};
use sfs_device::{GatedDevice, Keep, Operation, RamDevice, RecordingDevice};

use crate::compare::same_bytes;
use crate::content::FileContent;
use crate::fixture::{DIRECTORY, FILE, SEGMENT_BLOCKS, after, caller, open, ram, tight};
use crate::random::{SplitMix64, number};
use crate::watchdog::within;

const THREADS: u64 = 4;

/// Number of bytes of each block of the shared file that one thread writes.
const SHARE: u64 = 1000;

/// Number of blocks of the shared file.
const SHARED_BLOCKS: u64 = 40;

/// State of one thread, which works in a directory of its own and in its share of a file that all threads write.
struct Worker {
    volume: Arc<Volume>,
    no: u64,
    directory: u64,
    shared: u64,
    random: SplitMix64,
    files: BTreeMap<Vec<u8>, (u64, FileContent)>,
    /// Byte that the thread wrote last to its share of each block.
    stamps: BTreeMap<u64, u8>,
}

impl Worker {
    /// Performs one random operation and checks its result.
    fn step(&mut self) {
        let name = format!("file-{}", self.random.below(6)).into_bytes();
        match self.random.below(20) {
            0..=2 => self.make(name),
            3..=8 => self.write(&name),
            9 => self.truncate(&name),
            10 => self.rename(&name),
            11 => self.unlink(&name),
            12..=14 => self.read(&name),
            15..=17 => self.stamp(),
            _ => self.sync(&name),
        }
    }

    fn make(&mut self, name: Vec<u8>) {
        if self.files.contains_key(&name) {
            return;
        }
        let made = self.volume.make_node(self.directory, &name, FILE, 0, &caller());
        self.files.insert(name, (made.expect("a file").ino, FileContent::default()));
    }

    fn write(&mut self, name: &[u8]) {
        let Some((ino, content)) = self.files.get_mut(name) else { return };
        let offset = self.random.below(60_000);
        let len = self.random.pick(&[10, 500, 4096, 5000, 30_000]);
        let bytes = self.random.bytes(len);
        self.volume.write(*ino, offset, &bytes, WriteMode::default(), &caller()).expect("a write");
        content.write(offset, &bytes);
    }

    fn truncate(&mut self, name: &[u8]) {
        let Some((ino, content)) = self.files.get_mut(name) else { return };
        let size = self.random.below(content.size + 5000);
        let changes = AttributeChanges { size: Some(size), ..Default::default() };
        self.volume.set_attributes(*ino, &changes, &caller()).expect("a new length");
        content.truncate(size);
    }

    fn rename(&mut self, name: &[u8]) {
        let to = format!("file-{}", self.random.below(6)).into_bytes();
        if to == name || !self.files.contains_key(name) {
            return;
        }
        let directory = self.directory;
        self.volume
            .rename(directory, name, directory, &to, RenameMode::Replace, &caller())
            .expect("a rename");
        let moved = self.files.remove(name).expect("the file exists");
        if let Some((old, _)) = self.files.insert(to, moved) {
            self.volume.forget(old, 1);
        }
    }

    fn unlink(&mut self, name: &[u8]) {
        let Some((ino, _)) = self.files.remove(name) else { return };
        self.volume.unlink(self.directory, name, &caller()).expect("the name is removed");
        self.volume.forget(ino, 1);
    }

    fn read(&mut self, name: &[u8]) {
        let Some((ino, content)) = self.files.get(name) else { return };
        let offset = self.random.below(content.size + 1);
        let found = self.volume.read(*ino, offset, 40_000).expect("the read succeeds");
        same_bytes(found.as_bytes(), &content.read(offset, 40_000), *ino, offset);
    }

    /// Writes the thread's share of a block that other threads write at the same time.
    fn stamp(&mut self) {
        let block = self.random.below(SHARED_BLOCKS);
        let byte = self.random.draw() as u8;
        let offset = block * 4096 + self.no * SHARE;
        let bytes = [byte; SHARE as usize];
        self.volume
            .write(self.shared, offset, &bytes, WriteMode::default(), &caller())
            .expect("a write");
        self.stamps.insert(block, byte);
        self.check_stamp(block);
    }

    /// Asserts that the thread's share of `block` has the byte that was written last.
    fn check_stamp(&self, block: u64) {
        let Some(byte) = self.stamps.get(&block) else { return };
        let offset = block * 4096 + self.no * SHARE;
        let found =
            self.volume.read(self.shared, offset, SHARE as usize).expect("the read succeeds");
        same_bytes(found.as_bytes(), &[*byte; SHARE as usize], self.shared, offset);
    }

    fn sync(&mut self, name: &[u8]) {
        match self.files.get(name) {
            Some((ino, _)) => self.volume.sync_file(*ino).expect("a sync"),
            None => self.volume.sync_file(self.shared).expect("a sync"),
        }
    }

    /// Asserts that all files of the thread, and its share of the shared file, have their content.
    fn check(&self) {
        for (ino, content) in self.files.values() {
            let found = self.volume.read(*ino, 0, 1 << 20).expect("the read succeeds");
            same_bytes(found.as_bytes(), &content.read(0, 1 << 20), *ino, 0);
        }
        (0..SHARED_BLOCKS).for_each(|block| self.check_stamp(block));
    }
}

/// No thread waits for ever, and each finds its own writes, also after the volume is opened again.
#[test]
fn threads_do_not_disturb_each_other() {
    // A large volume, and one so small that data is written back before the names.
    for bytes in [12 << 20, 6_500_000] {
        within(120, move || run_threads(bytes));
    }
}

fn run_threads(bytes: u64) {
    let steps = number("SFS_STEPS", 3000);
    let device: Arc<RamDevice> = Arc::new(ram(bytes, SEGMENT_BLOCKS));
    let volume = Arc::new(open(device.clone(), tight()));
    let shared = volume.make_node(ROOT_INO, b"shared", FILE, 0, &caller()).expect("a file").ino;
    let done = Arc::new(AtomicBool::new(false));
    let background = std::thread::spawn({
        let (volume, done) = (volume.clone(), done.clone());
        move || {
            let mut millis = 0;
            while !done.load(Ordering::Relaxed) {
                millis += 50;
                volume.work(after(millis)).expect("background work succeeds");
                std::thread::yield_now();
            }
        }
    });
    let run = |no: u64| {
        let volume = volume.clone();
        let name = format!("thread-{no}");
        let made = volume.make_node(ROOT_INO, name.as_bytes(), DIRECTORY, 0, &caller());
        let directory = made.expect("a directory").ino;
        let random = SplitMix64::new(number("SFS_SEED", 1) * THREADS + no);
        let (files, stamps) = (BTreeMap::new(), BTreeMap::new());
        let mut worker = Worker { volume, no, directory, shared, random, files, stamps };
        std::thread::spawn(move || {
            (0..steps).for_each(|_| worker.step());
            worker.check();
            worker
        })
    };
    let threads: Vec<_> = (0..THREADS).map(run).collect();
    let mut workers: Vec<Worker> =
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    done.store(true, Ordering::Relaxed);
    background.join().expect("no panic");

    volume.sync_all().expect("a sync");
    let again = Arc::new(open(Arc::new(device.snapshot()), tight()));
    for worker in &mut workers {
        worker.check();
        worker.volume = again.clone();
        worker.check();
    }
}

/// Syncs that are requested while one is under way share the next commit.
#[test]
fn concurrent_syncs_share_commits() {
    const SYNCS: u64 = 25;
    within(60, || {
        let recording = RecordingDevice::new(ram(12 << 20, SEGMENT_BLOCKS), Keep::Counts);
        let device = Arc::new(GatedDevice::new(recording));
        device.slow_down(Operation::Flush, Duration::from_millis(5));
        let volume = Arc::new(open(device.clone(), VolumeOptions::default()));
        let before = device.inner().counts().flushes;
        let run = |no: u64| {
            let volume = volume.clone();
            let name = format!("{no}");
            let made = volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller());
            let ino = made.expect("a file").ino;
            std::thread::spawn(move || {
                for round in 0..SYNCS {
                    volume
                        .write(ino, 0, &[round as u8; 5000], WriteMode::default(), &caller())
                        .expect("a write");
                    volume.sync_file(ino).expect("a sync");
                }
            })
        };
        let threads: Vec<_> = (0..8).map(run).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let counters = volume.counters();
        assert_eq!(counters.syncs, 8 * SYNCS);
        let flushes = device.inner().counts().flushes - before;
        assert!(flushes < 6 * SYNCS, "{flushes} flushes for {} syncs", counters.syncs);
    });
}
