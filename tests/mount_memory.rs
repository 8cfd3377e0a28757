//! Memory of the daemon: the budgets of the options, and a fixed amount more, under every load.

#[expect(dead_code, reason = "every test program uses a part of it")]
mod harness;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use harness::{Mount, TestVolume, can_mount};
use rustix::fs::{Advice, fadvise};
use sfs_testkit::SeededRng;

const SIZE: &str = "2G";
const MIB: u64 = 1 << 20;

/// Budget of `write_buffer=` and of `cache=`, each.
const BUDGET: u64 = 16 * MIB;

/// Allowance for threads and their requests, batches in flight, and inodes that the kernel has
/// looked up.
const OVERHEAD: u64 = 64 * MIB;

/// Allowance for the buffers of the io_uring threads, of which there are more.
const RINGS: u64 = 16 * MIB;

const LARGE_LEN: u64 = 256 * MIB;
const SMALL_FILES: u64 = 50_000;
const FILES_PER_DIRECTORY: u64 = 1000;

#[test]
fn mounted_volumes_stay_within_their_memory_budget() {
    if !can_mount() {
        return;
    }
    let options = format!("write_buffer={BUDGET},cache={BUDGET}");
    for cache in harness::CACHES {
        let volume = TestVolume::on_disk(SIZE);
        let mount = volume.mount(&format!("{options},{cache}"));
        let mut most = 0;
        for (what, work) in WORK {
            work(&mount.dir);
            most = peak(&mount);
            println!("{cache}: {} MiB after {what}", most / MIB);
        }
        mount.unmount();
        let rings = if harness::transport_used() == "uring" { RINGS } else { 0 };
        assert!(most <= 2 * BUDGET + OVERHEAD + rings, "{cache}: {} MiB", most / MIB);
    }
}

/// Returns the peak memory of the daemon, in bytes.
fn peak(mount: &Mount) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", mount.daemon.as_raw_nonzero()));
    let status = status.expect("the daemon runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).map(str::parse::<u64>);
    kib.expect("Linux says it").expect("a number") << 10
}

/// A load and its name.
type Work = (&'static str, fn(&Path));

const WORK: [Work; 4] = [
    ("writing a large file", write_large),
    ("reading it and overwriting parts", change_large),
    ("making many small files", make_small),
    ("reading them", read_small),
];

fn large(dir: &Path) -> PathBuf {
    dir.join("large")
}

fn small(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("{}/{index}", index / FILES_PER_DIRECTORY))
}

fn write_large(dir: &Path) {
    let file = File::create(large(dir)).expect("a new file");
    let piece = SeededRng::new(1).bytes(MIB as usize);
    for start in (0..LARGE_LEN).step_by(MIB as usize) {
        file.write_all_at(&piece, start).expect("writing");
    }
    file.sync_all().expect("syncing");
}

fn change_large(dir: &Path) {
    let file = File::options().read(true).write(true).open(large(dir)).expect("the entry exists");
    let mut random = SeededRng::new(2);
    for _ in 0..4096 {
        let start = random.below(LARGE_LEN - MIB);
        let len = 1 << random.below(16);
        let bytes = random.bytes(len);
        file.write_all_at(&bytes, start).expect("writing");
    }
    file.sync_all().expect("syncing");
    read_past_the_cache(file, LARGE_LEN);
}

fn make_small(dir: &Path) {
    let bytes = SeededRng::new(3).bytes(10_000);
    for index in 0..SMALL_FILES {
        let path = small(dir, index);
        if index % FILES_PER_DIRECTORY == 0 {
            fs::create_dir(path.parent().expect("a directory")).expect("a new directory");
        }
        fs::write(path, &bytes[..small_len(index)]).expect("a new file");
    }
}

fn small_len(index: u64) -> usize {
    (index * 37 % 10_000) as usize
}

fn read_small(dir: &Path) {
    for index in 0..SMALL_FILES {
        let file = File::open(small(dir, index)).expect("the entry exists");
        read_past_the_cache(file, small_len(index) as u64);
    }
}

/// Reads a file of `len` bytes of which the kernel's cache holds no clean page.
fn read_past_the_cache(mut file: File, len: u64) {
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    let (mut piece, mut seen) = (vec![0; MIB as usize], 0);
    loop {
        match file.read(&mut piece).expect("reading") {
            0 => break,
            count => seen += count as u64,
        }
    }
    assert_eq!(seen, len);
}
