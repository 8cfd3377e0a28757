//! Direct writes beside readers of the page cache: the writes are visible to later reads, and stale
//! pages are not written back.

#[path = "mount_direct/aio.rs"]
mod aio;
#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aio::Context;
use harness::{CACHES, TestVolume, can_mount};
use sfs_device::{BLOCK_SIZE, Block};
use sfs_testkit::SeededRng;

/// Number of pages of a write.
const PAGES: usize = 160;

/// Number of threads that read during all writes.
const READERS: usize = 2;

/// Time of each run. Stale pages of asynchronous I/O usually appear within fifty writes.
const TIME: Duration = Duration::from_secs(1);

#[test]
fn mounted_direct_writes_are_not_undone_by_stale_pages() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
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
        let StalePages { cycles, stale, lost } = outcome.expect("writing and reading");
        assert!(
            stale + lost == 0,
            "-o {options}: in {cycles} writes {stale} pages read as they were before, and {lost} of \
             them were written back"
        );
        mount.unmount();
        volume.check();
    }
}

/// Number of writes, and counts of stale pages after them.
#[derive(Debug, Default)]
struct StalePages {
    cycles: u64,
    /// Number of pages that a buffered reader still found with their old content after the write.
    stale: usize,
    /// Number of these pages whose old content was on the volume, too, after one byte of each page
    /// had been written.
    lost: usize,
}

/// Writes again and again, until `time` is over or a write is lost.
fn write_for(time: Duration, path: &Path) -> io::Result<StalePages> {
    let mut open = OpenOptions::new();
    let direct = open.read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let buffered = File::options().read(true).write(true).open(path)?;
    let context = Context::new()?;
    let mut outcome = StalePages::default();
    let end = Instant::now() + time;
    let mut pages = Block::zeroed(PAGES);
    while Instant::now() < end && outcome.lost == 0 {
        outcome.cycles += 1;
        let bytes = SeededRng::new(outcome.cycles).bytes(PAGES * BLOCK_SIZE);
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

/// Returns the indices of the pages of `found` that differ from `expected`.
fn differing(found: &[u8], expected: &[u8]) -> Vec<usize> {
    let pages = found.chunks(BLOCK_SIZE).zip(expected.chunks(BLOCK_SIZE)).enumerate();
    pages.filter(|(_, (found, expected))| found != expected).map(|(page, _)| page).collect()
}
