//! The tree of a directory as the content of a volume.
//!
//! Entries are read in the order of their names. No symbolic link is followed below the directory, and a file that
//! changes while it is read is an error: the volume would hold a state that never existed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use sfs_core::format::{ROOT_INO, Timestamp};

use super::tree_writer::{DIRECTORY, REGULAR, SourceAttributes, TreeWriter, Xattrs};
use super::{FillError, FillReason};

/// Number of bytes of a file that are read at once: whole blocks.
const READ_LEN: usize = 1 << 20;

/// Longest list of names, and longest value, of extended attributes in Linux.
const XATTRS_LEN_MAX: usize = 64 << 10;

/// Copies the directory `root`, opened as `opened`, to the root of the volume. `target` has the device and inode number
/// of the image that is being made.
pub(super) fn fill(
    writer: &mut TreeWriter,
    root: &Path,
    opened: File,
    target: Option<(u64, u64)>,
) -> Result<(), FillError> {
    let mut copy = DirectoryCopy { writer, target, linked: BTreeMap::new() };
    copy.directory(ROOT_INO, &opened, root)
}

struct DirectoryCopy<'a> {
    writer: &'a mut TreeWriter,
    target: Option<(u64, u64)>,
    /// Inode numbers of files with several names, by device and inode number in the source.
    linked: BTreeMap<(u64, u64), u64>,
}

impl DirectoryCopy<'_> {
    /// Copies the entries and attributes of a directory to the directory `ino`.
    fn directory(&mut self, ino: u64, source: &File, path: &Path) -> Result<(), FillError> {
        let at = |error: FillReason| FillError::new(path, error);
        let before = fstat(source).map_err(|error| at(error.into()))?;
        for name in names(source).map_err(|error| at(error.into()))? {
            self.entry(ino, source, &name, &path.join(as_path(&name)))?;
        }
        let xattrs = xattrs(source, None).map_err(|error| at(error.into()))?;
        let after = fstat(source).map_err(|error| at(error.into()))?;
        refuse_changed(&before, &after).map_err(at)?;
        let attributes = attributes(&before, xattrs);
        let finished = self.writer.finish_file(ino, DIRECTORY, path, attributes);
        finished.map_err(|error| at(error.into()))
    }

    /// Copies the entry `name` of the directory `source` to the directory `parent`.
    fn entry(
        &mut self,
        parent: u64,
        source: &File,
        name: &[u8],
        path: &Path,
    ) -> Result<(), FillError> {
        let at = |error: FillReason| FillError::new(path, error);
        let stat = statat(source, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| at(io::Error::from(error).into()))?;
        if self.target == Some((stat.st_dev, stat.st_ino)) {
            return Err(at(FillReason::Itself));
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let opened = open(source, name, OFlags::DIRECTORY, &stat).map_err(at)?;
            let ino = self.writer.make(parent, name, DIRECTORY, 0);
            let ino = ino.map_err(|error| at(error.into()))?;
            return self.directory(ino, &opened, path);
        }
        self.file(parent, source, name, &stat, path).map_err(at)
    }

    /// Copies a file that is not a directory.
    fn file(
        &mut self,
        parent: u64,
        source: &File,
        name: &[u8],
        stat: &Stat,
        path: &Path,
    ) -> Result<(), FillReason> {
        let key = (stat.st_dev, stat.st_ino);
        if let Some(ino) = self.linked.get(&key) {
            return Ok(self.writer.link(*ino, parent, name)?);
        }
        let kind = stat.st_mode & 0o170_000;
        let ino = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.regular(parent, source, name, stat)?,
            FileType::Symlink => {
                let target = readlinkat(source, name, Vec::new())?;
                self.writer.symlink(parent, name, target.to_bytes())?
            }
            _ => {
                let rdev = u32::try_from(stat.st_rdev).map_err(|_| FillReason::Number("device"))?;
                self.writer.make(parent, name, kind, rdev)?
            }
        };
        if stat.st_nlink > 1 {
            self.linked.insert(key, ino);
        }
        let attributes = attributes(stat, xattrs(source, Some(name))?);
        let again = statat(source, name, AtFlags::SYMLINK_NOFOLLOW)?;
        refuse_changed(stat, &again)?;
        Ok(self.writer.finish_file(ino, kind, path, attributes)?)
    }

    /// Copies the content of a regular file; returns its new inode number.
    fn regular(
        &mut self,
        parent: u64,
        source: &File,
        name: &[u8],
        stat: &Stat,
    ) -> Result<u64, FillReason> {
        let mut file = open(source, name, OFlags::NONBLOCK | OFlags::NOCTTY, stat)?;
        let ino = self.writer.make(parent, name, REGULAR, 0)?;
        let mut buffer = vec![0; READ_LEN];
        let mut offset = 0;
        loop {
            let len = fill_buffer(&mut file, &mut buffer)?;
            self.writer.write(ino, offset, &buffer[..len])?;
            offset += len as u64;
            if len < buffer.len() {
                break;
            }
        }
        if offset != stat.st_size as u64 {
            return Err(FillReason::Changed);
        }
        self.writer.set_size(ino, offset)?;
        refuse_changed(stat, &fstat(&file)?)?;
        Ok(ino)
    }
}

impl From<rustix::io::Errno> for FillReason {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Read(error.into())
    }
}

/// Opens an entry for reading, if it is still the file of `stat`.
fn open(source: &File, name: &[u8], flags: OFlags, stat: &Stat) -> Result<File, FillReason> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(source, name, flags, Mode::empty())?);
    let opened = fstat(&file)?;
    let is_it = (opened.st_dev, opened.st_ino) == (stat.st_dev, stat.st_ino);
    if is_it { Ok(file) } else { Err(FillReason::Changed) }
}

/// Reads until `buffer` is full or the file ends; returns the number of bytes.
pub(super) fn fill_buffer(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Returns the names of a directory's entries, sorted.
fn names(directory: &File) -> Result<Vec<Vec<u8>>, io::Error> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn as_path(name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    std::ffi::OsStr::from_bytes(name).into()
}

/// Returns the extended attributes of `directory`, or of its entry `name`, in the order of their names. The path
/// through /proc leads to the directory whatever its name is now.
fn xattrs(directory: &File, name: Option<&[u8]>) -> Result<Xattrs, io::Error> {
    let mut path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()).into_bytes();
    // The last component is not followed, so that of a directory is its own dot.
    path.push(b'/');
    path.extend(name.unwrap_or(b"."));
    let mut list = vec![0; XATTRS_LEN_MAX];
    let len = match rustix::fs::llistxattr(path.as_slice(), &mut list) {
        Ok(len) => len,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut names: Vec<&[u8]> =
        list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut found = Vec::new();
    for name in names {
        let mut value = vec![0; XATTRS_LEN_MAX];
        match rustix::fs::lgetxattr(path.as_slice(), name, &mut value) {
            Ok(len) => value.truncate(len),
            // The list can have names that this process may not read, or that were removed since.
            Err(rustix::io::Errno::NODATA) => continue,
            Err(error) => return Err(error.into()),
        }
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

fn attributes(stat: &Stat, xattrs: Xattrs) -> SourceAttributes {
    SourceAttributes {
        permissions: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
        xattrs,
    }
}

/// Refuses a file whose content or attributes have changed between two calls.
fn refuse_changed(before: &Stat, after: &Stat) -> Result<(), FillReason> {
    let state = |stat: &Stat| {
        let times = [stat.st_mtime, stat.st_mtime_nsec as i64, stat.st_ctime];
        (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mode, times, stat.st_ctime_nsec as i64)
    };
    if state(before) == state(after) { Ok(()) } else { Err(FillReason::Changed) }
}
