//! One walk over everything: what the tree says, and whether it is so.
//!
//! Owns: who gets which item, and the order of what is found.
//! Promises: a tree that is not whole is said to be so, and not blamed for what it lacks.
//! Never: prints or writes.

use sfs_core::format::{
    DecodeError, FILE_BLOCKS_MAX, FIRST_INO, Incompatibility, ItemKind, Key, NodePointer, ROOT_INO,
};

use crate::file::File;
use crate::namespace::{Entry, Namespace, Population};
use crate::progress::Listener;
use crate::references::References;
use crate::usage::Counts;
use crate::view::{View, Visitor};
use crate::volume::Volume;
use crate::walk::Keys;
use crate::{Finding, Findings, FsckError};

/// What is known beforehand.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    /// Inode numbers below this one have been given out.
    pub(crate) next_ino: u64,
    /// Nodes of the tree, or 0.
    pub(crate) node_count: u64,
    /// Read all data.
    pub(crate) data: bool,
}

/// What a walk over a view has found out.
pub(crate) struct Survey {
    /// What the tree itself refers to, before all edits.
    pub(crate) counts: Counts,
    pub(crate) references: References,
    pub(crate) namespace: Namespace,
    pub(crate) population: Population,
    /// Keys that cannot be read.
    pub(crate) lost: Vec<Keys>,
    /// Inodes that have items, but no attributes: what they seem to be.
    pub(crate) headless: Vec<File>,
    /// Items that cannot be, or are wrong in themselves.
    pub(crate) items: Findings,
    /// Everything else about files.
    pub(crate) files: Findings,
    /// What is wrong with the nodes.
    pub(crate) nodes: Findings,
}

impl Survey {
    /// Walks over `view`.
    pub(crate) fn take(
        view: &View<'_>,
        expected: Expected,
        listener: Listener<'_>,
    ) -> Result<Self, FsckError> {
        let mut nodes = Findings::default();
        let mut pass = Pass::new(view.volume, expected.next_ino);
        let lost = view.show(&mut pass, expected.node_count, &mut nodes, listener)?;
        if let Some(what) = pass.incompatible {
            return Err(FsckError::Incompatible(what));
        }
        pass.finish_file();
        let Pass { counts, references, mut namespace, items, mut files, content, outside, .. } =
            pass;
        let is_whole = lost.is_empty() || !view.lost().is_empty();
        let population = namespace.check(&mut files);
        files.extend(&content);
        files.extend(&outside);
        if is_whole {
            references.check(view, expected.data, &mut files, listener)?;
        }
        let headless = pass.headless;
        Ok(Self { counts, references, namespace, population, lost, headless, items, files, nodes })
    }

    /// Whether every node could be read.
    pub(crate) fn is_complete(&self) -> bool {
        self.lost.is_empty()
    }
}

/// A walk under way.
struct Pass<'a> {
    volume: &'a Volume<'a>,
    next_ino: u64,
    counts: Counts,
    references: References,
    namespace: Namespace,
    file: Option<File>,
    headless: Vec<File>,
    items: Findings,
    files: Findings,
    content: Findings,
    outside: Findings,
    /// The first thing that only a later program understands.
    incompatible: Option<Incompatibility>,
}

impl<'a> Pass<'a> {
    fn new(volume: &'a Volume<'a>, next_ino: u64) -> Self {
        Self {
            volume,
            next_ino,
            counts: Counts::default(),
            references: References::default(),
            namespace: Namespace::default(),
            file: None,
            headless: Vec::new(),
            items: Findings::default(),
            files: Findings::default(),
            content: Findings::default(),
            outside: Findings::default(),
            incompatible: None,
        }
    }

    /// No more items of the present inode.
    fn finish_file(&mut self) {
        let Some(mut file) = self.file.take() else { return };
        let ino = file.ino;
        if !file.exists {
            self.files.push(Finding::InodeMissing { ino });
        }
        if ino != ROOT_INO && !(FIRST_INO..self.next_ino).contains(&ino) {
            self.files.push(Finding::InodeNumber { ino });
        }
        let cut = self.namespace.orphans.get(&ino);
        let is_cut = cut.is_some_and(|first| *first < FILE_BLOCKS_MAX);
        file.finish(is_cut, &mut self.content);
        self.namespace.add_file(&file);
        if !file.exists {
            self.headless.push(file);
        }
    }

    fn volume_item(&mut self, key: &Key, value: &[u8]) {
        match (ItemKind::decode(key.kind), value.try_into()) {
            (Some(ItemKind::Orphan), Ok(cut)) => {
                self.namespace.orphans.insert(key.offset, u64::from_le_bytes(cut));
            }
            (Some(ItemKind::Orphan), Err(_)) => {
                self.items.push(Finding::ItemDamaged { key: *key });
            }
            // The table is read on its own.
            (Some(ItemKind::Usage), _) => {}
            _ => self.items.push(Finding::ItemMisplaced { key: *key }),
        }
    }

    fn file_item(&mut self, file: &mut File, key: &Key, value: &[u8]) -> Result<(), Finding> {
        let hash_key = self.volume.superblock.hash_key;
        let tolerance = self.volume.superblock.tolerance();
        let damaged = Finding::ItemDamaged { key: *key };
        match ItemKind::decode(key.kind) {
            Some(ItemKind::Inode) if key.offset == 0 => {
                file.add_inode(value, tolerance);
                file.inode.ok_or(damaged)?;
            }
            Some(ItemKind::Xattr) => file.add_xattr(key, value, hash_key),
            Some(ItemKind::Inline) => file.add_inline(key, value),
            Some(ItemKind::Mapping) => {
                match file.add_mappings(key, value, tolerance) {
                    Ok(()) => {}
                    Err(DecodeError::Corrupt(_)) => return Err(damaged),
                    Err(DecodeError::Incompatible(what)) => {
                        self.incompatible.get_or_insert(what);
                    }
                }
                self.references.add_item(self.volume, key, value, &mut self.outside);
            }
            Some(ItemKind::Dirent) => {
                let entry = Entry::decode(value).ok_or(damaged)?;
                let files = &mut self.files;
                self.namespace.add_entry(file, key.offset, &entry, hash_key, files);
            }
            _ => return Err(Finding::ItemMisplaced { key: *key }),
        }
        Ok(())
    }
}

impl Visitor for Pass<'_> {
    fn node(&mut self, pointer: NodePointer) {
        self.counts.add_node(self.volume, pointer.address);
        self.references.add_node(self.volume, pointer);
    }

    fn old_item(&mut self, key: &Key, value: &[u8]) {
        self.counts.add_item(self.volume, key, value);
        if key.ino == 0 && key.kind == ItemKind::Usage as u8 {
            let segment_count = self.volume.layout().segment_count;
            let items = segment_count.div_ceil(sfs_core::format::USAGE_PER_ITEM);
            if key.offset >= u64::from(items) {
                let segment = key.offset.saturating_mul(sfs_core::format::USAGE_PER_ITEM.into());
                let segment = u32::try_from(segment).unwrap_or(u32::MAX);
                self.items.push(Finding::UsageExcess { segment });
            }
        }
    }

    fn item(&mut self, key: &Key, value: &[u8]) {
        // It is left alone.
        if self.volume.superblock.tolerance().is_later_kind(key.kind) {
            return;
        }
        if key.ino == 0 {
            return self.volume_item(key, value);
        }
        if self.file.as_ref().is_none_or(|file| file.ino != key.ino) {
            self.finish_file();
        }
        let mut file = self.file.take().unwrap_or_else(|| File::new(key.ino));
        if let Err(finding) = self.file_item(&mut file, key, value) {
            self.items.push(finding);
        }
        self.file = Some(file);
    }
}
