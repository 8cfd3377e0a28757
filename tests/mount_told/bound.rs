//! The bound on dirty pages of a mount in the kernel's cache.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{TestVolume, can_mount, sfs_ctl_stat, stderr};
use crate::kernel::bounds_dirty_pages;
use sfs_testkit::wait_until;

const MIB: u64 = 1 << 20;

/// Number of tasks that write at once, and bytes that each writes.
const TASKS: usize = 64;
const TASK_BYTES: u64 = 3 * MIB;

/// Bytes that a task dirties between two checks of the bound (`ratelimit_pages` of the kernel).
const TASK_STEP: u64 = 128 << 10;

/// Pause between two measurements of the written bytes, and number of measurements without progress
/// after which all tasks wait.
const PAUSE: Duration = Duration::from_millis(20);
const QUIET: u32 = 25;

/// Returns the numbers of the volume at `path`.
pub(crate) fn numbers(path: &Path) -> Value {
    let output = sfs_ctl_stat(path, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the directory of the kernel's files about the dirty pages of a mount.
fn files(dir: &Path) -> PathBuf {
    let number = fs::metadata(dir).expect("the mount answers").dev();
    let name = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let base = Path::new("/sys/class/bdi");
    let block = base.join(format!("{name}-fuseblk"));
    if block.exists() { block } else { base.join(name) }
}

fn read(file: PathBuf) -> u64 {
    fs::read_to_string(file).expect("the kernel has the file").trim().parse().expect("a number")
}

/// With synchronous reads the kernel sends fewer writes at a time than there are threads. They are the rule where the daemon reads
/// ahead for root, and on slow devices, which it reads ahead as well.
#[test]
fn reads_are_synchronous_where_that_is_no_slower() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let content: Vec<u8> = (0..3 * MIB).map(|byte| (byte / 4096) as u8).collect();
    for (options, threads, is_asynchronous) in [
        ("async_read=off,threads=1", 1, Some(false)),
        ("async_read=off,threads=3", 3, Some(false)),
        ("async_read=on,threads=3", 3, Some(true)),
        ("threads=3", 3, None),
        ("threads=3,cache=8M", 3, None),
    ] {
        let mount = volume.mount(options);
        fs::write(mount.dir.join("file"), &content).expect("there is room");
        mount.unmount();
        let mount = volume.mount(options);
        assert_eq!(fs::read(mount.dir.join("file")).expect("readable"), content, "{options}");
        let report = numbers(&mount.dir);
        let is_read_ahead = report["reads"]["window_bytes_max"].as_u64().expect("a number") > 0;
        assert!(!is_read_ahead || !options.contains("cache=8M"), "{options}");
        let by_default = !(is_read_ahead && rustix::process::geteuid().is_root());
        let is_asynchronous = is_asynchronous.unwrap_or(by_default);
        assert_eq!(report["cache"]["asynchronous_reads"], is_asynchronous, "{options}");
        let minor = rustix::fs::minor(fs::metadata(&mount.dir).expect("the mount answers").dev());
        let connection = Path::new("/sys/fs/fuse/connections").join(minor.to_string());
        if connection.exists() {
            let expected = if is_asynchronous { 2 * threads } else { (threads - 1).max(1) };
            assert_eq!(read(connection.join("max_background")), expected, "{options}");
        }
        mount.unmount();
    }
}

/// While the daemon is stopped no data reaches it: the bytes that tasks could write are in the
/// kernel's cache.
#[test]
fn mounted_volumes_bound_the_dirty_pages_of_many_tasks() {
    if !can_mount() || !bounds_dirty_pages() {
        return;
    }
    let volume = TestVolume::new("256M");
    let mount = volume.mount("writeback=on");
    let space = numbers(&mount.dir)["space"].clone();
    let bound = space["available_blocks"].as_u64().expect("a number") * 4096 / 4;
    // The first write makes the kernel request attributes; later writes do not.
    let create = |task: usize| {
        let mut file = File::create(mount.dir.join(task.to_string())).expect("creating");
        file.write_all(&[0; 4096]).expect("there is room");
        file
    };
    let files: Vec<File> = (0..TASKS).map(create).collect();
    let (written, going) = (AtomicU64::new(0), AtomicUsize::new(TASKS));
    let held = thread::scope(|scope| {
        mount.signal(Signal::STOP);
        for (task, mut file) in files.into_iter().enumerate() {
            let (written, going) = (&written, &going);
            scope.spawn(move || {
                let piece = vec![task as u8; 64 << 10];
                for _ in 0..TASK_BYTES / piece.len() as u64 {
                    file.write_all(&piece).expect("there is room");
                    written.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
                going.fetch_sub(1, Ordering::Relaxed);
                // The file stays open, because close(2) would wait for write-back.
                while going.load(Ordering::Relaxed) > 0 {
                    thread::sleep(PAUSE);
                }
            });
        }
        let mut before = 0;
        let mut quiet = 0;
        while going.load(Ordering::Relaxed) > 0 && quiet < QUIET {
            thread::sleep(PAUSE);
            let now = written.load(Ordering::Relaxed);
            quiet = if now - before < MIB / 4 { quiet + 1 } else { 0 };
            before = now;
        }
        mount.signal(Signal::CONT);
        before
    });
    let limit = bound + bound / 8 + TASKS as u64 * TASK_STEP;
    assert!(held <= limit, "{} MiB held, {} MiB allowed", held / MIB, limit / MIB);
    // Linux 6.12 limits a mount that has written nothing to its `min_bytes`, 4 MiB.
    let least = (bound / 4).min(3 * MIB);
    assert!(held >= least, "{} MiB held of {} MiB: too few", held / MIB, bound / MIB);
    mount.unmount();
}

/// The bound follows the free space, and `sfs-ctl stat` shows the kernel's value.
#[test]
fn mounted_volumes_bound_dirty_pages_by_free_space() {
    if !can_mount() || !bounds_dirty_pages() {
        return;
    }
    let volume = TestVolume::new("128M");
    let mount = volume.mount("writeback=on");
    let shown = || {
        let report = numbers(&mount.dir);
        let free = report["space"]["available_blocks"].as_u64().expect("a number") * 4096;
        let cache = report["cache"].clone();
        assert_eq!(cache["bounds_refused"], 0, "{cache}");
        (free, cache["dirty_bytes_max"].as_u64().expect("root may read the bound"))
    };
    // The bound is set again when the free space has halved or doubled.
    let is_near = |(free, bound): (u64, u64)| bound > free / 10 && bound < free * 6 / 10;
    wait_until("the bound is set", || is_near(shown()));
    let (_, before) = shown();
    // The kernel applies a share of its dirty threshold, which moves.
    let kernels = read(files(&mount.dir).join("max_bytes"));
    assert!(before.abs_diff(kernels) < kernels / 8, "SFS shows {before}, the kernel {kernels}");
    let path = mount.dir.join("file");
    let mut file = File::create(&path).expect("creating");
    file.write_all(&vec![7; 80 * MIB as usize]).expect("there is room");
    file.sync_all().expect("there is room");
    wait_until("the bound has shrunk", || shown().1 < before / 2 && is_near(shown()));
    drop(file);
    fs::remove_file(&path).expect("deleting");
    wait_until("the bound has grown again", || is_near(shown()) && shown().1 > before / 2);
    mount.unmount();
}
