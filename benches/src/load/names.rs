//! The rows that move names.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, lstat, statat};
use rustix::io::Errno;

use super::{Done, Place, Scale, random::Random};

/// Of the rows that do it in parallel.
const THREADS: u64 = 4;

pub(super) fn create(place: &Place, scale: &Scale, len: usize, end: Instant) -> Result<Done> {
    let mut bytes = vec![0; len];
    Random::new(place.seed).fill(&mut bytes);
    each(scale, end, |no| {
        let mut file = File::create_new(name(place, no))?;
        Ok(file.write_all(&bytes)?)
    })
    .map(|ops| Done { ops, bytes: ops * len as u64, ..Done::default() })
}

pub(super) fn stat(place: &Place, scale: &Scale, end: Instant) -> Result<Done> {
    // In an order that the directory does not have; what a slow `create` left out is not asked for.
    let mut order: Vec<u64> =
        (0..scale.files).filter(|no| no % 2 == 0).chain((0..scale.files).rev()).collect();
    order.retain(|&no| no < scale.files);
    let mut ops = 0;
    for no in order {
        match lstat(name(place, no)) {
            Ok(_) => ops += 1,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error).context("stat"),
        }
        if Instant::now() >= end {
            break;
        }
    }
    Ok(Done { ops, ..Done::default() })
}

pub(super) fn list(place: &Place, end: Instant) -> Result<Done> {
    let directory = File::open(place.directory())?;
    let mut ops = 0;
    for entry in fs::read_dir(place.directory())? {
        // As ls does, for no time of birth: asking for that would be a request for each file.
        statat(&directory, entry?.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .context("stat of an entry")?;
        ops += 1;
        if Instant::now() >= end {
            break;
        }
    }
    Ok(Done { ops, ..Done::default() })
}

pub(super) fn rename(place: &Place, scale: &Scale, end: Instant) -> Result<Done> {
    let ops = each(scale, end, |no| {
        let from = name(place, no);
        Ok(fs::rename(&from, from.with_extension("renamed"))?)
    })?;
    Ok(Done { ops, ..Done::default() })
}

/// Whatever is there, in the directory's order.
pub(super) fn unlink(place: &Place, end: Instant) -> Result<Done> {
    remove_all(&place.directory(), end).map(|ops| Done { ops, ..Done::default() })
}

fn remove_all(directory: &Path, end: Instant) -> Result<u64> {
    let names: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let mut ops = 0;
    for name in names {
        fs::remove_file(name)?;
        ops += 1;
        if Instant::now() >= end {
            break;
        }
    }
    Ok(ops)
}

/// One for each thread.
pub(super) fn make_directories(place: &Place) -> Result<()> {
    (0..THREADS).try_for_each(|no| Ok(fs::create_dir(directory(place, no))?))
}

/// Each thread creates as many files as one does in the other rows.
pub(super) fn create_parallel(place: &Place, scale: &Scale, end: Instant) -> Result<Done> {
    parallel(place, |directory| {
        each(scale, end, |no| {
            Ok(File::create_new(directory.join(format!("file-{no:06}"))).map(drop)?)
        })
    })
}

pub(super) fn unlink_parallel(place: &Place, end: Instant) -> Result<Done> {
    parallel(place, |directory| remove_all(directory, end))
}

fn parallel(place: &Place, work: impl Fn(&Path) -> Result<u64> + Sync) -> Result<Done> {
    let work = &work;
    let ops: Result<u64> = thread::scope(|scope| {
        let spawn = |no| scope.spawn(move || work(&directory(place, no)));
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    });
    Ok(Done { ops: ops?, ..Done::default() })
}

fn directory(place: &Place, thread: u64) -> PathBuf {
    place.directory().join(format!("{thread}"))
}

fn name(place: &Place, no: u64) -> PathBuf {
    place.directory().join(format!("file-{no:06}"))
}

fn each(scale: &Scale, end: Instant, mut call: impl FnMut(u64) -> Result<()>) -> Result<u64> {
    for no in 0..scale.files {
        if Instant::now() >= end {
            return Ok(no);
        }
        call(no).with_context(|| format!("file {no}"))?;
    }
    Ok(scale.files)
}
