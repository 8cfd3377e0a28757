//! Check of names: each name leads to an inode, and each inode has its names.
//!
//! Memory holds 32 bytes for each inode and each name, and the text only of names with one hash in one
//! directory. Damage is reported where it is, and not again for each of its consequences.

use std::collections::{BTreeMap, HashSet};

use sfs_core::format::{FILE_BLOCKS_MAX, FileKind, ItemKind, Key, ROOT_INO};

use crate::check::file::FileCheck;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::dirent::{Dirent, cookie, is_valid_name};
use crate::read::overlay_tree::OverlayTree;

/// Longest path in a report, in names.
const PATH_DEPTH_MAX: usize = 256;

/// Directory entry without the text of its name. The order makes a sort group names by target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameRef {
    target: u64,
    pub(crate) parent: u64,
    pub(crate) cookie: u64,
    kind: u8,
}

impl NameRef {
    /// Returns the key of the entry.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.parent, ItemKind::Dirent, self.cookie)
    }
}

/// Part of an inode that its names must match.
struct InodeLinks {
    ino: u64,
    parent: u64,
    links: u32,
    subdirectories: u32,
    /// `None` for attributes that do not decode.
    kind: Option<FileKind>,
    /// Number of entries in it.
    entries: u32,
    /// `true` if a path from the root leads to it.
    reached: bool,
}

/// All inodes and all names.
#[derive(Default)]
pub(crate) struct NamespaceCheck {
    /// Inodes by number.
    inodes: Vec<InodeLinks>,
    /// Names by parent and cookie; after [`NamespaceCheck::check`] by target.
    names: Vec<NameRef>,
    /// First block to be unmapped, by inode, from orphan items.
    pub(crate) orphans: BTreeMap<u64, u64>,
    /// Hash of the last name, and the names with that hash in the present directory.
    colliding: (u64, HashSet<Vec<u8>>),
}

/// Number of reachable files.
#[derive(Clone, Copy, Default)]
pub(crate) struct FileCounts {
    /// Inodes that are not directories.
    pub(crate) files: u64,
    /// Directories, with the root.
    pub(crate) directories: u64,
}

impl NamespaceCheck {
    /// Adds the next inode, after its last item.
    pub(crate) fn add_file(&mut self, file: &FileCheck) {
        self.colliding = Default::default();
        if !file.exists {
            return;
        }
        let inode = file.inode.as_ref();
        self.inodes.push(InodeLinks {
            ino: file.ino,
            parent: inode.map_or(0, |inode| inode.parent),
            links: inode.map_or(0, |inode| inode.links),
            subdirectories: file.subdirectories,
            kind: inode.map(|inode| inode.kind()),
            entries: u32::try_from(file.entries).unwrap_or(u32::MAX),
            reached: false,
        });
    }

    /// Adds the next entry of the directory whose items are arriving.
    pub(crate) fn add_entry(
        &mut self,
        file: &mut FileCheck,
        cookie: u64,
        entry: &Dirent<'_>,
        hash_key: [u64; 2],
        findings: &mut Findings,
    ) {
        let ino = file.ino;
        let is_file = file.inode.is_some_and(|inode| inode.kind() != FileKind::Directory);
        if is_file && file.entries == 0 {
            findings.push(Finding::EntryOwner { ino });
        }
        file.entries += 1;
        file.subdirectories += u32::from(entry.kind == FileKind::Directory);
        if self.colliding.0 != cookie >> 8 {
            self.colliding = (cookie >> 8, HashSet::new());
        }
        if !self.colliding.1.insert(entry.name.to_vec()) {
            findings.push(Finding::EntryTwice { ino, cookie });
        }
        if !is_valid_name(entry.name) {
            findings.push(Finding::EntryName { ino, cookie });
        }
        if cookie & !0xff != self::cookie(hash_key, entry.name) {
            findings.push(Finding::EntryHash { ino, cookie });
        }
        let kind = entry.kind as u8;
        self.names.push(NameRef { target: entry.target, parent: ino, cookie, kind });
    }

    /// Checks all names and inodes, after the last one. Returns the number of reachable files.
    pub(crate) fn check(&mut self, findings: &mut Findings) -> FileCounts {
        self.check_targets(findings);
        self.mark_reached(findings);
        self.check_orphans(findings);
        self.names.sort_unstable();
        for inode in &self.inodes {
            let Some(kind) = inode.kind else { continue };
            let ino = inode.ino;
            if inode.links == 0 && !self.orphans.contains_key(&ino) {
                findings.push(Finding::OrphanMissing { ino });
            } else if inode.links > 0 && !inode.reached {
                findings.push(Finding::Unreachable { ino });
            } else {
                self.check_links(inode, kind, findings);
            }
        }
        self.count_files()
    }

    fn index_of(&self, ino: u64) -> Option<usize> {
        self.inodes.binary_search_by_key(&ino, |inode| inode.ino).ok()
    }

    fn check_targets(&self, findings: &mut Findings) {
        for NameRef { target, parent: ino, cookie, kind } in self.names.iter().copied() {
            match self.index_of(target).map(|index| self.inodes[index].kind) {
                None => findings.push(Finding::EntryDangling { ino, cookie, target }),
                Some(Some(other)) if other as u8 != kind => {
                    findings.push(Finding::EntryKind { ino, cookie, target });
                }
                Some(_) => {}
            }
        }
    }

    /// Marks every inode that a path from the root reaches.
    fn mark_reached(&mut self, findings: &mut Findings) {
        let root = self.index_of(ROOT_INO);
        let is_directory =
            root.is_some_and(|root| self.inodes[root].kind == Some(FileKind::Directory));
        if !is_directory {
            findings.push(Finding::RootMissing);
        }
        let mut rest: Vec<usize> = root.into_iter().collect();
        rest.iter().for_each(|root| self.inodes[*root].reached = true);
        while let Some(index) = rest.pop() {
            if self.inodes[index].entries == 0 {
                continue;
            }
            let ino = self.inodes[index].ino;
            let first = self.names.partition_point(|name| name.parent < ino);
            let count = self.names[first..].partition_point(|name| name.parent == ino);
            for at in first..first + count {
                let Some(index) = self.index_of(self.names[at].target) else { continue };
                if !std::mem::replace(&mut self.inodes[index].reached, true) {
                    rest.push(index);
                }
            }
        }
    }

    fn check_orphans(&self, findings: &mut Findings) {
        for (ino, first) in &self.orphans {
            let is_sound = match self.index_of(*ino).map(|index| &self.inodes[index]) {
                Some(InodeLinks { kind: Some(_), links: 0, .. }) => *first == 0,
                Some(InodeLinks { kind: Some(_), .. }) => *first < FILE_BLOCKS_MAX,
                Some(_) => true,
                None => false,
            };
            if !is_sound {
                findings.push(Finding::OrphanWrong { ino: *ino });
            }
        }
    }

    /// Returns the entries that lead to `ino`. Valid after [`NamespaceCheck::check`].
    pub(crate) fn names_of(&self, ino: u64) -> &[NameRef] {
        let first = self.names.partition_point(|name| name.target < ino);
        let count = self.names[first..].partition_point(|name| name.target == ino);
        &self.names[first..first + count]
    }

    fn check_links(&self, inode: &InodeLinks, kind: FileKind, findings: &mut Findings) {
        let InodeLinks { ino, links, .. } = *inode;
        let names = self.names_of(ino);
        let is_directory = kind == FileKind::Directory;
        let counted = match (is_directory, links) {
            // A removed directory that is still open has neither names nor entries.
            (true, 0) => names.len() as u64 + u64::from(inode.entries),
            (true, _) => 2 + u64::from(inode.subdirectories),
            (false, _) => names.len() as u64,
        };
        if u64::from(links) != counted {
            findings.push(Finding::LinkCount { ino, links, counted });
        }
        let names_allowed = usize::from(ino != ROOT_INO);
        if is_directory && names.len() > names_allowed {
            findings.push(Finding::DirectoryTwice { ino });
            return;
        }
        let expected = match (is_directory, names) {
            (false, _) => 0,
            (true, _) if ino == ROOT_INO => ROOT_INO,
            (true, [name]) => name.parent,
            (true, _) => return,
        };
        if inode.parent != expected {
            findings.push(Finding::ParentWrong { ino, parent: inode.parent, expected });
        }
    }

    fn count_files(&self) -> FileCounts {
        let reached = self.inodes.iter().filter(|inode| inode.reached);
        let directory = |inode: &&InodeLinks| inode.kind == Some(FileKind::Directory);
        let directories = reached.clone().filter(directory).count() as u64;
        FileCounts { files: reached.count() as u64 - directories, directories }
    }

    /// Returns a path to each of `inos` that has one. Valid after [`NamespaceCheck::check`].
    pub(crate) fn paths(
        &self,
        tree: &OverlayTree<'_>,
        inos: &HashSet<u64>,
    ) -> BTreeMap<u64, Vec<u8>> {
        inos.iter().filter_map(|ino| Some((*ino, self.path(tree, *ino)?))).collect()
    }

    /// Returns a path to `ino`, if there is one of at most [`PATH_DEPTH_MAX`] names.
    fn path(&self, tree: &OverlayTree<'_>, ino: u64) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), ino);
        while at != ROOT_INO {
            let name = self.names_of(at).first()?;
            names.push(Dirent::decode(&tree.get(&name.key())?)?.name.to_vec());
            at = name.parent;
            if names.len() > PATH_DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        let names: Vec<Vec<u8>> =
            names.into_iter().map(|name| [b"/", &name[..]].concat()).collect();
        Some(if names.is_empty() { b"/".to_vec() } else { names.concat() })
    }
}
