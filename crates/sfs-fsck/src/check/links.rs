//! Links of inodes, and names that lead to them.

use sfs_core::format::{FileKind, Inode, ItemKind, Key};

use crate::read::dirent::Dirent;

/// Directory entry without the text of its name. The order makes a sort group names by target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameRef {
    pub(crate) target: u64,
    pub(crate) parent: u64,
    pub(crate) cookie: u64,
    pub(crate) kind: u8,
}

impl NameRef {
    /// Returns the entry at `cookie` of directory `parent`.
    pub(crate) fn of_entry(parent: u64, cookie: u64, entry: &Dirent<'_>) -> Self {
        Self { target: entry.target, parent, cookie, kind: entry.kind as u8 }
    }

    /// Returns the key of the entry.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.parent, ItemKind::Dirent, self.cookie)
    }
}

/// Part of an inode that its names must match.
pub(crate) struct InodeLinks {
    pub(crate) ino: u64,
    pub(crate) parent: u64,
    pub(crate) links: u32,
    pub(crate) subdirectories: u32,
    /// `None` for attributes that do not decode.
    pub(crate) kind: Option<FileKind>,
    /// Number of directory entries of the inode.
    pub(crate) entries: u32,
    /// `true` if a path from the root leads to the inode.
    pub(crate) reached: bool,
}

impl InodeLinks {
    /// Returns the links of inode `ino`, which has no entries.
    pub(crate) fn of_file(ino: u64, inode: &Inode) -> Self {
        Self {
            ino,
            parent: inode.parent,
            links: inode.links,
            subdirectories: 0,
            kind: Some(inode.kind()),
            entries: 0,
            reached: false,
        }
    }

    /// Returns whether the inode is a file with sound attributes and without entries.
    pub(crate) fn is_file(&self) -> bool {
        self.entries == 0 && self.kind.is_some_and(|kind| kind != FileKind::Directory)
    }
}
