//! Many threads run all operations at once on a mount, for `SFS_STRESS_SECS` seconds.
//!
//! Some processes are killed in the middle of their requests. Afterwards no request hangs, every
//! thread has read the data that it wrote, and the daemon has as many descriptors as before and no
//! inode that the kernel has forgotten. Threads share no file, only names in one directory.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use harness::{CACHES, Mount, TestVolume, can_mount, sfs_ctl_stat};
use sfs_testkit::{SeededRng, wait_until};

const SIZE: &str = "512M";
const THREADS: u64 = 64;
/// Number of files of a thread.
const FILES: u64 = 8;
/// Largest size of a file, in bytes.
const LEN_MAX: usize = 200_000;
/// Seconds of the load if `SFS_STRESS_SECS` is not set.
const SECS: u64 = 8;
/// Longest time that a request may take on a slow machine.
const HANG: Duration = Duration::from_secs(120);

#[test]
fn mounted_volumes_serve_many_threads_at_once() {
    if !can_mount() {
        return;
    }
    let secs = env::var("SFS_STRESS_SECS").map_or(SECS, |secs| secs.parse().expect("seconds"));
    let end = Instant::now() + Duration::from_secs(secs);
    let volume = TestVolume::new(SIZE);
    let share = Duration::from_secs(secs.div_ceil(4).min(30));
    for round in 0.. {
        let options = CACHES[round as usize % CACHES.len()];
        println!("round {round}, -o {options}");
        let mount = volume.mount(options);
        let descriptors = descriptors(&mount);
        load(&mount, round, Instant::now() + share);
        expect_nothing_left(&mount, descriptors);
        if round % 2 == 0 {
            mount.unmount();
        } else {
            mount.signal(Signal::TERM);
            mount.wait_for_end();
        }
        volume.check();
        if Instant::now() >= end {
            break;
        }
    }
}

/// Runs all threads until `end`, beside processes that are killed.
fn load(mount: &Mount, round: u64, end: Instant) {
    let shared = mount.dir.join("shared");
    fs::create_dir_all(&shared).expect("a directory");
    let is_over = AtomicBool::new(false);
    let beats: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let dir = mount.dir.join(format!("of-{number}"));
                fs::create_dir_all(&dir).expect("a directory");
                let random = SeededRng::new(round * 1000 + number + 1);
                let mut worker = Worker { number, dir, shared: &shared, random, files: Vec::new() };
                let (beat, is_over) = (&beats[number as usize], &is_over);
                scope.spawn(move || {
                    worker.files = vec![Vec::new(); FILES as usize];
                    while !is_over.load(Ordering::Relaxed) {
                        worker.step();
                        beat.fetch_add(1, Ordering::Relaxed);
                    }
                    worker.clear();
                })
            })
            .collect();
        let mut random = SeededRng::new(round + 77);
        while Instant::now() < end && !workers.iter().any(|worker| worker.is_finished()) {
            kill_a_reader(&mount.dir, &mut random);
        }
        is_over.store(true, Ordering::Relaxed);
        watch(&beats, || workers.iter().all(|worker| worker.is_finished()));
    });
    fs::remove_dir_all(&shared).expect("the threads have ended");
}

/// Ends the test process when a thread hangs, since a hanging thread cannot be joined.
fn watch(beats: &[AtomicU64], is_over: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_over() {
        thread::sleep(Duration::from_millis(10));
        if start.elapsed() > HANG {
            let done: Vec<_> = beats.iter().map(|beat| beat.load(Ordering::Relaxed)).collect();
            eprintln!("a request hangs; steps of each thread: {done:?}");
            std::process::abort();
        }
    }
}

/// Starts a process that reads and writes, and kills it at a random moment.
fn kill_a_reader(dir: &Path, random: &mut SeededRng) {
    let script =
        "while :; do cat \"$0\"/of-*/* > \"$0/killed\"; ls -lR \"$0\"; sync -f \"$0\"; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(dir).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn().expect("sh runs");
    thread::sleep(Duration::from_micros(random.below(100_000)));
    kill_process_group(Pid::from_child(&child), Signal::KILL).expect("the process runs");
    child.wait().expect("the process was killed");
}

/// A thread with its files.
struct Worker<'a> {
    number: u64,
    dir: PathBuf,
    shared: &'a Path,
    random: SeededRng,
    /// Content of each file.
    files: Vec<Vec<u8>>,
}

impl Worker<'_> {
    fn step(&mut self) {
        let index = self.random.below(FILES) as usize;
        let path = self.dir.join(format!("file-{index}"));
        match self.random.below(12) {
            0 | 1 => self.write_anew(index, &path),
            2..=4 => self.overwrite(index, &path),
            5 | 6 => self.read(index, &path, 0),
            7 => self.read(index, &path, libc::O_DIRECT),
            8 => self.cut(index, &path),
            9 => self.sync(&path),
            10 => self.rename(&path),
            _ => self.share_names(),
        }
    }

    fn write_anew(&mut self, index: usize, path: &Path) {
        let len = self.random.below(LEN_MAX as u64) as usize;
        self.files[index] = self.random.bytes(len);
        fs::write(path, &self.files[index]).expect("writing");
    }

    fn overwrite(&mut self, index: usize, path: &Path) {
        let Some(file) = self.open(path, true, 0) else { return };
        let content = &mut self.files[index];
        let start = self.random.below(content.len() as u64 + 1) as usize;
        let bytes = self.random.below(20_000) as usize;
        let bytes = self.random.bytes(bytes.min(LEN_MAX - start));
        content.resize(content.len().max(start + bytes.len()), 0);
        content[start..start + bytes.len()].copy_from_slice(&bytes);
        file.write_all_at(&bytes, start as u64).expect("writing");
    }

    fn read(&self, index: usize, path: &Path, flags: i32) {
        let Some(file) = self.open(path, false, flags) else { return };
        // Direct reads need memory that is aligned to a page.
        let mut memory = vec![0; LEN_MAX.next_multiple_of(4096) + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let room = &mut memory[start..][..LEN_MAX.next_multiple_of(4096)];
        let mut len = 0;
        loop {
            match file.read_at(&mut room[len..], len as u64).expect("reading") {
                0 => break,
                more => len += more,
            }
            if !len.is_multiple_of(4096) {
                break;
            }
        }
        assert!(room[..len] == self.files[index], "{}: unexpected content", path.display());
    }

    fn cut(&mut self, index: usize, path: &Path) {
        let Some(file) = self.open(path, true, 0) else { return };
        let len = self.random.below(LEN_MAX as u64) as usize;
        self.files[index].resize(len, 0);
        file.set_len(len as u64).expect("truncating");
    }

    fn sync(&mut self, path: &Path) {
        if let Some(file) = self.open(path, true, 0) {
            file.sync_all().expect("syncing");
        }
    }

    /// Renames a file away and back.
    fn rename(&mut self, path: &Path) {
        let other = self.shared.join(format!("away-{}", self.number));
        match fs::rename(path, &other) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => {
                moved.expect("renaming");
                fs::rename(&other, path).expect("renaming");
            }
        }
    }

    /// Creates, removes and looks up names that all threads share.
    fn share_names(&mut self) {
        let path = self.shared.join(format!("name-{}", self.random.below(100)));
        let outcome = match self.random.below(6) {
            0 => File::create(&path).map(drop),
            1 => symlink("nowhere", &path),
            2 => fs::create_dir(&path),
            3 => fs::remove_file(&path),
            4 => fs::remove_dir(&path),
            _ => fs::read_dir(self.shared).map(|entries| {
                entries.for_each(|entry| {
                    let _ = entry.expect("an entry").metadata();
                });
            }),
        };
        if let Err(error) = outcome {
            let foreseen = [libc::EEXIST, libc::ENOENT, libc::EISDIR, libc::ENOTDIR, libc::ELOOP];
            assert!(foreseen.contains(&error.raw_os_error().expect("an error number")), "{error}");
        }
    }

    fn open(&self, path: &Path, write: bool, flags: i32) -> Option<File> {
        match OpenOptions::new().read(true).write(write).custom_flags(flags).open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }

    fn clear(&mut self) {
        for index in 0..FILES as usize {
            self.read(index, &self.dir.join(format!("file-{index}")), 0);
        }
        fs::remove_dir_all(&self.dir).expect("the directory of this thread");
    }
}

/// Asserts that the kernel drops every reference, and that the daemon has as many descriptors as
/// before.
fn expect_nothing_left(mount: &Mount, before: usize) {
    wait_until("the kernel has forgotten all inodes", || {
        fs::write("/proc/sys/vm/drop_caches", "2").expect("root may drop caches");
        references(mount) == 0
    });
    wait_until("descriptors are as many as before", || descriptors(mount) <= before);
}

fn references(mount: &Mount) -> u64 {
    let output = sfs_ctl_stat(&mount.dir, &["--json"]);
    let numbers: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    numbers["transport"]["references"].as_u64().expect("a number")
}

fn descriptors(mount: &Mount) -> usize {
    let dir = format!("/proc/{}/fd", mount.daemon.as_raw_nonzero());
    fs::read_dir(dir).expect("the daemon runs").count()
}
