//! A tar archive as the content of a volume.
//!
//! Entries are copied in the order of the archive, and a later entry replaces an earlier one of the same name. Names are
//! below the root of the volume whatever they begin with; a name with `..` is refused, and no symbolic link is ever
//! followed. Directories that no entry describes belong to root.

mod entry_reader;
mod pax;

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sfs_core::format::ROOT_INO;

use super::directory::fill_buffer;
use super::tree_writer::{DIRECTORY, REGULAR, SourceAttributes, TreeWriter};
use super::{FillError, FillReason};
use entry_reader::{Entry, EntryKind, EntryReader};

/// Number of bytes that are read at once.
const READ_LEN: usize = 1 << 20;

/// Copies the archive `opened`, whose path is `source`, to the volume.
pub(super) fn fill(writer: &mut TreeWriter, source: &Path, opened: File) -> Result<(), FillError> {
    let mut reader = EntryReader::new(BufReader::with_capacity(READ_LEN, opened));
    let mut buffer = vec![0; READ_LEN];
    loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(()),
            Err(reason) if reader.name().is_empty() => return Err(FillError::new(source, reason)),
            Err(reason) => return Err(FillError::new(&as_path(reader.name()), reason)),
        };
        let path = as_path(&entry.name);
        let mut copy = EntryCopy { writer, reader: &mut reader, buffer: &mut buffer };
        copy.entry(&path, entry).map_err(|reason| FillError::new(&path, reason))?;
    }
}

fn as_path(name: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}

struct EntryCopy<'a, R: Read> {
    writer: &'a mut TreeWriter,
    reader: &'a mut EntryReader<R>,
    buffer: &'a mut [u8],
}

impl<R: Read> EntryCopy<'_, R> {
    fn entry(&mut self, path: &Path, entry: Entry) -> Result<(), FillReason> {
        let names = components(&entry.name)?;
        let attributes = entry.attributes;
        let Some((name, parents)) = names.split_last() else {
            // The root directory itself.
            let is_root = entry.kind == EntryKind::Directory;
            return match is_root {
                true => Ok(self.writer.finish_file(ROOT_INO, DIRECTORY, path, attributes)?),
                false => Err(FillReason::Unnamed),
            };
        };
        let parent = self.parent(parents)?;
        if let Some((ino, mode)) = self.writer.find(parent, name)? {
            if entry.kind == EntryKind::Directory && mode & 0o170_000 == DIRECTORY {
                let ino = self.writer.again(ino, parent, name)?;
                return Ok(self.writer.finish_file(ino, DIRECTORY, path, attributes)?);
            }
            if let EntryKind::Link(target) = &entry.kind
                && self.target(target)? == ino
            {
                return Ok(());
            }
            self.writer.remove(parent, name, mode)?;
        }
        let (ino, kind) = match entry.kind {
            EntryKind::Directory => (self.writer.make(parent, name, DIRECTORY, 0)?, DIRECTORY),
            EntryKind::Symlink(target) => (self.writer.symlink(parent, name, &target)?, 0o120_000),
            EntryKind::Link(target) => {
                let ino = self.target(&target)?;
                return Ok(self.writer.link(ino, parent, name)?);
            }
            EntryKind::Node { kind, rdev } => (self.writer.make(parent, name, kind, rdev)?, kind),
            EntryKind::Regular { size, ref extents } => {
                let ino = self.writer.make(parent, name, REGULAR, 0)?;
                self.content(ino, extents)?;
                self.writer.set_size(ino, size)?;
                (ino, REGULAR)
            }
        };
        Ok(self.writer.finish_file(ino, kind, path, attributes)?)
    }

    /// Returns the directory with the given path, and makes it if it does not exist.
    fn parent(&mut self, names: &[&[u8]]) -> Result<u64, FillReason> {
        let mut parent = ROOT_INO;
        for name in names {
            parent = match self.writer.find(parent, name)? {
                Some((ino, mode)) if mode & 0o170_000 == DIRECTORY => ino,
                Some(_) => return Err(FillReason::Parent),
                None => {
                    let ino = self.writer.make(parent, name, DIRECTORY, 0)?;
                    let attributes =
                        SourceAttributes { permissions: 0o755, ..SourceAttributes::default() };
                    self.writer.finish_file(ino, DIRECTORY, Path::new(""), attributes)?;
                    ino
                }
            };
        }
        Ok(parent)
    }

    /// Returns the file that a hard link names.
    fn target(&mut self, target: &[u8]) -> Result<u64, FillReason> {
        let wrong = || FillReason::LinkTarget(target.escape_ascii().to_string());
        let names = components(target)?;
        let mut found = (ROOT_INO, DIRECTORY);
        for name in names {
            if found.1 & 0o170_000 != DIRECTORY {
                return Err(wrong());
            }
            found = self.writer.find(found.0, name)?.ok_or_else(wrong)?;
        }
        match found {
            (_, mode) if mode & 0o170_000 == DIRECTORY => Err(wrong()),
            (ino, _) => Ok(ino),
        }
    }

    /// Copies the content of the present entry: the bytes of each extent follow one another in the archive.
    fn content(&mut self, ino: u64, extents: &[(u64, u64)]) -> Result<(), FillReason> {
        for (offset, len) in extents {
            let (mut at, mut left) = (*offset, *len);
            while left > 0 {
                let most = left.min(self.buffer.len() as u64) as usize;
                let read = fill_buffer(self.reader.content(), &mut self.buffer[..most])?;
                if read < most {
                    return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
                }
                self.writer.write(ino, at, &self.buffer[..read])?;
                at += read as u64;
                left -= read as u64;
            }
        }
        Ok(())
    }
}

/// Returns the components of a name in an archive; none for the root directory.
fn components(name: &[u8]) -> Result<Vec<&[u8]>, FillReason> {
    let names: Vec<&[u8]> =
        name.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    match names.iter().any(|name| *name == b"..") {
        true => Err(FillReason::Upward),
        false if name.is_empty() => Err(FillReason::Unnamed),
        false => Ok(names),
    }
}
