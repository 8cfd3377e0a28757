//! The rows that move names.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    time::Instant,
};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, lstat, statat};
use rustix::io::Errno;

use super::{Done, Place, Scale, random::Random};

pub(super) fn create(place: &Place, scale: &Scale, len: usize, end: Instant) -> Result<Done> {
    let mut bytes = vec![0; len];
    Random::new(place.seed).fill(&mut bytes);
    each(scale, end, |no| {
        let mut file = File::create_new(name(place, no))?;
        Ok(file.write_all(&bytes)?)
    })
    .map(|ops| Done { ops, bytes: ops * len as u64 })
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
    Ok(Done { ops, bytes: 0 })
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
    Ok(Done { ops, bytes: 0 })
}

pub(super) fn rename(place: &Place, scale: &Scale, end: Instant) -> Result<Done> {
    let ops = each(scale, end, |no| {
        let from = name(place, no);
        Ok(fs::rename(&from, from.with_extension("renamed"))?)
    })?;
    Ok(Done { ops, bytes: 0 })
}

/// Whatever is there, in the directory's order.
pub(super) fn unlink(place: &Place, end: Instant) -> Result<Done> {
    let names: Vec<PathBuf> =
        fs::read_dir(place.directory())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let mut ops = 0;
    for name in names {
        fs::remove_file(name)?;
        ops += 1;
        if Instant::now() >= end {
            break;
        }
    }
    Ok(Done { ops, bytes: 0 })
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
