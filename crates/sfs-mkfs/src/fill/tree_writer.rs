//! Writes files with all their attributes to an open volume.
//!
//! Blocks of zeros become holes, so the bytes of the volume do not depend on the holes of the source. Directories get
//! their attributes at the end, because each new entry changes their times.

use std::collections::BTreeMap;
use std::path::Path;

use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{AttributeChanges, Caller, Work, WriteMode, XattrMode};
use sfs_core::{Error, Result, Volume};
use sfs_device::BLOCK_SIZE;

use super::{FillTimes, Filled};

/// Number of files after which due work of the volume is done, as its background thread would.
const FILES_PER_WORK: u64 = 256;

/// Type bits of a regular file and of a directory.
pub(super) const REGULAR: u32 = 0o100_000;
pub(super) const DIRECTORY: u32 = 0o040_000;

/// Names and values of extended attributes.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Attributes of a file in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceAttributes {
    /// Permission bits.
    pub(super) permissions: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timestamp,
    pub(super) xattrs: Xattrs,
}

/// Writer of a tree.
pub(super) struct TreeWriter {
    volume: Volume,
    times: FillTimes,
    caller: Caller,
    /// Directories with their attributes.
    directories: BTreeMap<u64, SourceAttributes>,
    filled: Filled,
}

impl TreeWriter {
    /// Returns a writer to the new, empty `volume`.
    pub(super) fn new(volume: Volume, times: FillTimes) -> Self {
        let caller = Caller { uid: 0, gid: 0, umask: None, now: times.now };
        Self { volume, times, caller, directories: BTreeMap::new(), filled: Filled::default() }
    }

    /// Returns the file called `name` in `parent` and its mode; `None` if there is none.
    pub(super) fn find(&self, parent: u64, name: &[u8]) -> Result<Option<(u64, u32)>> {
        match self.volume.lookup(parent, name) {
            Ok(entry) => {
                self.volume.forget(entry.ino, 1);
                Ok(Some((entry.ino, entry.inode.mode)))
            }
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a file of any kind but symbolic links, by the type bits of `kind`; the caller calls
    /// [`TreeWriter::finish_file`] once its content is written.
    pub(super) fn make(&mut self, parent: u64, name: &[u8], kind: u32, rdev: u32) -> Result<u64> {
        let made = self.volume.make_node(parent, name, kind | 0o600, rdev, &self.caller)?;
        self.filled.files += 1;
        Ok(made.ino)
    }

    /// Takes a reference to the directory `ino`, which an archive describes again; the later attributes count.
    pub(super) fn again(&mut self, ino: u64, parent: u64, name: &[u8]) -> Result<u64> {
        self.directories.remove(&ino);
        Ok(self.volume.lookup(parent, name)?.ino)
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(&mut self, parent: u64, name: &[u8], target: &[u8]) -> Result<u64> {
        let made = self.volume.symlink(parent, name, target, &self.caller)?;
        self.filled.files += 1;
        Ok(made.ino)
    }

    /// Gives the file `ino` another name.
    pub(super) fn link(&mut self, ino: u64, parent: u64, name: &[u8]) -> Result<()> {
        self.volume.link(ino, parent, name, &self.caller)?;
        self.volume.forget(ino, 1);
        Ok(())
    }

    /// Removes an earlier file that an archive replaces; an empty directory, too.
    pub(super) fn remove(&mut self, parent: u64, name: &[u8], mode: u32) -> Result<()> {
        match mode & 0o170_000 {
            DIRECTORY => self.volume.remove_directory(parent, name, &self.caller),
            _ => self.volume.unlink(parent, name, &self.caller),
        }
    }

    /// Writes `bytes` at `offset` of a new file, where nothing was written before; blocks of zeros stay holes.
    pub(super) fn write(&mut self, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let to_boundary = BLOCK_SIZE - (offset % BLOCK_SIZE as u64) as usize;
        let (first, rest) = bytes.split_at(to_boundary.min(bytes.len()));
        let blocks: Vec<&[u8]> = std::iter::once(first).chain(rest.chunks(BLOCK_SIZE)).collect();
        let mut start = 0;
        for run in blocks.chunk_by(|a, b| is_hole(a) == is_hole(b)) {
            let len: usize = run.iter().map(|block| block.len()).sum();
            if !is_hole(run[0]) {
                let (at, data) = (offset + start as u64, &bytes[start..start + len]);
                self.volume.write(ino, at, data, WriteMode::default(), &self.caller)?;
            }
            start += len;
        }
        Ok(())
    }

    /// Sets the length of a regular file, which may end with a hole.
    pub(super) fn set_size(&mut self, ino: u64, size: u64) -> Result<()> {
        let changes = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
        self.volume.set_attributes(ino, &changes, &self.caller).map(drop)
    }

    /// Sets the attributes of the file `ino` at `path`, and drops the reference from its creation. A directory gets them
    /// at the end.
    pub(super) fn finish_file(
        &mut self,
        ino: u64,
        kind: u32,
        path: &Path,
        attributes: SourceAttributes,
    ) -> Result<()> {
        self.set_xattrs(ino, path, &attributes)?;
        match kind {
            DIRECTORY => drop(self.directories.insert(ino, attributes)),
            _ => self.set_attributes(ino, &attributes)?,
        }
        if ino != ROOT_INO {
            self.volume.forget(ino, 1);
        }
        if self.filled.files.is_multiple_of(FILES_PER_WORK) {
            while self.volume.work(self.times.now)? == Work::More {}
        }
        Ok(())
    }

    fn set_xattrs(&mut self, ino: u64, path: &Path, attributes: &SourceAttributes) -> Result<()> {
        for (name, value) in &attributes.xattrs {
            match self.volume.set_xattr(ino, name, value, XattrMode::Any, &self.caller) {
                Err(
                    Error::OutOfRange
                    | Error::ValueTooLong
                    | Error::NotSupported
                    | Error::Invalid
                    | Error::NotPermitted,
                ) => {
                    let (path, name) = (path.display(), name.escape_ascii());
                    self.filled.left_out.push(format!("{path}: {name}"));
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn set_attributes(&mut self, ino: u64, attributes: &SourceAttributes) -> Result<()> {
        let now = self.times.now;
        let time = |time: Timestamp| {
            let latest = self.times.latest.unwrap_or(time);
            if (latest.secs, latest.nanos) < (time.secs, time.nanos) { latest } else { time }
        };
        // Changing the owner clears suid and sgid, so the mode comes second.
        let owner = AttributeChanges {
            uid: Some(attributes.uid),
            gid: Some(attributes.gid),
            ..AttributeChanges::default()
        };
        let capability = self.capability(ino, attributes);
        self.volume.set_attributes(ino, &owner, &self.caller)?;
        if let Some((name, value)) = capability {
            self.volume.set_xattr(ino, name, value, XattrMode::Any, &self.caller)?;
        }
        let changes = AttributeChanges {
            mode: Some(attributes.permissions),
            atime: Some(time(attributes.mtime)),
            mtime: Some(time(attributes.mtime)),
            ctime: Some(now),
            btime: Some(now),
            ..AttributeChanges::default()
        };
        self.volume.set_attributes(ino, &changes, &self.caller).map(drop)
    }

    /// Returns the capabilities of the file, which a change of the owner removes.
    fn capability<'a>(
        &self,
        ino: u64,
        attributes: &'a SourceAttributes,
    ) -> Option<&'a (Vec<u8>, Vec<u8>)> {
        let found = attributes.xattrs.iter().find(|(name, _)| name == b"security.capability");
        found.filter(|(name, _)| self.volume.xattr(ino, name).is_ok())
    }

    /// Sets the attributes of all directories and closes the volume.
    pub(super) fn finish(mut self) -> Result<Filled> {
        for (ino, attributes) in std::mem::take(&mut self.directories) {
            self.set_attributes(ino, &attributes)?;
        }
        self.volume.sync_all()?;
        while self.volume.work(self.times.now)? == Work::More {}
        self.filled.least_bytes = self.volume.least_block_count() * BLOCK_SIZE as u64;
        self.volume.close()?;
        Ok(self.filled)
    }
}
