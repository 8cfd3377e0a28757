//! The load of the upgrades: threads with a model of their files, and fio, SQLite and git, which verify their own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sfs_testkit::SeededRng;
use sfs_testkit::number_from_env;

const THREADS: u64 = 3;
const FILES: usize = 4;
const LEN_MAX: usize = 300_000;
const MAPPED_LEN: usize = 256 << 10;

/// Returns the seed of a load, and prints it.
pub(crate) fn seed() -> u64 {
    let seed = number_from_env("SFS_SEED", 1);
    println!("replay: SFS_SEED={seed}");
    seed
}

pub(crate) struct Load {
    root: PathBuf,
    workers: Mutex<Vec<Worker>>,
    is_over: AtomicBool,
}

impl Load {
    pub(crate) fn new(root: &Path) -> Self {
        let seed = seed();
        let workers = (0..THREADS).map(|number| Worker::new(root, number, seed)).collect();
        Self { root: root.into(), workers: Mutex::new(workers), is_over: AtomicBool::new(false) }
    }

    /// Runs the load while `work` runs.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut workers = self.workers.lock();
        thread::scope(|scope| {
            let is_over = || self.is_over.load(Ordering::Relaxed);
            let mut threads = Vec::new();
            for worker in workers.iter_mut() {
                threads.push(scope.spawn(move || worker.work(&is_over)));
            }
            threads.push(scope.spawn(move || map(&self.root.join("mapped"), &is_over)));
            threads.push(scope.spawn(move || fio(&self.root, &is_over)));
            threads.push(scope.spawn(move || sqlite(&self.root, &is_over)));
            threads.push(scope.spawn(move || git(&self.root, &is_over)));
            // A thread that fails must not leave the others running.
            let end = EndOnDrop(&self.is_over);
            let outcome = work();
            drop(end);
            threads.into_iter().for_each(|thread| thread.join().expect("no program sees an error"));
            outcome
        })
    }

    /// Compares all files with the models.
    pub(crate) fn verify(&self) {
        self.workers.lock().iter_mut().for_each(|worker| worker.verify_by_names());
    }
}

/// Ends the threads of a load when dropped, so also after a panic.
pub(crate) struct EndOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Files of one thread, with their content.
struct Worker {
    dir: PathBuf,
    random: SeededRng,
    named: BTreeMap<String, Vec<u8>>,
}

/// File that is open during the whole run; the second one has no name.
struct OpenFile {
    file: File,
    content: Vec<u8>,
}

impl Worker {
    fn new(root: &Path, number: u64, seed: u64) -> Self {
        let dir = root.join(format!("worker-{number}"));
        fs::create_dir(&dir).expect("room");
        Self { dir, random: SeededRng::new(seed ^ number << 48), named: BTreeMap::new() }
    }

    fn work(&mut self, is_over: &impl Fn() -> bool) {
        let mut open: Vec<_> = ["open", "nameless"].map(|name| self.open(name)).into();
        fs::remove_file(self.dir.join("nameless")).expect("the file");
        while !is_over() {
            let which = self.random.below(2) as usize;
            match self.random.below(10) {
                0..4 => self.change(&mut open[which]),
                4..6 => self.compare(&mut open[which]),
                6 => self.replace(),
                7 => self.move_or_remove(),
                8 => self.compare_names(),
                _ => open[which].file.sync_all().expect("no program sees an error"),
            }
        }
        open.iter_mut().for_each(|open| self.compare(open));
        self.named.insert("open".into(), open.swap_remove(0).content);
    }

    fn open(&self, name: &str) -> OpenFile {
        let path = self.dir.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(path);
        OpenFile { file: file.expect("room"), content: Vec::new() }
    }

    fn change(&mut self, open: &mut OpenFile) {
        let at = self.random.below(LEN_MAX as u64) as usize;
        if self.random.one_in(8) {
            open.file.set_len(at as u64).expect("no program sees an error");
            open.content.resize(at, 0);
            return;
        }
        let len = 1 + self.random.below(20_000) as usize;
        let bytes = self.random.bytes(len);
        open.file.write_all_at(&bytes, at as u64).expect("no program sees an error");
        open.content.resize(open.content.len().max(at + len), 0);
        open.content[at..at + len].copy_from_slice(&bytes);
    }

    fn compare(&mut self, open: &mut OpenFile) {
        let len = open.file.metadata().expect("no program sees an error").len();
        assert_eq!(len, open.content.len() as u64);
        let mut bytes = vec![0; open.content.len()];
        open.file.read_exact_at(&mut bytes, 0).expect("no program sees an error");
        assert!(bytes == open.content, "a byte differs in {}", self.dir.display());
    }

    /// Writes a new file, and renames it over another.
    fn replace(&mut self) {
        let (name, len) = (self.name(), self.random.below(50_000) as usize);
        let bytes = self.random.bytes(len);
        let aside = self.dir.join("aside");
        fs::write(&aside, &bytes).expect("no program sees an error");
        fs::rename(&aside, self.dir.join(&name)).expect("no program sees an error");
        self.named.insert(name, bytes);
    }

    fn move_or_remove(&mut self) {
        let (from, to) = (self.name(), self.name());
        let Some(bytes) = self.named.remove(&from) else { return };
        if from == to || self.random.one_in(2) {
            fs::remove_file(self.dir.join(&from)).expect("no program sees an error");
            return;
        }
        fs::rename(self.dir.join(&from), self.dir.join(&to)).expect("no program sees an error");
        self.named.insert(to, bytes);
    }

    fn name(&mut self) -> String {
        format!("file-{}", self.random.below(FILES as u64))
    }

    fn compare_names(&self) {
        let entries = fs::read_dir(&self.dir).expect("no program sees an error");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("no program sees an error").file_name().into_string().expect("UTF-8")
        };
        let mut found: Vec<_> = entries.map(name).filter(|name| name != "open").collect();
        found.sort();
        let expected: Vec<_> = self.named.keys().filter(|name| *name != "open").cloned().collect();
        assert_eq!(found, expected, "{}", self.dir.display());
    }

    fn verify_by_names(&mut self) {
        self.compare_names();
        for (name, content) in &self.named {
            let path = self.dir.join(name);
            let found = fs::read(&path).expect("no program sees an error");
            assert!(found == *content, "a byte differs in {}", path.display());
        }
    }
}

/// Writes through a mapping, and reads what was written by read(2).
fn map(path: &Path, is_over: &impl Fn() -> bool) {
    let file = File::options().read(true).write(true).create_new(true).open(path).expect("room");
    file.set_len(MAPPED_LEN as u64).expect("room");
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the address is the kernel's choice.
    let at = unsafe { mmap(ptr::null_mut(), MAPPED_LEN, access, MapFlags::SHARED, &file, 0) };
    let at = at.expect("a mapping");
    // SAFETY: the mapping has this length, and nothing else in this process uses it.
    let memory = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), MAPPED_LEN) };
    let mut random = SeededRng::new(7);
    let mut model = vec![0; MAPPED_LEN];
    while !is_over() {
        let len = 1 + random.below(9000) as usize;
        let start = random.below((MAPPED_LEN - len) as u64) as usize;
        let bytes = random.bytes(len);
        memory[start..start + len].copy_from_slice(&bytes);
        model[start..start + len].copy_from_slice(&bytes);
        if random.one_in(20) {
            file.sync_data().expect("no program sees an error");
        }
        let mut found = vec![0; MAPPED_LEN];
        file.read_exact_at(&mut found, 0).expect("no program sees an error");
        assert!(found == model && *memory == *model, "a byte differs in {}", path.display());
    }
    // SAFETY: the slice is not used any more.
    unsafe { munmap(at, MAPPED_LEN).expect("the mapping was there") };
}

fn has(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = version.status().is_ok();
    if !is_there {
        println!("skip: no {program}");
    }
    is_there
}

/// Runs a program again and again.
fn repeat(is_over: &impl Fn() -> bool, mut command: impl FnMut(u64) -> Command) {
    for round in 0.. {
        if is_over() {
            break;
        }
        let output = command(round).output().expect("the program runs");
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{said:?}");
    }
}

fn fio(root: &Path, is_over: &impl Fn() -> bool) {
    if !has("fio") {
        return;
    }
    repeat(is_over, |round| {
        let mut command = Command::new("fio");
        command.args([
            "--name=load",
            "--rw=randwrite",
            "--bs=16k",
            "--size=16m",
            "--verify=crc32c",
        ]);
        command.args(["--ioengine=psync", "--numjobs=1", "--do_verify=1", "--number_ios=400"]);
        command.args(["--verify_state_save=0"]);
        command.arg(format!("--randseed={round}")).arg(format!("--direct={}", round % 2));
        command.arg(format!("--filename={}", root.join("fio").display()));
        command
    });
}

fn sqlite(root: &Path, is_over: &impl Fn() -> bool) {
    if !has("sqlite3") {
        return;
    }
    let database = root.join("sqlite");
    let mut rows = 0;
    repeat(is_over, |round| {
        let mut command = Command::new("sqlite3");
        let mode = if round == 0 { "PRAGMA journal_mode=WAL;" } else { "" };
        let insert = "INSERT INTO t(b) VALUES(randomblob(700));".repeat(20);
        rows += 20;
        // A row that is missing is a division by zero, which is NULL, which the column refuses.
        command.arg(&database).arg(format!(
            "{mode}CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b BLOB);\
             CREATE TABLE IF NOT EXISTS ok(x INTEGER NOT NULL);\
             BEGIN;{insert}COMMIT;\
             INSERT INTO ok SELECT 1/(count(*)={rows}) FROM t;\
             INSERT INTO ok SELECT 1/(integrity_check='ok') FROM pragma_integrity_check;"
        ));
        command
    });
}

fn git(root: &Path, is_over: &impl Fn() -> bool) {
    if !has("git") {
        return;
    }
    let work = root.join("git");
    fs::create_dir(&work).expect("room");
    repeat(is_over, |round| {
        let mut command = Command::new("sh");
        command.current_dir(&work).env("HOME", root);
        command.arg("-ec").arg(format!(
            "[ -d .git ] || git init -q .\n\
             for i in 1 2 3 4 5 6; do echo {round} $i >> file-$i; done\n\
             git add -A\n\
             git -c user.name=a -c user.email=a@b commit -qm {round}\n\
             git fsck --strict --no-progress\n\
             [ $(git rev-list --count HEAD) = $(({round} + 1)) ]"
        ));
        command
    });
}
