//! The entries of a directory, as the kernel reads them.
//!
//! Owns: their form, and how many of them fit into an answer.
//! Promises: an answer is never longer than was asked for.
//! Never: sorts or looks at names.

use zerocopy::IntoBytes;

use crate::abi::Dirent;
use crate::answer::Entry;

/// Entries begin at multiples of this many bytes.
const ALIGNMENT: usize = 8;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Inode number, which getdents(2) shows.
    pub ino: u64,
    /// Reading goes on after this entry when it begins here.
    pub cookie: u64,
    /// Type bits of the mode; others are ignored.
    pub mode: u32,
    /// Its name.
    pub name: &'a [u8],
}

/// Entries of a directory: the answer to a READDIR or READDIRPLUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    bytes: Vec<u8>,
    len_max: usize,
}

impl Directory {
    /// No entries, in at most `len_max` bytes.
    pub fn new(len_max: u32) -> Self {
        Self { bytes: Vec::new(), len_max: usize::try_from(len_max).unwrap_or(usize::MAX) }
    }

    /// Adds an entry for READDIR; says whether there was room.
    #[must_use]
    pub fn add(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        self.append(&[], entry)
    }

    /// Adds an entry for READDIRPLUS; says whether there was room. If so, `file` is a reference
    /// like one that LOOKUP gives; `None` is none, as "." and ".." have.
    #[must_use]
    pub fn add_with(&mut self, entry: &DirectoryEntry<'_>, file: Option<&Entry>) -> bool {
        let file = file.copied().unwrap_or_default();
        self.append(file.to_wire().as_bytes(), entry)
    }

    fn append(&mut self, before: &[u8], entry: &DirectoryEntry<'_>) -> bool {
        let Ok(namelen) = u32::try_from(entry.name.len()) else { return false };
        let kind = entry.mode >> 12 & 0o17;
        let dirent = Dirent { ino: entry.ino, off: entry.cookie, namelen, kind };
        let len = before.len() + size_of::<Dirent>() + entry.name.len();
        let end = self.bytes.len() + len.next_multiple_of(ALIGNMENT);
        if end > self.len_max {
            return false;
        }
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(end, 0);
        true
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}
