//! Ageing of a mounted filesystem, as in the FAST 2009 paper (section 6.1): it is filled with files, and
//! files are deleted at random until it is as full as wanted, so that what is free is everywhere.
//!
//! Owns: which files there are, and in which order they are deleted.
//! Promises: a seed gives the same files, with the same content, and the same order on every
//! filesystem that is large enough for them.
//! Never: touches what is not its own.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::random::Random;

/// Files of a directory.
const FILES_PER_DIRECTORY: usize = 100;

/// Bytes that are written at once.
const PIECE_LEN: usize = 1 << 20;

/// What a filesystem is filled with, and how full it stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ageing {
    /// Files and deletions follow from it.
    pub seed: u64,
    /// Bytes of the smallest file, at least 1.
    pub smallest: u64,
    /// Bytes of the largest file.
    pub largest: u64,
    /// The part of the filesystem's blocks that is used at the end, in 0..=1.
    pub utilization: f64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Aged {
    /// Files that it was filled with.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were deleted.
    pub deleted: usize,
    /// The part of the filesystem's blocks that was used when it was full.
    pub utilization_full: f64,
    /// And is used now, as the filesystem says after a sync.
    pub utilization: f64,
}

impl Ageing {
    /// Lengths of the files, without end: between the smallest and the largest, every octave as often.
    fn lengths(&self) -> impl Iterator<Item = u64> + use<> {
        let mut random = Random::new(self.seed);
        let (smallest, largest) = (self.smallest.max(1), self.largest.max(self.smallest));
        let octaves = (largest as f64 / smallest as f64).log2();
        std::iter::repeat_with(move || {
            let len = smallest as f64 * (random.unit() * octaves).exp2();
            (len as u64).clamp(smallest, largest)
        })
    }

    /// Ages the filesystem that is mounted at `dir`; `said` is told how full it is from time to time.
    ///
    /// # Errors
    ///
    /// What the filesystem says, but for ENOSPC while it is filled. Files stay where they are then.
    pub fn run(&self, dir: &Path, said: &mut dyn FnMut(f64)) -> io::Result<Aged> {
        let mut aged = Aged::default();
        let mut written = Vec::new();
        let mut random = Random::new(!self.seed);
        for len in self.lengths() {
            let path = path(dir, written.len());
            match write(&path, len, &mut random) {
                Ok(()) => written.push((path, len)),
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    fs::remove_file(&path).or_else(unless_missing)?;
                    break;
                }
                Err(error) => return Err(error),
            }
            if written.len() % FILES_PER_DIRECTORY == 0 {
                said(used(dir)?.utilization());
            }
        }
        aged.files = written.len();
        aged.bytes = written.iter().map(|(_, len)| len).sum();
        // What did not fit may be said once more, by who writes the kernel's cache back.
        match sync(dir) {
            Err(error) if error.kind() == ErrorKind::StorageFull => sync(dir)?,
            outcome => outcome?,
        }
        let full = used(dir)?;
        aged.utilization_full = full.utilization();
        // What is deleted may be free only later: it is counted, not asked for.
        let mut left = full;
        for index in Random::new(self.seed).permutation(written.len() as u32) {
            if left.utilization() <= self.utilization {
                break;
            }
            let path = &written[index as usize].0;
            left.bytes_used = left.bytes_used.saturating_sub(allocated(path)?);
            fs::remove_file(path)?;
            aged.deleted += 1;
            if aged.deleted.is_multiple_of(FILES_PER_DIRECTORY) {
                said(left.utilization());
            }
        }
        sync(dir)?;
        aged.utilization = used(dir)?.utilization();
        Ok(aged)
    }
}

fn path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("aged-{:04}", index / FILES_PER_DIRECTORY)).join(format!("{index:06}"))
}

fn write(path: &Path, len: u64, random: &mut Random) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("it has one"))?;
    let mut file = File::create_new(path)?;
    let mut piece = vec![0; PIECE_LEN.min(len as usize)];
    let mut left = len as usize;
    while left > 0 {
        let len = left.min(PIECE_LEN);
        for bytes in piece[..len].chunks_mut(8) {
            bytes.copy_from_slice(&random.bits().to_le_bytes()[..bytes.len()]);
        }
        file.write_all(&piece[..len])?;
        left -= len;
    }
    // What is only in a cache may not fit.
    file.sync_all()
}

fn unless_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// How much of a filesystem is used.
#[derive(Clone, Copy)]
struct Used {
    bytes_used: u64,
    bytes: u64,
}

impl Used {
    fn utilization(self) -> f64 {
        self.bytes_used as f64 / self.bytes as f64
    }
}

fn used(dir: &Path) -> io::Result<Used> {
    let space = rustix::fs::statvfs(dir)?;
    // What only root may have is not for files.
    let bytes = (space.f_blocks - space.f_bfree + space.f_bavail) * space.f_frsize;
    Ok(Used { bytes_used: (space.f_blocks - space.f_bfree) * space.f_frsize, bytes })
}

fn allocated(path: &Path) -> io::Result<u64> {
    Ok(rustix::fs::lstat(path)?.st_blocks as u64 * 512)
}

fn sync(dir: &Path) -> io::Result<()> {
    let dir = File::open(dir)?;
    dir.sync_all()?;
    Ok(rustix::fs::syncfs(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ageing(seed: u64) -> Ageing {
        Ageing { seed, smallest: 1 << 10, largest: 16 << 20, utilization: 0.5 }
    }

    #[test]
    fn every_octave_is_as_frequent() {
        let mut counts = [0_u32; 14];
        for len in ageing(1).lengths().take(14_000) {
            assert!((1 << 10..=16 << 20).contains(&len));
            counts[(len.ilog2() as usize - 10).min(13)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_seed_gives_the_same_files() {
        let of = |seed| ageing(seed).lengths().take(100).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn files_may_all_be_of_one_length() {
        let ageing = Ageing { smallest: 4096, largest: 4096, ..ageing(1) };
        assert!(ageing.lengths().take(100).all(|len| len == 4096));
    }
}
