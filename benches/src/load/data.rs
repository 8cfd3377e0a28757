//! The rows that read and write data.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};
use rustix::fs::OFlags;
use sfs_testkit::SeededRng;

use super::{
    LoadDirectory, RowWork, Scale,
    buffer::{AlignedBlock, BLOCK},
};

/// Number of requests between two readings of the clock.
const CLOCK_EVERY: u64 = 32;

/// Writes the whole file, so that the random rows only overwrite.
pub(super) fn fill(place: &LoadDirectory, scale: &Scale) -> Result<()> {
    let whole = std::fs::metadata(place.file()).is_ok_and(|meta| meta.len() == scale.file_len);
    if !whole {
        place.remove_file()?;
        let never = Instant::now() + scale.time_max * 100;
        write(place, scale, 1 << 20, never)?;
    }
    place.sync()?;
    place.forget_data()
}

pub(super) fn write(
    place: &LoadDirectory,
    scale: &Scale,
    len: usize,
    end: Instant,
) -> Result<RowWork> {
    let mut bytes = vec![0; len];
    SeededRng::new(place.seed).fill(&mut bytes);
    let file = File::create_new(place.file()).context("creating the file")?;
    let mut done = RowWork::default();
    while done.bytes < scale.file_len && in_time(done.ops, end) {
        file.write_all_at(&bytes, done.bytes)?;
        done.ops += 1;
        done.bytes += len as u64;
    }
    file.sync_all()?;
    Ok(done)
}

pub(super) fn read(
    place: &LoadDirectory,
    scale: &Scale,
    len: usize,
    end: Instant,
) -> Result<RowWork> {
    let mut bytes = vec![0; len];
    let file = File::open(place.file())?;
    let file_len = file.metadata()?.len().min(scale.file_len);
    let mut done = RowWork::default();
    while done.bytes < file_len && in_time(done.ops, end) {
        file.read_exact_at(&mut bytes, done.bytes)?;
        done.ops += 1;
        done.bytes += len as u64;
    }
    Ok(done)
}

pub(super) fn overwrite(
    place: &LoadDirectory,
    scale: &Scale,
    ops: u64,
    sync_each: bool,
    end: Instant,
) -> Result<RowWork> {
    let mut random = SeededRng::new(place.seed);
    let mut bytes = [0; BLOCK];
    random.fill(&mut bytes);
    let file = File::options().write(true).open(place.file())?;
    let blocks = scale.file_len / BLOCK as u64;
    let mut done = RowWork::default();
    while done.ops < ops && in_time(done.ops, end) {
        file.write_all_at(&bytes, random.below(blocks) * BLOCK as u64)?;
        if sync_each {
            file.sync_all()?;
        }
        done.ops += 1;
    }
    file.sync_all()?;
    Ok(RowWork { bytes: done.ops * BLOCK as u64, ..done })
}

/// Reads with `depth` threads, each with one request in flight.
pub(super) fn read_direct(
    place: &LoadDirectory,
    scale: &Scale,
    depth: u64,
    end: Instant,
) -> Result<RowWork> {
    let reader = |no: u64| -> Result<u64> {
        let direct = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(direct).open(place.file())?;
        let mut random = SeededRng::new(place.seed + no);
        let mut block = AlignedBlock::new();
        let blocks = scale.file_len / BLOCK as u64;
        let mut ops = 0;
        while ops < scale.rand_reads / depth && in_time(ops, end) {
            file.read_exact_at(&mut block.0, random.below(blocks) * BLOCK as u64)?;
            ops += 1;
        }
        Ok(ops)
    };
    let ops: Result<u64> = thread::scope(|scope| {
        let readers: Vec<_> = (0..depth).map(|no| scope.spawn(move || reader(no))).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader panicked")).sum()
    });
    let ops = ops.context("reading with O_DIRECT")?;
    Ok(RowWork { ops, bytes: ops * BLOCK as u64, ..RowWork::default() })
}

fn in_time(ops: u64, end: Instant) -> bool {
    !ops.is_multiple_of(CLOCK_EVERY) || Instant::now() < end
}
