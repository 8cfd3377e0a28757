//! Cold walks over trees of files: one request to the device reads several nodes, on a new volume and on an aged one.

use std::sync::Arc;

use sfs_core::format::{DataLayout, FileKind, ROOT_INO};
use sfs_core::request::{VolumeOptions, WriteMode};
use sfs_core::{Error, Volume};
use sfs_device::{FaultyDevice, Keep, Operation, RamDevice, RecordingDevice};
use sfs_testkit::SeededRng;
use sfs_testkit::ram_volume::{DIRECTORY_MODE, FILE_MODE, caller, device_blocks, format, open};

const DIRECTORIES: u64 = 60;
const FILES: u64 = 100;

/// Length of a file in bytes: the file needs a mapping.
const FILE_LEN: usize = 5000;

type Recorder = RecordingDevice<FaultyDevice<RamDevice>>;

/// Directories with the numbers of their files.
type Directories = Vec<(u64, Vec<Vec<u8>>)>;

fn device() -> Arc<Recorder> {
    let ram = RamDevice::new(device_blocks(1024));
    let device = Arc::new(RecordingDevice::new(FaultyDevice::new(ram), Keep::Requests));
    format(device.clone(), 128, DataLayout::Log);
    device
}

fn write_file(volume: &Volume, directory: u64, name: &[u8]) {
    let file = volume.make_node(directory, name, FILE_MODE, 0, &caller()).expect("a file");
    let mode = WriteMode::default();
    volume.write(file.ino, 0, &[7; FILE_LEN], mode, &caller()).expect("a write");
    volume.forget(file.ino, 1);
}

/// Makes the directories one after the other, as an archive is unpacked.
fn fill(volume: &Volume) -> Directories {
    let make = |no| {
        let name = format!("directory-{no}");
        let made = volume.make_node(ROOT_INO, name.as_bytes(), DIRECTORY_MODE, 0, &caller());
        let ino = made.expect("a directory").ino;
        let names: Vec<Vec<u8>> =
            (0..FILES).map(|no| format!("source-file-{no}.c").into_bytes()).collect();
        names.iter().for_each(|name| write_file(volume, ino, name));
        (ino, names)
    };
    let directories = (0..DIRECTORIES).map(make).collect();
    volume.sync_all().expect("a sync");
    directories
}

/// Builds again and again: a few files of some directories are replaced, and each build ends with a checkpoint.
fn churn(volume: &Volume, directories: &Directories) {
    let mut random = SeededRng::new(5);
    for build in 0..200 {
        for _ in 0..4 {
            let (directory, names) = &directories[random.below(DIRECTORIES) as usize];
            for _ in 0..10 {
                let name = &names[random.below(FILES) as usize];
                volume.unlink(*directory, name, &caller()).expect("the file exists");
                write_file(volume, *directory, name);
            }
        }
        volume.sync_all().expect("a sync");
        if build % 4 == 0 {
            volume.checkpoint().expect("a checkpoint");
        }
    }
}

/// Lists everything with attributes, and returns the number of entries.
fn walk(volume: &Volume, ino: u64) -> u64 {
    let mut children = Vec::new();
    let listed = volume.read_directory(ino, 0, true, &mut |entry| {
        children.extend(entry.inode.map(|inode| (entry.ino, inode.kind())));
        true
    });
    listed.expect("a listing");
    let below = |(ino, kind)| {
        volume.forget(ino, 1);
        if kind == FileKind::Directory { walk(volume, ino) } else { 0 }
    };
    children.len() as u64 + children.into_iter().map(below).sum::<u64>()
}

/// Walks over everything with a cold cache; returns the number of requests and of nodes that were read.
fn cold_walk(device: &Arc<Recorder>) -> (u64, u64) {
    let volume = open(device.clone(), VolumeOptions::default());
    let before = (device.counts().reads, volume.counters().nodes_read);
    assert_eq!(walk(&volume, ROOT_INO), DIRECTORIES * (FILES + 1));
    let after = (device.counts().reads, volume.counters().nodes_read);
    volume.close().expect("the volume closes");
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn one_request_reads_several_nodes() {
    let device = device();
    let volume = open(device.clone(), VolumeOptions::default());
    let directories = fill(&volume);
    volume.close().expect("the volume closes");
    let (requests, nodes) = cold_walk(&device);
    println!("new: {requests} requests for {nodes} nodes");
    assert!(nodes > 300, "{nodes} nodes");
    assert!(8 * requests <= nodes, "{requests} requests for {nodes} nodes");

    let volume = open(device.clone(), VolumeOptions::default());
    churn(&volume, &directories);
    volume.close().expect("the volume closes");
    let (aged, nodes) = cold_walk(&device);
    println!("aged: {aged} requests for {nodes} nodes");
    // Half as much again for each node.
    assert!(16 * aged <= 3 * nodes, "{aged} requests for {nodes} nodes");
}

/// Lists a directory, and gives all references back.
fn list(volume: &Volume, ino: u64) -> Result<u64, Error> {
    let mut count = 0;
    volume.read_directory(ino, 0, true, &mut |entry| {
        if entry.inode.is_some() {
            volume.forget(entry.ino, 1);
            count += 1;
        }
        true
    })?;
    Ok(count)
}

#[test]
fn an_unreadable_neighbour_does_no_harm() {
    let device = device();
    let volume = open(device.clone(), VolumeOptions::default());
    let (directory, _) = fill(&volume)[DIRECTORIES as usize / 2];
    volume.close().expect("the volume closes");

    let volume = open(device.clone(), VolumeOptions::default());
    device.take_reads();
    assert_eq!(list(&volume, directory).expect("a listing"), FILES);
    let reads = device.take_reads();
    volume.close().expect("the volume closes");
    let together = reads.iter().find(|read| read.block_count > 8).expect("nodes are read together");

    let outcomes = (0..together.block_count).map(|no| {
        let volume = open(device.clone(), VolumeOptions::default());
        device.inner().fail_reads(together.address + no..together.address + no + 1);
        let outcome = list(&volume, directory);
        let is_remembered = !volume.remembered().is_empty();
        device.inner().heal();
        match outcome {
            Ok(count) => {
                assert_eq!((count, is_remembered), (FILES, true), "a retry has succeeded")
            }
            Err(ref error) => {
                assert!(matches!(error, Error::Device(_)) && is_remembered, "{error:?}")
            }
        }
        outcome.is_ok()
    });
    let harmless = outcomes.filter(|is_ok| *is_ok).count() as u64;
    assert!(
        (1..together.block_count).contains(&harmless),
        "{harmless} of {}",
        together.block_count
    );
}

/// Regression: one request for several nodes that failed ended reading along for the rest of the mount, and nothing told of it.
#[test]
fn one_failure_does_not_end_reading_along() {
    let device = device();
    let volume = open(device.clone(), VolumeOptions::default());
    fill(&volume);
    volume.close().expect("the volume closes");
    let (requests, nodes) = cold_walk(&device);

    let volume = open(device.clone(), VolumeOptions::default());
    device.take_reads();
    walk(&volume, ROOT_INO);
    let reads = device.take_reads();
    volume.close().expect("the volume closes");
    let at = reads.iter().position(|read| read.block_count > 8).expect("nodes are read together");
    let blocks = reads[at].block_count;

    let volume = open(device.clone(), VolumeOptions::default());
    let before = device.counts().reads;
    device.inner().fail_nth(Operation::Read, at as u64 + 1);
    assert_eq!(walk(&volume, ROOT_INO), DIRECTORIES * (FILES + 1));
    let with_failure = device.counts().reads - before;
    assert!(!volume.remembered().is_empty(), "a retry has succeeded");
    volume.close().expect("the volume closes");
    // Each node of the failed request is read alone.
    assert!(
        (requests + 1..=requests + 1 + blocks).contains(&with_failure),
        "{with_failure} requests for {nodes} nodes, {requests} without a failure"
    );
}
