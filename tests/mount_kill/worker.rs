//! Files of one thread that are written and synced until the daemon is gone, and what they may hold afterwards.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sfs_testkit::SeededRng;

use super::harness::content;

const BLOCK: usize = 4096;

/// Number of files of each kind that one thread has.
const FILES: usize = 4;
const OVERWRITTEN_BLOCKS: u64 = 16;
const RECORD_LEN: usize = 100;

/// Largest number of records at the end of one file.
const RECORDS_MAX: u64 = 10_000;

/// Allowed versions of one file: at least the synced one, at most the last one begun.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    synced: u64,
    begun: u64,
}

/// Files of one thread, and the versions that the thread knows of.
pub(crate) struct Worker {
    pub(crate) name: String,
    random: SeededRng,
    /// Files whose versions are each written to a temporary file and renamed over the last.
    replaced: [Range; FILES],
    /// Versions of each block that is written in place.
    overwritten: [[Range; OVERWRITTEN_BLOCKS as usize]; FILES],
    /// Records at the end of one file.
    appended: Range,
}

/// Returns the length of a version of a replaced file: 8 bytes to 100 KB.
fn replaced_len(version: u64) -> usize {
    8 + SeededRng::new(version).below(100_000) as usize
}

impl Worker {
    pub(crate) fn new(thread: u64, seed: u64) -> Self {
        Self {
            name: format!("worker-{thread}"),
            random: SeededRng::new(seed ^ thread << 48),
            replaced: [Range::default(); FILES],
            overwritten: [[Range::default(); OVERWRITTEN_BLOCKS as usize]; FILES],
            appended: Range::default(),
        }
    }

    fn path(&self, root: &Path, sort: &str, index: usize) -> PathBuf {
        root.join(&self.name).join(format!("{sort}-{index}"))
    }

    /// Changes files until the daemon is gone; records each acknowledged version.
    pub(crate) fn work(&mut self, root: &Path, acknowledged: &AtomicU64) -> io::Error {
        loop {
            match self.change(root) {
                Ok(()) => acknowledged.fetch_add(1, Ordering::Relaxed),
                Err(error) => return error,
            };
        }
    }

    /// Changes one file, and syncs it.
    pub(crate) fn change(&mut self, root: &Path) -> io::Result<()> {
        let index = self.random.below(FILES as u64) as usize;
        match self.random.below(3) {
            0 => self.replace(root, index),
            1 => self.overwrite(root, index),
            _ => self.append(root),
        }
    }

    fn replace(&mut self, root: &Path, index: usize) -> io::Result<()> {
        let (path, aside) = (self.path(root, "replaced", index), self.path(root, "aside", index));
        self.replaced[index].begun += 1;
        let version = self.replaced[index].begun;
        let name = format!("{}-{index}", self.name);
        let mut file = File::create(&aside)?;
        file.write_all(&content(&name, version, replaced_len(version)))?;
        file.sync_all()?;
        fs::rename(&aside, &path)?;
        if self.random.below(2) == 0 {
            File::open(path.parent().expect("a directory"))?.sync_all()?;
            self.replaced[index].synced = version;
        }
        Ok(())
    }

    fn overwrite(&mut self, root: &Path, index: usize) -> io::Result<()> {
        let path = self.path(root, "overwritten", index);
        let file = File::options().write(true).create(true).truncate(false).open(&path)?;
        let mut written = Vec::new();
        for _ in 0..1 + self.random.below(8) {
            let block = self.random.below(OVERWRITTEN_BLOCKS);
            let range = &mut self.overwritten[index][block as usize];
            range.begun += 1;
            let bytes = content(&format!("{}-{index}-{block}", self.name), range.begun, BLOCK);
            file.write_all_at(&bytes, block * BLOCK as u64)?;
            written.push((block as usize, range.begun));
        }
        file.sync_data()?;
        for (block, version) in written {
            self.overwritten[index][block].synced = version;
        }
        Ok(())
    }

    fn append(&mut self, root: &Path) -> io::Result<()> {
        let path = self.path(root, "appended", 0);
        if self.appended.begun > RECORDS_MAX {
            return self.replace(root, 0);
        }
        let mut file = File::options().append(true).create(true).open(path)?;
        for _ in 0..1 + self.random.below(60) {
            self.appended.begun += 1;
            file.write_all(&content(&self.name, self.appended.begun, RECORD_LEN))?;
        }
        file.sync_all()?;
        self.appended.synced = self.appended.begun;
        Ok(())
    }

    /// Allows any earlier state of the files.
    pub(crate) fn roll_back(&mut self) {
        let overwritten = self.overwritten.iter_mut().flatten();
        let all = self.replaced.iter_mut().chain(overwritten).chain([&mut self.appended]);
        all.for_each(|range| range.synced = 0);
    }

    /// Compares the files with the allowed versions, and truncates the appended file to its synced
    /// records.
    pub(crate) fn verify(&mut self, root: &Path) {
        for index in 0..FILES {
            self.verify_replaced(root, index);
            self.verify_overwritten(root, index);
        }
        self.verify_appended(root);
    }

    fn verify_replaced(&mut self, root: &Path, index: usize) {
        let path = self.path(root, "replaced", index);
        let range = self.replaced[index];
        let Some(bytes) = read(&path, range.synced > 0) else { return };
        let version = version_of(&bytes);
        let shown = path.display();
        assert!(
            (range.synced.max(1)..=range.begun).contains(&version),
            "{shown}: version {version:?} of {} bytes, not of {range:?}",
            bytes.len()
        );
        let expected = content(&format!("{}-{index}", self.name), version, replaced_len(version));
        assert!(bytes == expected, "{shown}: version {version} is not whole: {range:?}");
    }

    fn verify_overwritten(&mut self, root: &Path, index: usize) {
        let path = self.path(root, "overwritten", index);
        let synced = |range: &Range| range.synced > 0;
        let Some(bytes) = read(&path, self.overwritten[index].iter().any(synced)) else { return };
        for (block, range) in self.overwritten[index].iter().enumerate() {
            let start = (block * BLOCK).min(bytes.len());
            let found = &bytes[start..(start + BLOCK).min(bytes.len())];
            let version = version_of(found);
            let shown = format!("{}, block {block}", path.display());
            assert!(
                (range.synced..=range.begun).contains(&version),
                "{shown}: {version}, {range:?}"
            );
            if version == 0 {
                assert!(found.iter().all(|byte| *byte == 0), "{shown}: never written: {range:?}");
            } else {
                let expected = content(&format!("{}-{index}-{block}", self.name), version, BLOCK);
                let torn = found.iter().zip(&expected).position(|(a, b)| a != b);
                assert!(found == expected, "{shown}: {version} differs at {torn:?}: {range:?}");
            }
        }
    }

    fn verify_appended(&mut self, root: &Path) {
        let path = self.path(root, "appended", 0);
        let range = self.appended;
        let Some(bytes) = read(&path, range.synced > 0) else {
            self.appended = Range::default();
            return;
        };
        let shown = path.display();
        let records = bytes.len().div_ceil(RECORD_LEN) as u64;
        assert!((range.synced..=range.begun).contains(&records), "{shown}: {records}, {range:?}");
        for version in 1..=range.synced {
            let start = (version - 1) as usize * RECORD_LEN;
            let found = &bytes[start..start + RECORD_LEN];
            assert!(found == content(&self.name, version, RECORD_LEN), "{shown}: record {version}");
        }
        // Records that were not synced may be cut anywhere: the file is truncated to whole records.
        let file = File::options().write(true).open(&path).expect("the entry exists");
        file.set_len(range.synced * RECORD_LEN as u64).expect("truncating");
        file.sync_all().expect("syncing");
        self.appended.begun = range.synced;
    }
}

fn read(path: &Path, must_be: bool) -> Option<Vec<u8>> {
    match fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_be => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Returns the version that `bytes` begin with; 0 for a hole.
fn version_of(bytes: &[u8]) -> u64 {
    bytes.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}
