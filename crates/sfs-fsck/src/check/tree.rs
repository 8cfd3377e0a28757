//! Check of a tree in one walk over its nodes and items.
//!
//! [`TreeCheckPass`] hands each item to the checks of files, names and blocks. References are checked only if
//! every node is readable, or the unreadable ones are known to be lost.

use sfs_core::format::{
    DecodeError, FILE_BLOCKS_MAX, FIRST_INO, Features, Incompatibility, ItemKind, Key, NodePointer,
    ROOT_INO, Reservation, ReservationTotals, USAGE_PER_ITEM,
};

use crate::check::file::FileCheck;
use crate::check::namespace::{FileCounts, NamespaceCheck};
use crate::check::references::BlockReferences;
use crate::check::usage_recount::UsageRecount;
use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::ProgressListener;
use crate::read::dirent::Dirent;
use crate::read::key_range::KeyRange;
use crate::read::overlay_tree::{OverlayTree, TreeVisitor};
use crate::read::volume::VolumeReader;

/// Facts that a check of a tree takes as given.
#[derive(Clone, Copy)]
pub(crate) struct TreeExpectation {
    /// Lowest inode number that was never allocated.
    pub(crate) next_ino: u64,
    /// Number of nodes by the usage table, or 0.
    pub(crate) node_count: u64,
    /// `true` to read all data.
    pub(crate) data: bool,
}

/// Result of the check of a tree.
pub(crate) struct TreeCheck {
    /// Live blocks of the tree on the device, before all edits.
    pub(crate) recount: UsageRecount,
    pub(crate) references: BlockReferences,
    pub(crate) namespace: NamespaceCheck,
    pub(crate) file_counts: FileCounts,
    /// Number of inodes of the tree on the device, before all edits.
    pub(crate) inode_count: u64,
    /// `true` if a file has an access list.
    pub(crate) has_lists: bool,
    /// Reservations of the tree on the device, before all edits.
    pub(crate) reserved: ReservationTotals,
    /// Ranges of unreadable keys.
    pub(crate) lost: Vec<KeyRange>,
    /// Inodes with items but without attributes.
    pub(crate) without_attributes: Vec<FileCheck>,
    /// Findings about single items.
    pub(crate) items: Findings,
    /// All other findings about files.
    pub(crate) files: Findings,
    /// Findings about nodes.
    pub(crate) nodes: Findings,
}

impl TreeCheck {
    /// Checks `tree`.
    ///
    /// # Errors
    ///
    /// `Incompatible` for a mapping that needs a newer program; `Cancelled`.
    pub(crate) fn run(
        tree: &OverlayTree<'_>,
        expected: TreeExpectation,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        let mut nodes = Findings::default();
        let mut pass = TreeCheckPass::new(tree.volume, expected.next_ino);
        let lost = tree.visit(&mut pass, expected.node_count, &mut nodes, listener)?;
        if let Some(reason) = pass.incompatible {
            return Err(FsckError::Incompatible(reason));
        }
        pass.finish_file();
        let TreeCheckPass {
            recount,
            inode_count,
            has_lists,
            reserved,
            references,
            mut namespace,
            items,
            mut files,
            ..
        } = pass;
        let is_whole = lost.is_empty() || !tree.lost().is_empty();
        let file_counts = match is_whole {
            true => namespace.check(tree, &mut files, listener)?,
            false => FileCounts::default(),
        };
        files.extend(&pass.content);
        files.extend(&pass.outside);
        if is_whole {
            references.check(tree, expected.data, &mut files, listener)?;
        }
        let without_attributes = pass.without_attributes;
        Ok(Self {
            recount,
            references,
            namespace,
            file_counts,
            inode_count,
            has_lists,
            reserved,
            lost,
            without_attributes,
            items,
            files,
            nodes,
        })
    }

    /// Returns the features that a program has to know to write to a volume with this tree.
    pub(crate) fn features(&self) -> u64 {
        if self.has_lists { Features::ACCESS_LISTS } else { 0 }
    }

    /// Returns whether every node is readable.
    pub(crate) fn is_complete(&self) -> bool {
        self.lost.is_empty()
    }
}

/// Walk in progress.
struct TreeCheckPass<'a> {
    volume: &'a VolumeReader<'a>,
    next_ino: u64,
    recount: UsageRecount,
    inode_count: u64,
    has_lists: bool,
    reserved: ReservationTotals,
    references: BlockReferences,
    namespace: NamespaceCheck,
    /// Inode whose items are arriving.
    file: Option<FileCheck>,
    without_attributes: Vec<FileCheck>,
    /// Findings about single items.
    items: Findings,
    /// Findings about inodes and names.
    files: Findings,
    /// Findings about the content of files.
    content: Findings,
    /// Findings about mappings outside all segments.
    outside: Findings,
    /// First mapping that needs a newer program.
    incompatible: Option<Incompatibility>,
}

impl<'a> TreeCheckPass<'a> {
    fn new(volume: &'a VolumeReader<'a>, next_ino: u64) -> Self {
        Self {
            volume,
            next_ino,
            recount: UsageRecount::default(),
            inode_count: 0,
            has_lists: false,
            reserved: ReservationTotals::default(),
            references: BlockReferences::default(),
            namespace: NamespaceCheck::default(),
            file: None,
            without_attributes: Vec::new(),
            items: Findings::default(),
            files: Findings::default(),
            content: Findings::default(),
            outside: Findings::default(),
            incompatible: None,
        }
    }

    /// Checks the present inode, after its last item.
    fn finish_file(&mut self) {
        let Some(mut file) = self.file.take() else { return };
        let ino = file.ino;
        if !file.exists {
            self.files.push(Finding::InodeMissing { ino });
        }
        if ino != ROOT_INO && !(FIRST_INO..self.next_ino).contains(&ino) {
            self.files.push(Finding::InodeNumber { ino });
        }
        let orphan = self.namespace.orphans.get(&ino);
        let is_truncating = orphan.is_some_and(|first| *first < FILE_BLOCKS_MAX);
        file.finish(is_truncating, &self.volume.superblock.features, &mut self.content);
        self.has_lists |= file.has_list();
        self.namespace.add_file(&file);
        if !file.exists {
            self.without_attributes.push(file);
        }
    }

    /// Checks an item of the volume itself.
    fn volume_item(&mut self, key: &Key, value: &[u8]) {
        match (ItemKind::decode(key.kind), value.try_into()) {
            (Some(ItemKind::Orphan), Ok(first)) => {
                self.namespace.orphans.insert(key.offset, u64::from_le_bytes(first));
            }
            (Some(ItemKind::Orphan), Err(_)) => {
                self.items.push(Finding::ItemDamaged { key: *key });
            }
            // `UsageEntries` reads the table.
            (Some(ItemKind::Usage), _) => {}
            _ => self.items.push(Finding::ItemMisplaced { key: *key }),
        }
    }

    /// Checks an item of `file`, alone and with the items before it.
    fn file_item(&mut self, file: &mut FileCheck, key: &Key, value: &[u8]) -> Result<(), Finding> {
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
                    Err(DecodeError::Incompatible(reason)) => {
                        self.incompatible.get_or_insert(reason);
                    }
                }
                self.references.add_item(self.volume, key, value, &mut self.outside);
            }
            Some(ItemKind::Dirent) => {
                let entry = Dirent::decode(value).ok_or(damaged)?;
                let files = &mut self.files;
                self.namespace.add_entry(file, key.offset, &entry, hash_key, files);
            }
            Some(ItemKind::Reservation) => {
                file.add_reservation(key, value).then_some(()).ok_or(damaged)?;
            }
            _ => return Err(Finding::ItemMisplaced { key: *key }),
        }
        Ok(())
    }
}

impl TreeVisitor for TreeCheckPass<'_> {
    fn node(&mut self, pointer: NodePointer) {
        self.recount.add_node(self.volume, pointer.address);
        self.references.add_node(self.volume, pointer);
    }

    fn old_item(&mut self, key: &Key, value: &[u8]) {
        self.recount.add_item(self.volume, key, value);
        self.inode_count += u64::from(key.kind == ItemKind::Inode as u8);
        if key.kind == ItemKind::Reservation as u8
            && let Ok(range) = Reservation::decode(key, value)
        {
            self.reserved.add(range);
        }
        if key.ino == 0 && key.kind == ItemKind::Usage as u8 {
            let item_count = self.volume.layout().segment_count.div_ceil(USAGE_PER_ITEM);
            if key.offset >= u64::from(item_count) {
                let segment = key.offset.saturating_mul(USAGE_PER_ITEM.into());
                let segment = u32::try_from(segment).unwrap_or(u32::MAX);
                self.items.push(Finding::UsageExcess { segment });
            }
        }
    }

    fn item(&mut self, key: &Key, value: &[u8]) {
        // Items of a newer program are not judged.
        if self.volume.superblock.tolerance().is_later_kind(key.kind) {
            return;
        }
        if key.ino == 0 {
            return self.volume_item(key, value);
        }
        if self.file.as_ref().is_none_or(|file| file.ino != key.ino) {
            self.finish_file();
        }
        let mut file = self.file.take().unwrap_or_else(|| FileCheck::new(key.ino));
        if let Err(finding) = self.file_item(&mut file, key, value) {
            self.items.push(finding);
        }
        self.file = Some(file);
    }
}
