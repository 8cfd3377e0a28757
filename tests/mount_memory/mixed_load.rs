//! A mixed load: files are made and deleted, a large file is overwritten, synced and read, and
//! other files are read and listed, all at once.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sfs_testkit::SeededRng;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Number of blocks of the large file that are overwritten before a sync.
const BLOCKS_PER_SYNC: u64 = 8192;

/// Number of files in one directory.
const FILES_PER_DIRECTORY: u64 = 1000;

/// Size of a mixed load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixedLoad {
    pub(crate) duration: Duration,
    /// Number of files that are made before all of them are deleted.
    pub(crate) files: u64,
    /// Size of the file that is overwritten, in bytes.
    pub(crate) large_len: u64,
    /// Number of files that are read and listed.
    pub(crate) others: u64,
}

impl MixedLoad {
    /// Runs the load in `dir`.
    pub(crate) fn run(self, dir: &Path) {
        let end = Instant::now() + self.duration;
        let goes_on = || Instant::now() < end;
        std::thread::scope(|scope| {
            scope.spawn(|| while goes_on() && self.make_and_delete(dir, goes_on) {});
            scope.spawn(|| self.overwrite(dir, goes_on));
            scope.spawn(|| self.look_at_others(dir, goes_on));
        });
    }

    /// Makes all files and deletes them; returns `false` if the load ended before.
    fn make_and_delete(self, dir: &Path, goes_on: impl Fn() -> bool) -> bool {
        let directory = |index: u64| dir.join(format!("made-{}", index / FILES_PER_DIRECTORY));
        for index in 0..self.files {
            if index % FILES_PER_DIRECTORY == 0 {
                fs::create_dir(directory(index)).expect("a new directory");
            }
            let path = directory(index).join(index.to_string());
            fs::write(path, [index as u8; 1000]).expect("a new file");
            if !goes_on() {
                return false;
            }
        }
        for index in (0..self.files).step_by(FILES_PER_DIRECTORY as usize) {
            fs::remove_dir_all(directory(index)).expect("the directory is removed");
        }
        true
    }

    /// Overwrites blocks of the large file at random, syncs, and reads parts.
    fn overwrite(self, dir: &Path, goes_on: impl Fn() -> bool) {
        let path = dir.join("large");
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.expect("a new file");
        let mut random = SeededRng::new(5);
        let mut piece = random.bytes(MIB as usize);
        for start in (0..self.large_len).step_by(MIB as usize) {
            file.write_all_at(&piece, start).expect("writing");
        }
        while goes_on() {
            for _ in 0..BLOCKS_PER_SYNC {
                let start = random.below(self.large_len / BLOCK) * BLOCK;
                file.write_all_at(&piece[..BLOCK as usize], start).expect("writing");
            }
            file.sync_all().expect("syncing");
            for _ in 0..self.large_len / MIB / 8 {
                let start = random.below(self.large_len / MIB) * MIB;
                file.read_exact_at(&mut piece, start).expect("reading");
            }
        }
    }

    /// Makes the other files, and reads and lists them over and over.
    fn look_at_others(self, dir: &Path, goes_on: impl Fn() -> bool) {
        let dir = dir.join("others");
        fs::create_dir(&dir).expect("a new directory");
        for index in 0..self.others {
            fs::write(dir.join(index.to_string()), [1; 500]).expect("a new file");
        }
        let mut random = SeededRng::new(6);
        while goes_on() {
            for _ in 0..self.others / 4 {
                let path = dir.join(random.below(self.others).to_string());
                assert_eq!(fs::read(path).expect("reading").len(), 500);
            }
            assert_eq!(
                fs::read_dir(&dir).expect("the directory is read").count() as u64,
                self.others
            );
        }
    }
}
