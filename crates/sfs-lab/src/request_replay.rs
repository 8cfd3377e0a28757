//! Repeats the load of a mounted volume in a directory of any filesystem: a file for each inode of the trace, with the
//! number as its name.
//!
//! Writes, reads, truncations, holes, syncs and deletions are repeated in their order by one thread, as soon as possible
//! or at their times. The page cache of the filesystem may join writes; a mount without it (`nowriteback` for SFS) gets
//! the same writes.

use std::collections::hash_map::Entry;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustc_hash::FxHashMap;
use rustix::fs::{FallocateFlags, fallocate, syncfs};
use serde::Serialize;

use crate::request_load::{LoadAction, RequestLoad};

/// Largest number of files that are open at the same time.
const OPEN_FILES_MAX: usize = 256;

/// Content of the writes.
static CONTENT: [u8; 1 << 20] = [3; 1 << 20];

/// Outcome of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReplayCounts {
    /// Number of bytes written.
    pub written_bytes: u64,
    /// Number of bytes read; less than the trace's where a file has no content that an earlier program wrote.
    pub read_bytes: u64,
    /// Number of syncs.
    pub syncs: u64,
    /// Number of files deleted.
    pub deletions: u64,
    /// Duration in seconds.
    pub secs: f64,
}

/// Replays `load` in `directory`; at the times of the trace if `is_timed`.
///
/// # Errors
///
/// The first error of the filesystem, with the file's path.
pub fn replay(load: &RequestLoad, directory: &Path, is_timed: bool) -> Result<ReplayCounts> {
    let root = File::open(directory).with_context(|| directory.display().to_string())?;
    let begun = Instant::now();
    let mut files = Files { directory, open: FxHashMap::default() };
    let mut counts = ReplayCounts::default();
    for operation in &load.operations {
        if is_timed {
            let at = Duration::from_micros(operation.at_us);
            thread::sleep(at.saturating_sub(begun.elapsed()));
        }
        if operation.action == LoadAction::SyncAll {
            counts.syncs += 1;
            syncfs(&root).with_context(|| directory.display().to_string())?;
            continue;
        }
        let ino = load.files[operation.file as usize].ino;
        let outcome = files.operate(ino, operation.action, &mut counts);
        outcome.with_context(|| files.path(ino).display().to_string())?;
    }
    Ok(ReplayCounts { secs: begun.elapsed().as_secs_f64(), ..counts })
}

/// Files of a replay.
struct Files<'a> {
    directory: &'a Path,
    open: FxHashMap<u64, File>,
}

impl Files<'_> {
    fn path(&self, ino: u64) -> PathBuf {
        self.directory.join(ino.to_string())
    }

    fn operate(
        &mut self,
        ino: u64,
        action: LoadAction,
        counts: &mut ReplayCounts,
    ) -> io::Result<()> {
        match action {
            LoadAction::Make => drop(self.file(ino)?),
            LoadAction::Read { offset, len } => {
                counts.read_bytes += read(self.file(ino)?, offset, len)?;
            }
            LoadAction::Write { offset, len } => {
                write(self.file(ino)?, offset, len)?;
                counts.written_bytes += len;
            }
            LoadAction::Truncate { size } => self.file(ino)?.set_len(size)?,
            LoadAction::Punch { offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(self.file(ino)?, flags, offset, len)?;
            }
            LoadAction::Sync => {
                self.file(ino)?.sync_all()?;
                counts.syncs += 1;
            }
            LoadAction::SyncAll => {}
            LoadAction::Delete => {
                self.open.remove(&ino);
                match fs::remove_file(self.path(ino)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => counts.deletions += 1,
                }
            }
        }
        Ok(())
    }

    /// Returns an open file, which is made if it does not exist.
    fn file(&mut self, ino: u64) -> io::Result<&File> {
        if self.open.len() >= OPEN_FILES_MAX && !self.open.contains_key(&ino) {
            self.open.clear();
        }
        let path = self.path(ino);
        Ok(match self.open.entry(ino) {
            Entry::Occupied(file) => file.into_mut(),
            Entry::Vacant(place) => {
                let mut options = OpenOptions::new();
                let options = options.read(true).write(true).create(true).truncate(false);
                place.insert(options.open(path)?)
            }
        })
    }
}

fn write(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let part = (end - at).min(CONTENT.len() as u64);
        file.write_all_at(&CONTENT[..part as usize], at)?;
        at += part;
    }
    Ok(())
}

/// Reads a range up to the end of the file. Returns the number of bytes.
fn read(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let end = offset + len;
    let mut buffer = vec![0; len.min(1 << 20) as usize];
    let mut at = offset;
    while at < end {
        let part = (end - at).min(buffer.len() as u64) as usize;
        match file.read_at(&mut buffer[..part], at)? {
            0 => break,
            len => at += len as u64,
        }
    }
    Ok(at - offset)
}
