//! Directories: that every name leads to a file, and every file has its names.
//!
//! Owns: what is worth knowing of each inode and each name, without its text: 32 bytes each.
//! Promises: each damaged thing is reported where it is, not for each of its consequences.
//! Never: looks at what is in a file.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hasher;

use sfs_core::format::{FILE_BLOCKS_MAX, FileKind, ItemKind, Key, NAME_LEN_MAX, ROOT_INO};
use siphasher::sip::SipHasher13;

use crate::file::File;
use crate::view::View;
use crate::walk::Keys;
use crate::{Finding, Findings};

/// Names with one hash that a directory can hold.
pub(crate) const COLLISIONS_MAX: u64 = 256;

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
pub(crate) fn cookie(hash_key: [u64; 2], name: &[u8]) -> u64 {
    (name_hash(hash_key, name) >> 9).max(1) << 8
}

/// A directory entry.
pub(crate) struct Entry<'a> {
    pub(crate) target: u64,
    pub(crate) kind: FileKind,
    pub(crate) name: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Decodes an item's value.
    pub(crate) fn decode(value: &'a [u8]) -> Option<Self> {
        let (prefix, name) = value.split_at_checked(ENTRY_PREFIX_LEN)?;
        let (target, kind) = prefix.split_first_chunk::<8>()?;
        let kind = FileKind::decode(*kind.first()?)?;
        Some(Self { target: u64::from_le_bytes(*target), kind, name })
    }

    /// The item's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.target.to_le_bytes(), &[self.kind as u8][..], self.name].concat()
    }
}

/// What the entry called `name` in directory `parent` leads to.
pub(crate) fn find_entry(view: &View<'_>, parent: u64, name: &[u8]) -> Option<(u64, FileKind)> {
    let hash_key = view.volume.superblock.hash_key;
    let low = Key::new(parent, ItemKind::Dirent, cookie(hash_key, name));
    let high = Key { offset: low.offset + COLLISIONS_MAX, ..low };
    let mut found = None;
    view.each(Keys { low, high: Some(high) }, |_, value| {
        let entry = Entry::decode(value).filter(|entry| entry.name == name);
        found = entry.map(|entry| (entry.target, entry.kind)).or(found);
    });
    found
}

/// Whether `name` can be in a directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}

/// An entry without its name, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    target: u64,
    pub(crate) parent: u64,
    pub(crate) cookie: u64,
    kind: u8,
}

impl Name {
    /// The item of this entry.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.parent, ItemKind::Dirent, self.cookie)
    }
}

/// An inode, as far as its names are concerned.
struct Inode {
    ino: u64,
    parent: u64,
    links: u32,
    subdirectories: u32,
    /// `None` for attributes that do not decode.
    kind: Option<FileKind>,
    /// Entries in it.
    entries: u32,
    reached: bool,
}

/// Every inode and every name.
#[derive(Default)]
pub(crate) struct Namespace {
    /// By number.
    inodes: Vec<Inode>,
    /// By parent and cookie; once checked, by target.
    names: Vec<Name>,
    /// Where blocks of a file are to be cut off, by inode.
    pub(crate) orphans: BTreeMap<u64, u64>,
    /// Names of the present directory whose hash is the present one.
    colliding: (u64, HashSet<Vec<u8>>),
}

/// How many files there are.
#[derive(Clone, Copy, Default)]
pub(crate) struct Population {
    pub(crate) files: u64,
    pub(crate) directories: u64,
}

impl Namespace {
    /// The next inode, whose items have all come.
    pub(crate) fn add_file(&mut self, file: &File) {
        self.colliding = Default::default();
        if !file.exists {
            return;
        }
        let inode = file.inode.as_ref();
        self.inodes.push(Inode {
            ino: file.ino,
            parent: inode.map_or(0, |inode| inode.parent),
            links: inode.map_or(0, |inode| inode.links),
            subdirectories: file.subdirectories,
            kind: inode.map(|inode| inode.kind()),
            entries: u32::try_from(file.entries).unwrap_or(u32::MAX),
            reached: false,
        });
    }

    /// The next entry, of the directory whose items are coming.
    pub(crate) fn add_entry(
        &mut self,
        file: &mut File,
        cookie: u64,
        entry: &Entry<'_>,
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
        if !is_name(entry.name) {
            findings.push(Finding::EntryName { ino, cookie });
        }
        if cookie & !0xff != self::cookie(hash_key, entry.name) {
            findings.push(Finding::EntryHash { ino, cookie });
        }
        let kind = entry.kind as u8;
        self.names.push(Name { target: entry.target, parent: ino, cookie, kind });
    }

    /// Checks everything about names; all have come.
    pub(crate) fn check(&mut self, findings: &mut Findings) -> Population {
        self.check_targets(findings);
        self.reach(findings);
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
        self.population()
    }

    fn index_of(&self, ino: u64) -> Option<usize> {
        self.inodes.binary_search_by_key(&ino, |inode| inode.ino).ok()
    }

    fn check_targets(&self, findings: &mut Findings) {
        for Name { target, parent: ino, cookie, kind } in self.names.iter().copied() {
            match self.index_of(target).map(|index| self.inodes[index].kind) {
                None => findings.push(Finding::EntryDangling { ino, cookie, target }),
                Some(Some(other)) if other as u8 != kind => {
                    findings.push(Finding::EntryKind { ino, cookie, target });
                }
                Some(_) => {}
            }
        }
    }

    /// Marks every inode that a path from the root leads to.
    fn reach(&mut self, findings: &mut Findings) {
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
        for (ino, cut) in &self.orphans {
            let is_sound = match self.index_of(*ino).map(|index| &self.inodes[index]) {
                Some(Inode { kind: Some(_), links: 0, .. }) => *cut == 0,
                Some(Inode { kind: Some(_), .. }) => *cut < FILE_BLOCKS_MAX,
                Some(_) => true,
                None => false,
            };
            if !is_sound {
                findings.push(Finding::OrphanWrong { ino: *ino });
            }
        }
    }

    /// The entries that lead to `ino`. After [`Namespace::check`].
    pub(crate) fn names_of(&self, ino: u64) -> &[Name] {
        let first = self.names.partition_point(|name| name.target < ino);
        let count = self.names[first..].partition_point(|name| name.target == ino);
        &self.names[first..first + count]
    }

    fn check_links(&self, inode: &Inode, kind: FileKind, findings: &mut Findings) {
        let Inode { ino, links, .. } = *inode;
        let names = self.names_of(ino);
        let is_directory = kind == FileKind::Directory;
        let counted = match (is_directory, links) {
            // Removed, while someone still has it open.
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

    fn population(&self) -> Population {
        let reached = self.inodes.iter().filter(|inode| inode.reached);
        let directory = |inode: &&Inode| inode.kind == Some(FileKind::Directory);
        let directories = reached.clone().filter(directory).count() as u64;
        Population { files: reached.count() as u64 - directories, directories }
    }

    /// A path to each of `inos`, where there is one. After [`Namespace::check`].
    pub(crate) fn paths(&self, view: &View<'_>, inos: &HashSet<u64>) -> BTreeMap<u64, Vec<u8>> {
        inos.iter().filter_map(|ino| Some((*ino, self.path(view, *ino)?))).collect()
    }

    /// A path to `ino`, if there is one. After [`Namespace::check`].
    pub(crate) fn path(&self, view: &View<'_>, ino: u64) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), ino);
        while at != ROOT_INO {
            let name = self.names_of(at).first()?;
            names.push(Entry::decode(&view.get(&name.key())?)?.name.to_vec());
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
