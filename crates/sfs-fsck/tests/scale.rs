//! Memory and time of a check, and of a mount with data in place, as a volume grows.
//!
//! `SFS_FILES` is the number of files, `SFS_MAPPED` the number of blocks in place, and `SFS_GIB`
//! the size of the volume, whose image is sparse. `cargo xtask scale` runs these tests in an
//! optimized build with large numbers.

use std::env;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, DataLayout, FIRST_INO, FileKind, History, Inode,
    InodeFlags, ItemKind, Key, Layout, Mapping, MappingRun, ROOT_INO, RUN_BLOCKS, SegmentState,
    Superblock, Timestamp, UsageEntry, run_key,
};
use sfs_core::request::VolumeOptions;
use sfs_core::{Basis, Moved, Rebuild, Volume, make, root_directory};
use sfs_device::{Access, BLOCK_SIZE, Block, Device, FileDevice};
use sfs_fsck::{CheckOptions, check};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

/// Number of files in a directory.
const DIRECTORY_FILES: u64 = 1000;

/// One file in this number of files has a block of data; the others have inline content.
const BLOCK_INTERVAL_FILES: u64 = 100;

/// Number of blocks of a file with data in place: 1 GiB.
const PLACED_FILE_BLOCKS: u64 = 1 << 18;

/// Number of blocks of a segment: 8 MiB.
const SEGMENT_BLOCKS: u64 = 2048;

/// Environment variable of a measured process: the path of the image.
const MEASURED: &str = "SFS_MEASURED_IMAGE";

/// Returns the maximum memory, in bytes, that a check of `files` files takes beyond a check of a
/// small volume: sums of links by bucket while the sums grow, directories, bits for the nodes of
/// the tree, and room for the allocator.
fn growth_max(files: u64) -> u64 {
    let (sums, directories) = (files.min(1 << 20) * 12, files.div_ceil(DIRECTORY_FILES) * 128);
    sums + directories + (4 << 20)
}

/// Returns the number in the environment variable `name`, or `default`.
fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// New volume on a sparse image, with the items that a test puts.
struct BulkLoad {
    rebuild: Rebuild,
    hash_key: [u64; 2],
}

impl BulkLoad {
    /// Makes a volume of `gib` GiB at `path`. The last `placed_segments` segments hold data in place.
    fn begin(path: &Path, gib: u64, data_layout: DataLayout, placed_segments: u64) -> Self {
        File::create(path).and_then(|file| file.set_len(gib << 30)).expect("an image");
        let device: Arc<dyn Device> =
            Arc::new(FileDevice::open(path, Access::ReadWrite).expect("a device"));
        let layout = Layout::new(gib << 18, SEGMENT_BLOCKS, 0).expect("a layout");
        let superblock = Superblock {
            uuid: *b"0123456789abcdef",
            hash_key: [1, 2],
            data_layout,
            ..Superblock::new(layout)
        };
        make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("a volume");
        let at = layout.slots[0];
        let mut slot = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
        device.read(at, &mut slot).expect("a slot");
        let record = CheckpointRecord::decode(Block::bytes_of(&slot), superblock.volume(), at);
        // Segments are opened in an order that spreads the nodes over the whole volume.
        let entry = |segment: u64| UsageEntry {
            stamp: segment.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            ..UsageEntry::NEW
        };
        let count = u64::from(layout.segment_count);
        let mut usage: Vec<UsageEntry> = (0..count).map(entry).collect();
        usage[0].state = SegmentState::Open;
        for entry in &mut usage[(count - placed_segments) as usize..] {
            entry.state = SegmentState::InPlace;
        }
        let basis = Basis { record: record.expect("a checkpoint"), usage, time: 0 };
        let rebuild = Rebuild::begin(device, &superblock, &basis).expect("a table");
        Self { rebuild, hash_key: superblock.hash_key }
    }

    fn put(&self, key: &Key, value: &[u8]) {
        self.rebuild.put(key, value).expect("space");
    }

    /// Puts a directory with these inode numbers, kinds and names.
    fn put_directory(&self, ino: u64, entries: &[(u64, FileKind, String)]) {
        let directories = entries.iter().filter(|(_, kind, _)| *kind == FileKind::Directory);
        let inode = Inode {
            links: 2 + directories.count() as u32,
            size: entries.len() as u64,
            ..root_directory(0, 0, NOW)
        };
        self.put(&Key::inode(ino), &inode.encode());
        let cookie = |name: &str| {
            let mut hasher =
                siphasher::sip::SipHasher13::new_with_keys(self.hash_key[0], self.hash_key[1]);
            std::hash::Hasher::write(&mut hasher, name.as_bytes());
            (std::hash::Hasher::finish(&hasher) >> 9).max(1) << 8
        };
        let value = |target: u64, kind: FileKind, name: &str| {
            [&target.to_le_bytes(), &[kind as u8][..], name.as_bytes()].concat()
        };
        let mut items: Vec<(u64, Vec<u8>)> = { entries.iter() }
            .map(|(target, kind, name)| (cookie(name), value(*target, *kind, name)))
            .collect();
        items.sort_unstable();
        for (cookie, value) in items {
            self.put(&Key::new(ino, ItemKind::Dirent, cookie), &value);
        }
    }

    /// Puts a file with inline content, or with the block at `mapping`.
    fn put_file(&self, ino: u64, mapping: Option<Mapping>) {
        let blocks = u64::from(mapping.is_some());
        let flags = if blocks == 0 { InodeFlags::INLINE } else { InodeFlags::NONE };
        let inode = Inode {
            mode: FileKind::Regular.mode_bits() | 0o644,
            links: 1,
            parent: 0,
            blocks,
            size: 20,
            flags,
            ..root_directory(0, 0, NOW)
        };
        self.put(&Key::inode(ino), &inode.encode());
        match mapping {
            None => self.put(&Key::new(ino, ItemKind::Inline, 0), &[b'x'; 20]),
            Some(mapping) => self.put_run(ino, 0, &[(0, mapping)]),
        }
    }

    fn put_run(&self, ino: u64, first: u32, mappings: &[(u32, Mapping)]) {
        let (mut run, mut value) = (MappingRun::default(), Vec::new());
        for (block, mapping) in mappings {
            run.set(*block, Some(*mapping));
        }
        run.encode(&mut value);
        self.put(&run_key(ino, first), &value);
    }

    fn move_block(&self, ino: u64) -> Mapping {
        let content = Block([ino as u8; BLOCK_SIZE]);
        let moved = Moved { ino, block: 0, history: History::default(), content };
        self.rebuild.move_blocks(vec![moved]).expect("space")[0]
    }
}

/// Makes a volume with `files` small files in directories of [`DIRECTORY_FILES`].
fn make_files(path: &Path, gib: u64, files: u64) {
    let load = BulkLoad::begin(path, gib, DataLayout::Log, 0);
    let directories = files.div_ceil(DIRECTORY_FILES);
    let (first, end) = (FIRST_INO + directories, FIRST_INO + directories + files);
    let mapped: Vec<u64> = (first..end).step_by(BLOCK_INTERVAL_FILES as usize).collect();
    let mappings: Vec<Mapping> = mapped.iter().map(|ino| load.move_block(*ino)).collect();
    let directory = |ino| (ino, FileKind::Directory, format!("directory {ino}"));
    let entries: Vec<_> = (FIRST_INO..first).map(directory).collect();
    load.put_directory(ROOT_INO, &entries);
    for ino in FIRST_INO..first {
        let from = first + (ino - FIRST_INO) * DIRECTORY_FILES;
        let file = |ino| (ino, FileKind::Regular, format!("file {ino}"));
        let entries: Vec<_> = (from..end.min(from + DIRECTORY_FILES)).map(file).collect();
        load.put_directory(ino, &entries);
    }
    for ino in first..end {
        load.put_file(ino, mapped.binary_search(&ino).ok().map(|index| mappings[index]));
    }
    load.rebuild.commit(end).expect("space");
}

/// Makes a volume with `mapped` blocks in place, in files of [`PLACED_FILE_BLOCKS`].
fn make_placed(path: &Path, gib: u64, mapped: u64) {
    let segments = mapped.div_ceil(SEGMENT_BLOCKS);
    let load = BulkLoad::begin(path, gib, DataLayout::GreedySpace, segments);
    let layout = Layout::new(gib << 18, SEGMENT_BLOCKS, 0).expect("a layout");
    let base = layout.segment_address(layout.segment_count - segments as u32);
    let end = FIRST_INO + mapped.div_ceil(PLACED_FILE_BLOCKS);
    let file = |ino| (ino, FileKind::Regular, format!("file {ino}"));
    let entries: Vec<_> = (FIRST_INO..end).map(file).collect();
    load.put_directory(ROOT_INO, &entries);
    for ino in FIRST_INO..end {
        let from = (ino - FIRST_INO) * PLACED_FILE_BLOCKS;
        let blocks = PLACED_FILE_BLOCKS.min(mapped - from);
        let inode = Inode {
            mode: FileKind::Regular.mode_bits() | 0o644,
            links: 1,
            parent: 0,
            blocks,
            size: blocks * BLOCK_SIZE as u64,
            ..root_directory(0, 0, NOW)
        };
        load.put(&Key::inode(ino), &inode.encode());
        for first in (0..blocks).step_by(RUN_BLOCKS as usize) {
            let run = first..blocks.min(first + u64::from(RUN_BLOCKS));
            let mapping = |block| (block as u32, Mapping::in_place(base + from + block));
            let mappings: Vec<_> = run.map(mapping).collect();
            load.put_run(ino, first as u32, &mappings);
        }
    }
    load.rebuild.commit(end).expect("space");
}

/// Returns a `field` of `/proc/self/status` in bytes: `VmRSS:` is the present memory of this
/// process, `VmHWM:` the peak.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a line");
    let kib = line.split_whitespace().nth(1).expect("a number");
    kib.parse::<u64>().expect("a number") << 10
}

/// Runs `work`, and prints its time and the memory that it adds.
fn print_cost(work: impl FnOnce() -> String) {
    let (before, since) = (memory("VmRSS:"), Instant::now());
    let result = work();
    let bytes = memory("VmHWM:") - before;
    println!("cost {bytes} {} {result}", since.elapsed().as_millis());
}

/// Runs `test` of this program in a process of its own, which calls [`print_cost`]. Returns the
/// number of bytes that the process prints.
fn cost_of(test: &str, image: &Path) -> u64 {
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    command.args(["--exact", test, "--nocapture"]).env(MEASURED, image);
    let output = command.output().expect("the child process runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.split_once("cost ")).expect("a line").1;
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().expect("a word");
    let (bytes, millis): (u64, u64) = (word().parse().expect("bytes"), word().parse().expect("ms"));
    let (mib, seconds) = (bytes as f64 / f64::from(1 << 20), millis as f64 / 1e3);
    println!("{test}: {seconds:.1} s, {mib:.1} MiB, {}", word());
    bytes
}

#[test]
fn memory_of_a_check_does_not_grow_with_files() {
    if let Some(path) = env::var_os(MEASURED) {
        let device = FileDevice::open(path.as_ref(), Access::ReadOnly).expect("a device");
        return print_cost(|| {
            let go_on = &mut |_| ControlFlow::Continue(());
            let report = check(&device, &CheckOptions::default(), go_on).expect("a volume");
            assert_eq!(report.errors(), 0, "{:?}", report.shown().next());
            report.to_string()
        });
    }
    let directory = tempfile::tempdir().expect("a directory");
    let cost = |files| {
        let image = directory.path().join("image");
        make_files(&image, number("SFS_GIB", 1), files);
        let cost = cost_of("memory_of_a_check_does_not_grow_with_files", &image);
        fs::remove_file(image).expect("an image");
        cost
    };
    let (few, files) = (cost(1000), number("SFS_FILES", 100_000));
    let growth = cost(files).saturating_sub(few);
    let bound = growth_max(files);
    println!("{files} files: {growth} bytes more than for 1000 files, of {bound} at most");
    assert!(growth <= bound, "{growth} bytes more for {files} files, {bound} at most");
}

#[test]
fn a_mount_finds_the_blocks_in_place() {
    if let Some(path) = env::var_os(MEASURED) {
        let device = FileDevice::open(path.as_ref(), Access::ReadWrite).expect("a device");
        return print_cost(|| {
            let volume = Volume::open(Arc::new(device), VolumeOptions::default(), NOW);
            format!("{:?}", volume.expect("a mount").status().segments)
        });
    }
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    make_placed(&image, number("SFS_GIB", 1), number("SFS_MAPPED", 100_000));
    cost_of("a_mount_finds_the_blocks_in_place", &image);
}
