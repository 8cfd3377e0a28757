//! Memory of the daemon: the budgets of the options, and a fixed amount more, under every load.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_memory/mixed_load.rs"]
mod mixed_load;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::{Mount, TestVolume, can_mount};
use mixed_load::MixedLoad;
use rustix::fs::{Advice, fadvise};
use sfs_testkit::SeededRng;

const SIZE: &str = "2G";
const MIB: u64 = 1 << 20;

/// Budget of `write_buffer=` and of `cache=`, each.
const BUDGET: u64 = 16 * MIB;

/// Allowance for threads and their requests, batches in flight, and inodes that the kernel has
/// looked up.
const OVERHEAD: u64 = 64 * MIB;

/// Additional allowance for io_uring, which has more threads with buffers.
const RINGS: u64 = 16 * MIB;

const LARGE_LEN: u64 = 256 * MIB;
const SMALL_FILES: u64 = 50_000;
const FILES_PER_DIRECTORY: u64 = 1000;

#[test]
fn mounted_volumes_stay_within_their_memory_budget() {
    if !can_mount() {
        return;
    }
    std::thread::scope(|scope| {
        for cache in harness::CACHES {
            scope.spawn(move || stays_within_its_budget(cache));
        }
    });
}

fn stays_within_its_budget(cache: &str) {
    let volume = TestVolume::on_disk(SIZE);
    let mount = volume.mount(&format!("write_buffer={BUDGET},cache={BUDGET},{cache}"));
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

/// Returns the peak memory of the daemon, in bytes.
fn peak(mount: &Mount) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", mount.daemon.as_raw_nonzero()));
    let status = status.expect("the daemon runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).map(str::parse::<u64>);
    kib.expect("the kernel reports the peak").expect("a number") << 10
}

/// A load and its name.
type Work = (&'static str, fn(&Path));

const WORK: [Work; 4] = [
    ("writing a large file", write_large),
    ("overwriting parts of the large file and reading it", change_large),
    ("making many small files", make_small),
    ("reading the small files", read_small),
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

/// Number of files that are made and deleted.
const CYCLE_FILES: u64 = 16_000;

/// Memory that is allowed in addition to the budgets.
const BESIDE_BUDGETS: u64 = 32 * MIB;

/// Regression: metadata that checkpoints had written stayed in memory.
#[test]
fn creating_and_deleting_files_leaves_memory_within_the_budgets() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::on_disk("256M");
    let mount = volume.mount("write_buffer=2M,cache=2M");
    for index in 0..CYCLE_FILES {
        let path = small(&mount.dir, index);
        if index % FILES_PER_DIRECTORY == 0 {
            fs::create_dir(path.parent().expect("a directory")).expect("a new directory");
        }
        fs::write(path, [7; 1000]).expect("a new file");
    }
    for directory in 0..CYCLE_FILES.div_ceil(FILES_PER_DIRECTORY) {
        fs::remove_dir_all(mount.dir.join(directory.to_string()))
            .expect("the directory is removed");
    }
    let (most, rings) =
        (peak(&mount), if harness::transport_used() == "uring" { RINGS } else { 0 });
    println!("{} MiB", most / MIB);
    assert!(most <= 4 * MIB + BESIDE_BUDGETS + rings, "{} MiB", most / MIB);
    mount.unmount();
}

/// Size of the file that is written through a daemon with little memory.
const MUCH: u64 = 96 * MIB;

/// Writes more data than the daemon may keep in memory, and reads the data back.
fn write_and_read_much(dir: &Path) {
    let (path, piece) = (dir.join("much"), SeededRng::new(4).bytes(MIB as usize));
    let file = File::create(&path).expect("a new file");
    for start in (0..MUCH).step_by(MIB as usize) {
        file.write_all_at(&piece, start).expect("writing");
    }
    file.sync_all().expect("syncing");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    let read = fs::read(&path).expect("reading");
    assert!(read.chunks(MIB as usize).all(|chunk| chunk == piece), "the content has changed");
}

/// Regression: the daemon ended when it could not map memory for data.
#[test]
fn a_volume_works_with_a_limited_address_space() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::on_disk("256M");
    for (options, is_told) in [("rw", false), ("write_buffer=256M,cache=256M", true)] {
        let output = harness::sfs_mount_by(
            &["prlimit", "--as=134217728"],
            &volume.device,
            &volume.dir,
            options,
        );
        let said = harness::stderr(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("too low for write_buffer=256 MiB"), is_told, "{said}");
        let mount = volume.mounted();
        write_and_read_much(&mount.dir);
        mount.unmount();
    }
}

/// A control group of this test with a memory limit, removed when dropped.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Makes a group below the one of this process; prints the reason if that is not possible.
    fn limited_to(bytes: u64) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").expect("Linux");
        let first = groups.lines().find_map(|line| line.split_once(":memory:"));
        let second = || groups.lines().find_map(|line| line.strip_prefix("0::"));
        let (parent, file) = match (first, second()) {
            (Some((_, path)), _) => {
                (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes")
            }
            (None, Some(path)) => (format!("/sys/fs/cgroup{path}"), "memory.max"),
            (None, None) => return None,
        };
        let group = Self(Path::new(&parent).join(format!("sfs-test-{}", std::process::id())));
        let made = fs::create_dir(&group.0)
            .and_then(|()| fs::write(group.0.join(file), bytes.to_string()));
        if let Err(error) = made {
            eprintln!("skipped: no control group with a limit: {error}");
            return None;
        }
        Some(group)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Regression: the kernel killed the daemon.
#[test]
fn a_volume_works_in_a_control_group_of_48_mib() {
    if !can_mount() {
        return;
    }
    let Some(group) = ControlGroup::limited_to(48 * MIB) else { return };
    let volume = TestVolume::on_disk("256M");
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0.display());
    let output =
        harness::sfs_mount_by(&["sh", "-c", &enter, "sh"], &volume.device, &volume.dir, "rw");
    assert!(output.status.success(), "{}", harness::stderr(&output));
    let mount = volume.mounted();
    write_and_read_much(&mount.dir);
    make_few_small(&mount.dir);
    let most = peak(&mount);
    mount.unmount();
    assert!(most <= 48 * MIB, "{} MiB", most / MIB);
}

fn make_few_small(dir: &Path) {
    (0..2000).for_each(|index| {
        fs::write(dir.join(index.to_string()), [7; 1000]).expect("a new file");
    });
}

/// Number of files that the kernel may refer to with `cache=1M`.
const REFERENCES_MAX: u64 = 4096;

/// Returns the number of references that the kernel holds, from `sfs-ctl stat`.
fn references(mount: &Mount) -> u64 {
    let output = harness::sfs_ctl_stat(&mount.dir, &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let count = report.pointer("/transport/references").and_then(serde_json::Value::as_u64);
    count.unwrap_or_else(|| panic!("{report:#}"))
}

/// Regression: the kernel referred to every file that it had seen, and the daemon kept them all.
#[test]
fn the_kernel_forgets_files_beyond_a_number_but_none_in_use() {
    if !can_mount() {
        return;
    }
    if harness::transport_used() == "fuser" {
        eprintln!("skipped: fuser cannot ask the kernel to forget files");
        return;
    }
    let volume = TestVolume::on_disk("256M");
    let mount = volume.mount("cache=1M");
    let path = |index: u64| mount.dir.join(index.to_string());
    fs::write(path(0), "in use").expect("a new file");
    let mut used = File::open(path(0)).expect("the file exists");
    (1..2 * REFERENCES_MAX).for_each(|index| drop(File::create(path(index)).expect("a new file")));
    // The daemon asks the kernel at most once a second: the next lookup makes it ask again.
    let mut next = 2 * REFERENCES_MAX;
    sfs_testkit::wait_until("the kernel has forgotten files", || {
        drop(File::create(path(next)).expect("a new file"));
        next += 1;
        references(&mount) <= REFERENCES_MAX
    });
    let shown =
        fs::read_link(format!("/proc/self/fd/{}", used.as_raw_fd())).expect("the file is open");
    assert_eq!(shown, path(0), "the name of an open file stays");
    let mut text = String::new();
    used.read_to_string(&mut text).expect("reading");
    assert_eq!(text, "in use");
    assert_eq!(fs::read_dir(&mount.dir).expect("the directory is read").count() as u64, next);
    drop(used);
    mount.unmount();
    volume.check();
}

/// Seconds of the mixed load if `SFS_MIXED_SECS` is not set, and seconds from which on the load is
/// large.
const MIXED_SECS: u64 = 8;
const MIXED_SECS_LARGE: u64 = 60;

/// Bytes of memory for each file that the kernel refers to: the table grows by doubling.
const REFERENCE_LEN: u64 = 128;

/// Regression: large buffers came from the allocator's heap and left holes in it, cleaning and checkpoints took more
/// nodes than the cache has, and the pool kept 8 MiB beside a full write buffer of 8 MiB.
#[test]
fn a_mixed_load_stays_within_the_budgets() {
    if !can_mount() {
        return;
    }
    let secs =
        std::env::var("SFS_MIXED_SECS").map_or(MIXED_SECS, |secs| secs.parse().expect("seconds"));
    let (size, scale) = if secs < MIXED_SECS_LARGE { ("512M", 1) } else { ("2G", 4) };
    let load = MixedLoad {
        duration: Duration::from_secs(secs),
        files: 20_000 * scale,
        large_len: scale * 128 * MIB,
        others: 4000 * scale,
    };
    let volume = TestVolume::on_disk(size);
    let mount = volume.mount("write_buffer=8M,cache=8M");
    load.run(&mount.dir);
    let (most, kept) = (peak(&mount), references(&mount) * REFERENCE_LEN);
    let rings = if harness::transport_used() == "uring" { RINGS } else { 0 };
    println!("{secs} s: {} MiB at most, {} KiB for references", most / MIB, kept >> 10);
    assert!(most <= 16 * MIB + BESIDE_BUDGETS + rings + kept, "{} MiB", most / MIB);
    mount.unmount();
    volume.check();
}

/// Lengths of the files that are synced before the daemon gets no more memory.
const SYNCED_LENS: [usize; 4] = [0, 100, 5000, 300_000];

/// A small allocation that fails ends the daemon. Synced data is there afterwards.
#[test]
fn a_daemon_that_ends_without_memory_loses_nothing_synced() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let bytes = SeededRng::new(9).bytes(300_000);
    for (index, len) in SYNCED_LENS.iter().cycle().take(32).enumerate() {
        let path = mount.dir.join(format!("synced-{index}"));
        fs::write(&path, &bytes[..*len]).expect("a new file");
        File::open(&path).and_then(|file| file.sync_all()).expect("syncing");
    }
    let pid = mount.daemon.as_raw_nonzero().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, "--as=1048576"]).status();
    assert!(limited.expect("prlimit runs").success());
    // Each new name needs memory for nodes, until the allocator has none left.
    let made = (0..).take_while(|index| {
        let made = File::create(mount.dir.join(format!("a name of some length, {index}")));
        made.is_ok() || mount.is_served()
    });
    println!("{} names were tried", made.count());
    mount.wait_for_death();
    mount.detach();
    volume.check();
    let mount = volume.mount("");
    for (index, len) in SYNCED_LENS.iter().cycle().take(32).enumerate() {
        let found = fs::read(mount.dir.join(format!("synced-{index}"))).expect("synced data");
        assert!(found == bytes[..*len], "file {index}");
    }
    mount.unmount();
}
