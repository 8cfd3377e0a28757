//! A load whose requests may end with the daemon, as on a kernel that does not send them again.
//!
//! A call that was under way may fail with ECONNABORTED, and has then been done or not; a sync may fail with EIO as well. Whatever
//! was acknowledged is there, and every later call works.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sfs_testkit::SeededRng;

use super::load::{EndOnDrop, seed};

const THREADS: u64 = 3;
const FILES: u64 = 4;
const RECORD_LEN: usize = 1000;
const RECORDS_AT_ONCE: u64 = 12;
const RECORDS_MAX: u64 = 2000;

/// Longest time until the kernel has learned what has become of a call that failed.
const SETTLED_AFTER_MAX: Duration = Duration::from_secs(20);

/// Workers of the load.
pub(crate) struct Load {
    workers: Vec<Worker>,
}

impl Load {
    pub(crate) fn new(root: &Path) -> Self {
        let seed = seed();
        Self { workers: (0..THREADS).map(|number| Worker::new(root, number, seed)).collect() }
    }

    /// Runs the load while `work` runs. Returns the numbers of calls that were done, and of those that have ended with a daemon.
    pub(crate) fn run(&mut self, work: impl FnOnce()) -> (u64, u64) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let is_over = &is_over;
            let start = |worker| scope.spawn(move || Worker::work(worker, is_over));
            let threads: Vec<_> = self.workers.iter_mut().map(start).collect();
            // A thread that fails must not leave the others running.
            let end = EndOnDrop(is_over);
            work();
            drop(end);
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("every call is as it may be"));
        });
        let sum = |of: fn(&Worker) -> &AtomicU64| {
            self.workers.iter().map(|worker| of(worker).load(Ordering::Relaxed)).sum()
        };
        (sum(|worker| &worker.done), sum(|worker| &worker.ended))
    }

    /// Compares everything that was acknowledged.
    pub(crate) fn verify(&self) {
        self.workers.iter().for_each(Worker::verify);
    }
}

/// Directory of one thread, with a model.
struct Worker {
    dir: PathBuf,
    number: u64,
    random: SeededRng,
    /// Files that were synced and renamed, with their content.
    named: BTreeMap<String, Vec<u8>>,
    /// Records of the file `log` that were synced.
    synced: u64,
    done: AtomicU64,
    ended: AtomicU64,
}

impl Worker {
    fn new(root: &Path, number: u64, seed: u64) -> Self {
        let dir = root.join(format!("worker-{number}"));
        fs::create_dir(&dir).expect("room");
        File::create(dir.join("log")).and_then(|log| log.sync_all()).expect("room");
        let random = SeededRng::new(seed ^ number << 48);
        let (named, synced) = (BTreeMap::new(), 0);
        let (done, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { dir, number, random, named, synced, done, ended }
    }

    fn work(&mut self, is_over: &AtomicBool) {
        let log = self.repeat(|| File::options().read(true).write(true).open(self.dir.join("log")));
        while !is_over.load(Ordering::Relaxed) {
            match self.random.below(8) {
                0..3 => self.append(&log),
                3..5 => self.replace(),
                5 => self.remove(),
                6 => self.make_and_remove_a_directory(),
                _ => self.compare_log(&log, self.synced),
            }
        }
    }

    /// Returns the result of a call; `None` if the call has ended with the daemon.
    fn call<T>(&self, result: io::Result<T>) -> Option<T> {
        self.sync_call(result, false)
    }

    fn sync_call<T>(&self, result: io::Result<T>, is_sync: bool) -> Option<T> {
        match result {
            Ok(value) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Some(value)
            }
            Err(error) => {
                let code = error.raw_os_error().expect("a number");
                let is_expected = code == libc::ECONNABORTED || (is_sync && code == libc::EIO);
                assert!(is_expected, "{}: {error}", self.dir.display());
                self.ended.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Calls until the call is done. Calls that may be repeated only.
    fn repeat<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> T {
        loop {
            if let Some(value) = self.call(call()) {
                return value;
            }
        }
    }

    /// Adds records to the log, and syncs it; writes them once more until that has succeeded.
    fn append(&mut self, log: &File) {
        if self.synced > RECORDS_MAX {
            self.synced = 0;
            // The kernel may not know that the truncation was done before it is repeated.
            self.repeat(|| log.set_len(0));
        }
        let end = self.synced + 1 + self.random.below(RECORDS_AT_ONCE);
        loop {
            let write = |number| {
                let at = number * RECORD_LEN as u64;
                log.write_all_at(&record(self.number, number), at)
            };
            let written = (self.synced..end).try_for_each(write);
            if self.call(written).is_some() && self.sync_call(log.sync_data(), true).is_some() {
                break;
            }
        }
        self.synced = end;
    }

    fn compare_log(&self, log: &File, count: u64) {
        let mut found = vec![0; RECORD_LEN];
        for number in 0..count {
            self.repeat(|| log.read_exact_at(&mut found, number * RECORD_LEN as u64));
            assert!(
                found == record(self.number, number),
                "record {number} differs in {}",
                self.dir.display()
            );
        }
    }

    /// Writes a new file, syncs it, and renames it over another.
    fn replace(&mut self) {
        let name = self.name();
        let len = self.random.below(40_000) as usize;
        let content = self.random.bytes(len);
        let (aside, path) = (self.dir.join("aside"), self.dir.join(&name));
        loop {
            let write = || {
                let file = File::create(&aside)?;
                file.write_all_at(&content, 0)?;
                file.sync_all()
            };
            if self.sync_call(write(), true).is_some() {
                break;
            }
        }
        if self.call(fs::rename(&aside, &path)).is_some() {
            self.named.insert(name, content);
        } else if self.is_there("aside") {
            self.is_there(&name);
            self.compare(&name);
        } else {
            assert!(self.is_there(&name), "{}: one of both names is there", path.display());
            self.named.insert(name.clone(), content);
            self.compare(&name);
        }
    }

    fn remove(&mut self) {
        let name = self.name();
        if !self.named.contains_key(&name) {
            return;
        }
        let removed = self.call(fs::remove_file(self.dir.join(&name))).is_some();
        if removed || !self.is_there(&name) {
            self.named.remove(&name);
        }
    }

    fn make_and_remove_a_directory(&self) {
        let path = self.dir.join("directory");
        if self.call(fs::create_dir(&path)).is_none() && !self.is_there("directory") {
            return;
        }
        while self.call(fs::remove_dir(&path)).is_none() && self.is_there("directory") {}
    }

    fn name(&mut self) -> String {
        format!("file-{}", self.random.below(FILES))
    }

    /// Returns whether `name` is there, once the kernel's cache agrees with the daemon.
    fn is_there(&self, name: &str) -> bool {
        let begun = Instant::now();
        loop {
            let cached = match fs::metadata(self.dir.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
                other => self.call(other.map(|file| Some(file.ino()))),
            };
            let listed = self.call(self.list());
            if let (Some(cached), Some(listed)) = (cached, listed)
                && cached == listed.get(name).copied()
            {
                return cached.is_some();
            }
            assert!(begun.elapsed() < SETTLED_AFTER_MAX, "{name}: the kernel's cache is old");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the names with their inodes.
    fn list(&self) -> io::Result<BTreeMap<String, u64>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name().into_string().expect("UTF-8"), entry.ino()))
        };
        fs::read_dir(&self.dir)?.map(entry).collect()
    }

    fn compare(&self, name: &str) {
        let path = self.dir.join(name);
        let found = match fs::exists(&path) {
            Ok(false) => None,
            _ => Some(self.repeat(|| fs::read(&path))),
        };
        assert!(found.as_ref() == self.named.get(name), "a byte differs in {}", path.display());
    }

    fn verify(&self) {
        let log = File::open(self.dir.join("log")).expect("the file");
        self.compare_log(&log, self.synced);
        self.named.keys().for_each(|name| self.compare(name));
        let listed = self.list().expect("the directory");
        let listed: Vec<_> = listed.into_keys().filter(|name| name.starts_with("file")).collect();
        assert!(listed.iter().eq(self.named.keys()), "{listed:?} in {}", self.dir.display());
    }
}

/// Returns record `number` of worker `of`.
fn record(of: u64, number: u64) -> Vec<u8> {
    SeededRng::new(of << 32 | number).bytes(RECORD_LEN)
}
