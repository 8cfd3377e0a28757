//! Ageing of a mounted filesystem, as in the FAST 2009 paper (section 6.1).
//!
//! The filesystem is filled with files, and files are deleted at random down to a utilization, so
//! that free space is everywhere. A seed gives the same files, with the same contents and the same
//! order of deletion, on every filesystem with room for the files. Other files are not touched.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::random::WorkloadRng;

/// Number of files in a directory.
const FILES_PER_DIRECTORY: usize = 100;

/// Size of a write, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// The sizes of files, and the final utilization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ageing {
    /// Seed of the files and deletions.
    pub seed: u64,
    /// Size of the smallest file in bytes, at least 1.
    pub smallest: u64,
    /// Size of the largest file in bytes.
    pub largest: u64,
    /// Used part of the filesystem's blocks at the end, 0..=1.
    pub utilization: f64,
}

/// The outcome of ageing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Aged {
    /// Number of files before deletions.
    pub files: usize,
    /// Size of all these files, in bytes.
    pub bytes: u64,
    /// Number of deleted files.
    pub deleted: usize,
    /// Used part of the filesystem's blocks before deletions, 0..=1.
    pub utilization_full: f64,
    /// Used part at the end, as the filesystem reports it after a sync.
    pub utilization: f64,
}

impl Ageing {
    /// Returns the endless sequence of file sizes: all octaves between the smallest and the largest
    /// size are equally frequent.
    fn lengths(&self) -> impl Iterator<Item = u64> + use<> {
        let mut random = WorkloadRng::new(self.seed);
        let (smallest, largest) = (self.smallest.max(1), self.largest.max(self.smallest));
        let octaves = (largest as f64 / smallest as f64).log2();
        std::iter::repeat_with(move || {
            let len = smallest as f64 * (random.unit() * octaves).exp2();
            (len as u64).clamp(smallest, largest)
        })
    }

    /// Ages the filesystem that is mounted at `dir`, and calls `progress` with the utilization from
    /// time to time.
    ///
    /// # Errors
    ///
    /// If the filesystem returns an error, other than ENOSPC while it is filled. The files stay.
    pub fn run(&self, dir: &Path, progress: &mut dyn FnMut(f64)) -> io::Result<Aged> {
        let mut aged = Aged::default();
        let mut written = Vec::new();
        let mut random = WorkloadRng::new(!self.seed);
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
                progress(used(dir)?.utilization());
            }
        }
        aged.files = written.len();
        aged.bytes = written.iter().map(|(_, len)| len).sum();
        // The kernel may report the lack of space a second time, when it writes its cache back.
        match sync(dir) {
            Err(error) if error.kind() == ErrorKind::StorageFull => sync(dir)?,
            outcome => outcome?,
        }
        let full = used(dir)?;
        aged.utilization_full = full.utilization();
        // The filesystem may free the space of a deleted file later, so the loop counts the space
        // itself.
        let mut left = full;
        for index in WorkloadRng::new(self.seed).permutation(written.len() as u32) {
            if left.utilization() <= self.utilization {
                break;
            }
            let path = &written[index as usize].0;
            left.bytes_used = left.bytes_used.saturating_sub(allocated(path)?);
            fs::remove_file(path)?;
            aged.deleted += 1;
            if aged.deleted.is_multiple_of(FILES_PER_DIRECTORY) {
                progress(left.utilization());
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

fn write(path: &Path, len: u64, random: &mut WorkloadRng) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("the path has a parent"))?;
    let mut file = File::create_new(path)?;
    let mut piece = vec![0; WRITE_BYTES.min(len as usize)];
    let mut left = len as usize;
    while left > 0 {
        let len = left.min(WRITE_BYTES);
        for bytes in piece[..len].chunks_mut(8) {
            bytes.copy_from_slice(&random.bits().to_le_bytes()[..bytes.len()]);
        }
        file.write_all(&piece[..len])?;
        left -= len;
    }
    // Data that is only in a cache may not fit on the device.
    file.sync_all()
}

fn unless_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The used and the total space of a filesystem.
#[derive(Clone, Copy)]
struct UsedSpace {
    bytes_used: u64,
    bytes: u64,
}

impl UsedSpace {
    fn utilization(self) -> f64 {
        self.bytes_used as f64 / self.bytes as f64
    }
}

fn used(dir: &Path) -> io::Result<UsedSpace> {
    let space = rustix::fs::statvfs(dir)?;
    // Space that is reserved for root is not counted.
    let bytes = (space.f_blocks - space.f_bfree + space.f_bavail) * space.f_frsize;
    Ok(UsedSpace { bytes_used: (space.f_blocks - space.f_bfree) * space.f_frsize, bytes })
}

/// Returns the number of bytes that are allocated to a file.
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
    fn smallest_and_largest_may_be_equal() {
        let ageing = Ageing { smallest: 4096, largest: 4096, ..ageing(1) };
        assert!(ageing.lengths().take(100).all(|len| len == 4096));
    }
}
