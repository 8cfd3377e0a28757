//! Directories: that every name leads to a file, and every file has its names.
//!
//! Owns: the inodes and entries of the volume, decoded.
//! Promises: each damaged thing is reported where it is, not for each of its consequences.
//! Never: looks at what is in a file.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hasher;

use sfs_core::format::{FIRST_INO, FileKind, Inode, ItemKind, Key, NAME_LEN_MAX, ROOT_INO};
use siphasher::sip::SipHasher13;

use crate::items::Items;
use crate::{Finding, Findings};

/// Hops to the root after which a path is given up.
const PATH_DEPTH_MAX: usize = 256;

/// Bytes of an entry's value before its name: inode number, kind.
const ENTRY_PREFIX_LEN: usize = 9;

/// SipHash-1-3 of a name.
pub(crate) fn name_hash(hash_key: [u64; 2], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(hash_key[0], hash_key[1]);
    hasher.write(name);
    hasher.finish()
}

/// The cookie of a name that collides with no other.
fn cookie(hash_key: [u64; 2], name: &[u8]) -> u64 {
    (name_hash(hash_key, name) >> 9).max(1) << 8
}

/// A directory entry.
pub(crate) struct Entry<'a> {
    parent: u64,
    cookie: u64,
    target: u64,
    kind: FileKind,
    name: &'a [u8],
}

/// Every inode and every entry.
pub(crate) struct Namespace<'a> {
    /// `None` for attributes that do not decode.
    pub(crate) inodes: BTreeMap<u64, Option<Inode>>,
    /// By parent and cookie.
    entries: Vec<Entry<'a>>,
    /// Where blocks of a file are to be cut off, by inode.
    pub(crate) orphans: BTreeMap<u64, u64>,
}

/// How many files there are.
pub(crate) struct Population {
    pub(crate) files: u64,
    pub(crate) directories: u64,
}

impl<'a> Namespace<'a> {
    /// Decodes inodes, entries and orphans, and finds items that cannot be.
    pub(crate) fn read(items: &'a Items, findings: &mut Findings) -> Self {
        let mut namespace =
            Self { inodes: BTreeMap::new(), entries: Vec::new(), orphans: BTreeMap::new() };
        for (key, value) in items.iter() {
            match namespace.add(key, value) {
                Ok(()) => {}
                Err(finding) => findings.push(finding),
            }
        }
        namespace
    }

    fn add(&mut self, key: &Key, value: &'a [u8]) -> Result<(), Finding> {
        let misplaced = Err(Finding::ItemMisplaced { key: *key });
        let damaged = Finding::ItemDamaged { key: *key };
        let Some(kind) = ItemKind::decode(key.kind) else { return misplaced };
        let of_volume = matches!(kind, ItemKind::Orphan | ItemKind::Usage);
        if of_volume != (key.ino == 0) {
            return misplaced;
        }
        match kind {
            ItemKind::Inode if key.offset != 0 => return misplaced,
            ItemKind::Inode => {
                let inode = Inode::decode(value, key.ino).ok();
                self.inodes.insert(key.ino, inode);
                inode.ok_or(damaged)?;
            }
            ItemKind::Dirent => {
                self.entries.push(decode_entry(key, value).ok_or(damaged)?);
            }
            ItemKind::Orphan => {
                let cut = value.try_into().map_err(|_| damaged)?;
                self.orphans.insert(key.offset, u64::from_le_bytes(cut));
            }
            ItemKind::Mapping => {
                crate::usage::decode_run(key, value).ok_or(damaged)?;
            }
            // The table is read on its own, these with their files.
            ItemKind::Usage | ItemKind::Xattr | ItemKind::Inline => {}
        }
        Ok(())
    }

    /// Checks everything about names.
    pub(crate) fn check(
        &self,
        items: &Items,
        hash_key: [u64; 2],
        next_ino: u64,
        findings: &mut Findings,
    ) -> Population {
        self.check_owners(items, next_ino, findings);
        for directory in self.entries.chunk_by(|a, b| a.parent == b.parent) {
            self.check_entries(directory, hash_key, findings);
        }
        let reached = self.reach(findings);
        self.check_orphans(findings);
        let names = self.names();
        for (ino, inode) in &self.inodes {
            let Some(inode) = inode else { continue };
            if inode.links == 0 && !self.orphans.contains_key(ino) {
                findings.push(Finding::OrphanMissing { ino: *ino });
            } else if inode.links > 0 && !reached.contains(ino) {
                findings.push(Finding::Unreachable { ino: *ino });
            } else {
                self.check_links(*ino, inode, &names, findings);
            }
        }
        self.population(&reached)
    }

    /// Items need attributes, and these a number that was given out.
    fn check_owners(&self, items: &Items, next_ino: u64, findings: &mut Findings) {
        let mut last = 0;
        for (key, _) in items.iter().filter(|(key, _)| key.ino != 0) {
            if key.ino == last {
                continue;
            }
            last = key.ino;
            let ino = key.ino;
            if !self.inodes.contains_key(&ino) {
                findings.push(Finding::InodeMissing { ino });
            }
            if ino != ROOT_INO && !(FIRST_INO..next_ino).contains(&ino) {
                findings.push(Finding::InodeNumber { ino });
            }
        }
    }

    /// Checks the entries of one directory.
    fn check_entries(&self, entries: &[Entry<'_>], hash_key: [u64; 2], findings: &mut Findings) {
        let ino = entries[0].parent;
        if self.kind_of(ino).is_some_and(|kind| kind != FileKind::Directory) {
            findings.push(Finding::EntryOwner { ino });
        }
        for colliding in entries.chunk_by(|a, b| a.cookie >> 8 == b.cookie >> 8) {
            let mut names = HashSet::new();
            for entry in colliding {
                let cookie = entry.cookie;
                if !names.insert(entry.name) {
                    findings.push(Finding::EntryTwice { ino, cookie });
                }
                self.check_entry(entry, hash_key, findings);
            }
        }
    }

    fn check_entry(&self, entry: &Entry<'_>, hash_key: [u64; 2], findings: &mut Findings) {
        let Entry { parent: ino, cookie: at, target, kind, name } = *entry;
        if !is_name(name) {
            findings.push(Finding::EntryName { ino, cookie: at });
        }
        if at & !0xff != cookie(hash_key, name) {
            findings.push(Finding::EntryHash { ino, cookie: at });
        }
        if !self.inodes.contains_key(&target) {
            findings.push(Finding::EntryDangling { ino, cookie: at, target });
        } else if self.kind_of(target).is_some_and(|other| other != kind) {
            findings.push(Finding::EntryKind { ino, cookie: at, target });
        }
    }

    fn kind_of(&self, ino: u64) -> Option<FileKind> {
        self.inodes.get(&ino).copied().flatten().map(|inode| inode.kind())
    }

    /// The entries of directory `ino`.
    fn entries_of(&self, ino: u64) -> &[Entry<'a>] {
        let first = self.entries.partition_point(|entry| entry.parent < ino);
        let count = self.entries[first..].partition_point(|entry| entry.parent == ino);
        &self.entries[first..first + count]
    }

    /// Every inode that a path from the root leads to.
    fn reach(&self, findings: &mut Findings) -> HashSet<u64> {
        if self.kind_of(ROOT_INO) != Some(FileKind::Directory) {
            findings.push(Finding::RootMissing);
        }
        let mut reached = HashSet::from([ROOT_INO]);
        let mut rest = vec![ROOT_INO];
        while let Some(ino) = rest.pop() {
            let targets = self.entries_of(ino).iter().map(|entry| entry.target);
            rest.extend(targets.filter(|target| reached.insert(*target)));
        }
        reached
    }

    fn check_orphans(&self, findings: &mut Findings) {
        for (ino, cut) in &self.orphans {
            let is_sound = match self.inodes.get(ino) {
                Some(Some(inode)) => inode.links > 0 || *cut == 0,
                Some(None) => true,
                None => false,
            };
            if !is_sound {
                findings.push(Finding::OrphanWrong { ino: *ino });
            }
        }
    }

    /// The directories that hold each inode, one for each of its names.
    fn names(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut names: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for entry in &self.entries {
            names.entry(entry.target).or_default().push(entry.parent);
        }
        names
    }

    fn check_links(
        &self,
        ino: u64,
        inode: &Inode,
        names: &BTreeMap<u64, Vec<u64>>,
        findings: &mut Findings,
    ) {
        let holders = names.get(&ino).map_or(&[][..], Vec::as_slice);
        let (links, entries) = (inode.links, self.entries_of(ino));
        let is_directory = inode.kind() == FileKind::Directory;
        let subdirectories = entries.iter().filter(|entry| entry.kind == FileKind::Directory);
        let counted = match (is_directory, links) {
            // Removed, while someone still has it open.
            (true, 0) => (holders.len() + entries.len()) as u64,
            (true, _) => 2 + subdirectories.count() as u64,
            (false, _) => holders.len() as u64,
        };
        if u64::from(links) != counted {
            findings.push(Finding::LinkCount { ino, links, counted });
        }
        let counted = entries.len() as u64;
        if is_directory && inode.size != counted {
            findings.push(Finding::DirectorySize { ino, size: inode.size, counted });
        }
        let names_allowed = usize::from(ino != ROOT_INO);
        if is_directory && holders.len() > names_allowed {
            findings.push(Finding::DirectoryTwice { ino });
            return;
        }
        let expected = match (is_directory, holders) {
            (false, _) => 0,
            (true, _) if ino == ROOT_INO => ROOT_INO,
            (true, [holder]) => *holder,
            (true, _) => return,
        };
        if inode.parent != expected {
            findings.push(Finding::ParentWrong { ino, parent: inode.parent, expected });
        }
    }

    fn population(&self, reached: &HashSet<u64>) -> Population {
        let is_directory = |ino: &&u64| self.kind_of(**ino) == Some(FileKind::Directory);
        let present = reached.iter().filter(|ino| self.inodes.contains_key(ino)).count() as u64;
        let directories = reached.iter().filter(is_directory).count() as u64;
        Population { files: present - directories, directories }
    }

    /// A path to each of `inos`, where there is one.
    pub(crate) fn paths(&self, inos: &HashSet<u64>) -> BTreeMap<u64, Vec<u8>> {
        let by_target = || {
            let mut first_names: BTreeMap<u64, &Entry<'_>> = BTreeMap::new();
            for entry in &self.entries {
                first_names.entry(entry.target).or_insert(entry);
            }
            first_names
        };
        let first_names = if inos.is_empty() { BTreeMap::new() } else { by_target() };
        let path = |ino: &u64| Some((*ino, path_of(*ino, &first_names)?));
        inos.iter().filter_map(path).collect()
    }
}

fn path_of(ino: u64, first_names: &BTreeMap<u64, &Entry<'_>>) -> Option<Vec<u8>> {
    let (mut names, mut at) = (Vec::new(), ino);
    while at != ROOT_INO {
        let entry = first_names.get(&at)?;
        names.push(entry.name);
        at = entry.parent;
        if names.len() > PATH_DEPTH_MAX {
            return None;
        }
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Some(if path.is_empty() { b"/".to_vec() } else { path })
}

fn decode_entry<'a>(key: &Key, value: &'a [u8]) -> Option<Entry<'a>> {
    let (prefix, name) = value.split_at_checked(ENTRY_PREFIX_LEN)?;
    let (target, kind) = prefix.split_first_chunk::<8>()?;
    Some(Entry {
        parent: key.ino,
        cookie: key.offset,
        target: u64::from_le_bytes(*target),
        kind: FileKind::decode(*kind.first()?)?,
        name,
    })
}

fn is_name(name: &[u8]) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}
