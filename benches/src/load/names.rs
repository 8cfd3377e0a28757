//! The rows of metadata: create, stat, list, rename and unlink.

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
use sfs_testkit::SeededRng;

use super::{LoadDirectory, RowWork, Scale};

/// Number of threads of the parallel rows.
const THREADS: u64 = 4;

pub(super) fn create(
    place: &LoadDirectory,
    scale: &Scale,
    len: usize,
    end: Instant,
) -> Result<RowWork> {
    let mut bytes = vec![0; len];
    SeededRng::new(place.seed).fill(&mut bytes);
    each(scale, end, |no| {
        let mut file = File::create_new(name(place, no))?;
        Ok(file.write_all(&bytes)?)
    })
    .map(|ops| RowWork { ops, bytes: ops * len as u64, ..RowWork::default() })
}

pub(super) fn stat(place: &LoadDirectory, scale: &Scale, end: Instant) -> Result<RowWork> {
    // In another order than the directory's; files that a slow `create` left out are skipped.
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
    Ok(RowWork { ops, ..RowWork::default() })
}

pub(super) fn list(place: &LoadDirectory, end: Instant) -> Result<RowWork> {
    let directory = File::open(place.directory())?;
    let mut ops = 0;
    for entry in fs::read_dir(place.directory())? {
        // With the attributes that ls asks for: the birth time would cost a request for each file.
        statat(&directory, entry?.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .context("stat of an entry")?;
        ops += 1;
        if Instant::now() >= end {
            break;
        }
    }
    Ok(RowWork { ops, ..RowWork::default() })
}

pub(super) fn rename(place: &LoadDirectory, scale: &Scale, end: Instant) -> Result<RowWork> {
    let ops = each(scale, end, |no| {
        let from = name(place, no);
        Ok(fs::rename(&from, from.with_extension("renamed"))?)
    })?;
    Ok(RowWork { ops, ..RowWork::default() })
}

/// Unlinks all files of the directory, in the directory's order.
pub(super) fn unlink(place: &LoadDirectory, end: Instant) -> Result<RowWork> {
    remove_all(&place.directory(), end).map(|ops| RowWork { ops, ..RowWork::default() })
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

/// Makes one directory for each thread.
pub(super) fn make_directories(place: &LoadDirectory) -> Result<()> {
    (0..THREADS).try_for_each(|no| Ok(fs::create_dir(directory(place, no))?))
}

/// Creates in each thread as many files as the other rows do in one.
pub(super) fn create_parallel(
    place: &LoadDirectory,
    scale: &Scale,
    end: Instant,
) -> Result<RowWork> {
    parallel(place, |directory| {
        each(scale, end, |no| {
            Ok(File::create_new(directory.join(format!("file-{no:06}"))).map(drop)?)
        })
    })
}

pub(super) fn unlink_parallel(place: &LoadDirectory, end: Instant) -> Result<RowWork> {
    parallel(place, |directory| remove_all(directory, end))
}

fn parallel(place: &LoadDirectory, work: impl Fn(&Path) -> Result<u64> + Sync) -> Result<RowWork> {
    let work = &work;
    let ops: Result<u64> = thread::scope(|scope| {
        let spawn = |no| scope.spawn(move || work(&directory(place, no)));
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    });
    Ok(RowWork { ops: ops?, ..RowWork::default() })
}

fn directory(place: &LoadDirectory, thread: u64) -> PathBuf {
    place.directory().join(format!("{thread}"))
}

fn name(place: &LoadDirectory, no: u64) -> PathBuf {
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
