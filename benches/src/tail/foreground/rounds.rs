//! Rounds of the requests that an interactive program makes.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::fs::{Advice, fadvise, lstat};
use sfs_testkit::SeededRng;

use crate::tail::{Amounts, Latencies, Outcome, Playground};

const BLOCK_LEN: usize = 4096;

/// Length of a new file, in bytes.
const NEW_FILE_LEN: usize = 100;

/// Maximum number of new files that are kept: a filesystem with a fixed number of inodes would run
/// out of inodes.
const NEW_FILES_MAX: u64 = 20_000;

/// Number of rounds between two syncs.
const SYNC_ROUNDS: u64 = 10;

/// Durations by kind of request.
#[derive(Default)]
struct Calls {
    read: Latencies,
    stat: Latencies,
    create: Latencies,
    fsync: Latencies,
}

/// Reads 4 KiB of a cold file, looks up a cold name, makes a file of 100 bytes and closes it, and in every
/// tenth round appends 4 KiB to a file and syncs it.
///
/// # Errors
///
/// If the filesystem refuses a request.
pub fn rounds(place: &Playground, amounts: &Amounts, time: Duration, seed: u64) -> Result<Outcome> {
    let mut random = SeededRng::new(seed);
    let cold = File::open(place.cold_file())?;
    fadvise(&cold, 0, None, Advice::Random).context("advice")?;
    let journal = File::options().append(true).open(place.journal())?;
    let names = shuffled(amounts.names, &mut random);
    let blocks = (amounts.cold_mib << 20) / BLOCK_LEN as u64;
    let mut bytes = random.bytes(BLOCK_LEN);
    let mut calls = Calls::default();
    let start = Instant::now();
    let mut rounds = 0_u64;
    while start.elapsed() < time {
        let offset = random.below(blocks) * BLOCK_LEN as u64;
        forget(&cold, offset)?;
        calls.read.time(|| cold.read_exact_at(&mut bytes, offset)).context("read")?;
        let name = place.cold_name(names[rounds as usize % names.len()]);
        calls.stat.time(|| lstat(&name)).context("stat")?;
        let new = |no: u64| place.new_files().join(format!("file-{no:06}"));
        if let Some(old) = rounds.checked_sub(NEW_FILES_MAX) {
            fs::remove_file(new(old)).context("unlink")?;
        }
        let name = new(rounds);
        calls.create.time(|| create(&name, &bytes[..NEW_FILE_LEN])).context("create")?;
        if rounds % SYNC_ROUNDS == SYNC_ROUNDS - 1 {
            calls.fsync.time(|| append(&journal, &bytes)).context("append and fsync")?;
        }
        rounds += 1;
    }
    let secs = start.elapsed().as_secs_f64();
    let Calls { read, stat, create, fsync } = calls;
    let calls = [("read", read), ("stat", stat), ("create", create), ("fsync", fsync)];
    let calls = calls.into_iter().filter_map(|(name, call)| Some((name, call.summary()?)));
    Ok(Outcome { rounds, secs, calls: calls.collect(), ..Outcome::default() })
}

/// Drops the block at `offset` from the page cache, so that a second read of it is cold, too.
fn forget(file: &File, offset: u64) -> Result<()> {
    let len = std::num::NonZeroU64::new(BLOCK_LEN as u64);
    fadvise(file, offset, len, Advice::DontNeed).context("dropping a page")
}

fn create(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    File::create_new(path)?.write_all(bytes)
}

fn append(mut journal: &File, bytes: &[u8]) -> std::io::Result<()> {
    journal.write_all(bytes)?;
    journal.sync_all()
}

/// Returns the numbers below `count` in random order.
fn shuffled(count: u64, random: &mut SeededRng) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, random.below(last as u64 + 1) as usize);
    }
    numbers
}
