//! Attributes of directories, as stat(2) shows them while other threads change the directories.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{TestVolume, can_mount};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use sfs_testkit::SeededRng;

const DIRECTORIES: usize = 8;

/// Number of threads that change directories, and of threads that stat the directories.
const CHANGERS: usize = 3;
const LOOKERS: usize = 2;

/// Number of directories that each thread makes, moves and removes in one round.
const CHANGES: usize = 3;

const TIME: Duration = Duration::from_millis(1500);

#[test]
fn mounted_directories_show_the_changes_of_other_processes() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let storm = Storm::new(&mount.dir);
    let end = Instant::now() + TIME;
    let mut stale = Vec::new();
    let mut rounds = 0;
    while Instant::now() < end {
        storm.round(rounds);
        rounds += 1;
        stale.extend(storm.stale());
    }
    assert!(stale.is_empty(), "{} stale in {rounds} rounds: {:#?}", stale.len(), stale[0]);
    mount.unmount();
    volume.check();
}

/// Link count, size, and times of modification and change.
type Shown = (u32, u64, [(i64, u32); 2]);

fn look(path: &Path, flags: AtFlags) -> Shown {
    let stat = statx(CWD, path, flags, StatxFlags::BASIC_STATS).expect("the entry exists");
    let times = [stat.stx_mtime, stat.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec));
    (stat.stx_nlink, stat.stx_size, times)
}

struct Storm(Vec<PathBuf>);

impl Storm {
    fn new(dir: &Path) -> Self {
        let dirs: Vec<_> = (0..DIRECTORIES).map(|no| dir.join(format!("dir-{no}"))).collect();
        dirs.iter().for_each(|dir| fs::create_dir(dir).expect("a directory"));
        Self(dirs)
    }

    /// Runs all threads at once until every change is made.
    fn round(&self, seed: usize) {
        let begin = Barrier::new(CHANGERS + LOOKERS);
        let changing = AtomicUsize::new(CHANGERS);
        thread::scope(|scope| {
            for no in 0..CHANGERS {
                let (begin, changing) = (&begin, &changing);
                scope.spawn(move || {
                    begin.wait();
                    self.change(no, SeededRng::new((seed * CHANGERS + no) as u64));
                    changing.fetch_sub(1, Ordering::Relaxed);
                });
            }
            for _ in 0..LOOKERS {
                scope.spawn(|| {
                    begin.wait();
                    let is_changing = |_: &_| changing.load(Ordering::Relaxed) > 0;
                    for dir in self.0.iter().cycle().take_while(is_changing) {
                        look(dir, AtFlags::STATX_FORCE_SYNC);
                    }
                });
            }
        });
    }

    /// Makes, moves and removes directories whose names only this thread uses.
    fn change(&self, no: usize, mut random: SeededRng) {
        for step in 0..CHANGES {
            let name = format!("{no}-{step}");
            let place = |random: &mut SeededRng| &self.0[random.below(DIRECTORIES as u64) as usize];
            let (from, to) = (place(&mut random).join(&name), place(&mut random).join(&name));
            fs::create_dir(&from).expect("making");
            fs::rename(&from, &to).expect("renaming");
            fs::remove_dir(&to).expect("removing");
        }
    }

    /// Returns the cached and the current attributes of each directory where the two differ.
    fn stale(&self) -> Vec<(Shown, Shown)> {
        let look =
            |dir: &PathBuf| (look(dir, AtFlags::empty()), look(dir, AtFlags::STATX_FORCE_SYNC));
        self.0.iter().map(look).filter(|(shown, is)| shown != is).collect()
    }
}
