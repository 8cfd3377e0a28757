//! Walk over a tree that collects names, and inodes that are not directories.

use std::collections::HashSet;

use sfs_core::format::{FileKind, Inode, ItemKind, Key, NodePointer};

use crate::check::link_sums::LinkSums;
use crate::check::links::{InodeLinks, NameRef};
use crate::error::FsckError;
use crate::findings::Findings;
use crate::progress::ProgressListener;
use crate::read::dirent::Dirent;
use crate::read::overlay_tree::{OverlayTree, TreeVisitor};

/// Inodes that are collected.
enum Wanted<'a> {
    /// Inodes in suspect buckets.
    Suspects(&'a LinkSums),
    /// Inodes in the set.
    Inos(&'a HashSet<u64>),
}

impl Wanted<'_> {
    fn contains(&self, ino: u64) -> bool {
        match self {
            Self::Suspects(sums) => sums.is_suspect(ino),
            Self::Inos(inos) => inos.contains(&ino),
        }
    }
}

/// Names and inodes that a walk has collected.
pub(crate) struct NameCollector<'a> {
    wanted: Wanted<'a>,
    tolerance: sfs_core::format::Tolerance,
    /// Names of kinds other than directories that lead to wanted inodes, by parent and cookie.
    pub(crate) names: Vec<NameRef>,
    /// Wanted inodes with attributes of a file that is no directory, by number.
    pub(crate) files: Vec<InodeLinks>,
}

impl<'a> NameCollector<'a> {
    /// Collects the inodes in the suspect buckets of `sums`, and their names.
    pub(crate) fn of_suspects(
        tree: &OverlayTree<'_>,
        sums: &'a LinkSums,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        Self::run(tree, Wanted::Suspects(sums), listener)
    }

    /// Collects the inodes `inos` and their names.
    pub(crate) fn of_inos(
        tree: &OverlayTree<'_>,
        inos: &'a HashSet<u64>,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        Self::run(tree, Wanted::Inos(inos), listener)
    }

    fn run(
        tree: &OverlayTree<'_>,
        wanted: Wanted<'a>,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        let tolerance = tree.volume.superblock.tolerance();
        let mut collector = Self { wanted, tolerance, names: Vec::new(), files: Vec::new() };
        tree.visit(&mut collector, 0, &mut Findings::default(), listener)?;
        Ok(collector)
    }
}

impl TreeVisitor for NameCollector<'_> {
    fn node(&mut self, _: NodePointer) {}

    fn old_item(&mut self, _: &Key, _: &[u8]) {}

    fn item(&mut self, key: &Key, value: &[u8]) {
        let (ino, offset) = (key.ino, key.offset);
        match ItemKind::decode(key.kind) {
            Some(ItemKind::Inode) if offset == 0 && ino != 0 && self.wanted.contains(ino) => {
                if let Ok(inode) = Inode::decode(value, ino, self.tolerance)
                    && inode.kind() != FileKind::Directory
                {
                    self.files.push(InodeLinks::of_file(ino, &inode));
                }
            }
            Some(ItemKind::Dirent) if ino != 0 => {
                if let Some(entry) = Dirent::decode(value)
                    && entry.kind != FileKind::Directory
                    && self.wanted.contains(entry.target)
                {
                    self.names.push(NameRef::of_entry(ino, offset, &entry));
                }
            }
            _ => {}
        }
    }
}
