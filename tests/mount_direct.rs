//! Direct writes beside readers of the page cache: nobody reads what was there before, and nobody writes
//! it back.

#[path = "mount_direct/aio.rs"]
mod aio;
#[expect(dead_code, reason = "every test program uses a part of it")]
mod harness;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aio::Context;
use harness::{CACHES, Random, Volume, can_mount};
use sfs_device::{BLOCK_SIZE, Block};

/// Pages of a write.
const PAGES: usize = 160;

/// Processes that read all the time.
const READERS: usize = 2;

/// Where asynchronous writes leave old pages, some are met within fifty writes, most often.
const TIME: Duration = Duration::from_secs(1);

#[test]
fn mounted_direct_writes_are_not_undone_by_pages_that_were_read_meanwhile() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let volume = Volume::new("64M");
        let mount = volume.mount(options);
        let path = mount.dir.join("file");
        fs::write(&path, vec![0; PAGES * BLOCK_SIZE]).expect("writing");
        let is_over = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        fs::read(&path).expect("reading");
                    }
                });
            }
            let outcome = write_for(TIME, &path);
            is_over.store(true, Ordering::Relaxed);
            outcome
        });
        let Outcome { cycles, stale, lost } = outcome.expect("writing and reading");
        assert!(
            stale + lost == 0,
            "-o {options}: in {cycles} writes {stale} pages read as they were before, and {lost} of \
             them were written back"
        );
        mount.unmount();
        volume.check();
    }
}

/// What became of some writes.
#[derive(Debug, Default)]
struct Outcome {
    cycles: u64,
    /// Pages that a buffered reader found as they had been before the write.
    stale: usize,
    /// Pages of them that were so on the volume after a byte in them had been written.
    lost: usize,
}

/// Writes again and again, until `time` is over or something is lost.
fn write_for(time: Duration, path: &Path) -> io::Result<Outcome> {
    let mut open = OpenOptions::new();
    let direct = open.read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let buffered = File::options().read(true).write(true).open(path)?;
    let context = Context::new()?;
    let mut outcome = Outcome::default();
    let end = Instant::now() + time;
    let mut pages = Block::zeroed(PAGES);
    while Instant::now() < end && outcome.lost == 0 {
        outcome.cycles += 1;
        let bytes = Random(outcome.cycles).bytes(PAGES * BLOCK_SIZE);
        Block::bytes_of_mut(&mut pages).copy_from_slice(&bytes);
        context.write_all_at(&direct, Block::bytes_of(&pages), 0)?;
        direct.sync_all()?;
        let stale = differing(&fs::read(path)?, &bytes);
        outcome.stale += stale.len();
        for page in &stale {
            let at = page * BLOCK_SIZE;
            buffered.write_all_at(&bytes[at..=at], at as u64)?;
        }
        buffered.sync_all()?;
        direct.read_exact_at(Block::bytes_of_mut(&mut pages), 0)?;
        outcome.lost += differing(Block::bytes_of(&pages), &bytes).len();
    }
    Ok(outcome)
}

/// The pages of `found` that are not as in `expected`.
fn differing(found: &[u8], expected: &[u8]) -> Vec<usize> {
    let pages = found.chunks(BLOCK_SIZE).zip(expected.chunks(BLOCK_SIZE)).enumerate();
    pages.filter(|(_, (found, expected))| found != expected).map(|(page, _)| page).collect()
}
