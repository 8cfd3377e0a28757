//! Check of names: each name leads to an inode, and each inode has its names.
//!
//! Directories and their names are held in memory, 64 bytes each. The names of other files are
//! summed up ([`LinkSums`]) and, where the sums differ, collected by a second walk over the tree.
//! Damage is reported once, and not again for each of its consequences.

use std::collections::{BTreeMap, HashSet};

use sfs_core::format::{FILE_BLOCKS_MAX, FileKind, ItemKind, ROOT_INO};

use crate::check::file::FileCheck;
use crate::check::link_sums::LinkSums;
use crate::check::links::{InodeLinks, NameRef};
use crate::check::name_collector::NameCollector;
use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::ProgressListener;
use crate::read::dirent::{Dirent, cookie, is_valid_name};
use crate::read::key_range::KeyRange;
use crate::read::overlay_tree::OverlayTree;

/// All directories with their names; all other files and names in sums.
#[derive(Default)]
pub(crate) struct NamespaceCheck {
    /// Inodes by number: directories, and inodes with entries or damaged attributes; after
    /// [`NamespaceCheck::check`] also suspect files.
    inodes: Vec<InodeLinks>,
    /// Names of directories by parent and cookie; after [`NamespaceCheck::check`] the names of
    /// suspect files as well, by target.
    names: Vec<NameRef>,
    sums: LinkSums,
    /// Number of files outside `inodes` that have links.
    linked_files: u64,
    /// First block to be unmapped, by inode, from orphan items.
    pub(crate) orphans: BTreeMap<u64, u64>,
    /// Files outside `inodes` with an orphan item, by number.
    orphan_files: Vec<InodeLinks>,
    /// Hash of the last name, and the names with that hash in the present directory.
    colliding: (u64, HashSet<Vec<u8>>),
}

/// Numbers of reachable files and directories.
#[derive(Clone, Copy, Default)]
pub(crate) struct FileCounts {
    /// Number of inodes that are not directories.
    pub(crate) files: u64,
    /// Number of directories, with the root.
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
        let links = InodeLinks {
            ino: file.ino,
            parent: inode.map_or(0, |inode| inode.parent),
            links: inode.map_or(0, |inode| inode.links),
            subdirectories: file.subdirectories,
            kind: inode.map(|inode| inode.kind()),
            entries: u32::try_from(file.entries).unwrap_or(u32::MAX),
            reached: false,
        };
        match links.kind {
            Some(FileKind::Directory) => self.inodes.push(links),
            Some(kind) if links.is_file() => self.add_links(links, kind),
            _ => {
                self.sums.suspect(links.ino);
                self.inodes.push(links);
            }
        }
    }

    /// Adds the links of a file, which is no directory.
    fn add_links(&mut self, links: InodeLinks, kind: FileKind) {
        let ino = links.ino;
        self.sums.add_links(ino, kind, links.links);
        self.linked_files += u64::from(links.links > 0);
        let is_orphan = self.orphans.contains_key(&ino);
        if links.parent != 0 || links.links == 0 && !is_orphan {
            self.sums.suspect(ino);
        }
        if is_orphan {
            self.orphan_files.push(links);
        }
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
        self.add_name(NameRef::of_entry(ino, cookie, entry), entry.kind, file.exists);
    }

    /// Adds a name. `has_parent` is `false` if the inode that holds the entry has no attributes.
    fn add_name(&mut self, name: NameRef, kind: FileKind, has_parent: bool) {
        if kind == FileKind::Directory {
            self.names.push(name);
            return;
        }
        self.sums.add_name(name.target, name.kind);
        if !has_parent {
            self.sums.suspect(name.target);
        }
    }

    /// Checks all names and inodes of `tree`, after the last one. Returns the number of reachable files.
    pub(crate) fn check(
        &mut self,
        tree: &OverlayTree<'_>,
        findings: &mut Findings,
        listener: ProgressListener<'_>,
    ) -> Result<FileCounts, FsckError> {
        self.suspect_unreached(tree);
        if self.sums.compare() {
            self.collect_suspects(tree, listener)?;
        }
        self.check_targets(findings);
        self.check_root(findings);
        self.mark_reached();
        self.check_orphans(findings);
        self.names.sort_unstable();
        for inode in &self.inodes {
            let Some(kind) = inode.kind else { continue };
            let ino = inode.ino;
            if inode.links == 0 && !self.orphans.contains_key(&ino) {
                findings.push(Finding::OrphanMissing { ino });
            } else if inode.links > 0 && !inode.reached {
                findings.push(match self.names_of(ino) {
                    [name] if name.parent == ino => Finding::OwnParent { ino },
                    _ => Finding::Unreachable { ino },
                });
            } else {
                self.check_links(inode, kind, findings);
            }
        }
        Ok(self.count_files())
    }

    /// Makes suspects of the files whose names may not be reachable, and of the targets of directory names that
    /// are no directories.
    fn suspect_unreached(&mut self, tree: &OverlayTree<'_>) {
        for index in 0..self.names.len() {
            let target = self.names[index].target;
            let inode = self.index_of(target).map(|index| &self.inodes[index]);
            if inode.is_none_or(|inode| inode.kind != Some(FileKind::Directory)) {
                self.sums.suspect(target);
            }
        }
        self.mark_reached();
        for inode in self.inodes.iter().filter(|inode| !inode.reached && inode.entries > 0) {
            tree.each(KeyRange::of_kind(inode.ino, ItemKind::Dirent), |_, value| {
                if let Some(entry) = Dirent::decode(value) {
                    self.sums.suspect(entry.target);
                }
            });
        }
        self.inodes.iter_mut().for_each(|inode| inode.reached = false);
    }

    /// Adds the suspect files and the names that lead to suspects.
    fn collect_suspects(
        &mut self,
        tree: &OverlayTree<'_>,
        listener: ProgressListener<'_>,
    ) -> Result<(), FsckError> {
        let NameCollector { names, mut files, .. } =
            NameCollector::of_suspects(tree, &self.sums, listener)?;
        files.retain(|file| self.index_of(file.ino).is_none());
        self.linked_files -= files.iter().filter(|file| file.links > 0).count() as u64;
        self.inodes.append(&mut files);
        self.inodes.sort_unstable_by_key(|inode| inode.ino);
        self.names.extend(names);
        self.names.sort_unstable_by_key(|name| (name.parent, name.cookie));
        Ok(())
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

    fn check_root(&self, findings: &mut Findings) {
        let root = self.index_of(ROOT_INO).map(|root| self.inodes[root].kind);
        if root != Some(Some(FileKind::Directory)) {
            findings.push(Finding::RootMissing);
        }
    }

    /// Marks every inode that a path from the root reaches.
    fn mark_reached(&mut self) {
        let root = self.index_of(ROOT_INO);
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
            let is_sound = match self.links_of_orphan(*ino) {
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

    fn links_of_orphan(&self, ino: u64) -> Option<&InodeLinks> {
        let position = self.orphan_files.binary_search_by_key(&ino, |inode| inode.ino);
        let file = position.ok().map(|index| &self.orphan_files[index]);
        file.or_else(|| self.index_of(ino).map(|index| &self.inodes[index]))
    }

    /// Returns the entries that lead to `ino`, a directory or an inode with a finding. Valid after
    /// [`NamespaceCheck::check`].
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
        let others = reached.count() as u64 - directories;
        FileCounts { files: self.linked_files + others, directories }
    }

    /// Returns whether [`NamespaceCheck::names_of`] has all names of `ino`. Valid after
    /// [`NamespaceCheck::check`].
    pub(crate) fn has_names_of(&self, ino: u64) -> bool {
        self.index_of(ino).is_some() || self.sums.is_suspect(ino)
    }
}
