//! What is done about each finding: names, inodes and items here, what is in a file beside.
//!
//! Owns: the edits that make a finding go away, and what is lost by them.
//! Promises: an edit is small; what it makes wrong elsewhere (a count, say) is found by the next survey.
//! Never: writes to the device.

mod content;

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{
    COUNT_KEPT_MAX, FIRST_INO, FileKind, Inode, InodeFlags, ItemKind, Key, RUN_BLOCKS, Timestamp,
};
use sfs_device::BLOCK_SIZE;

use crate::file::File;
use crate::namespace::{Entry, is_name};
use crate::survey::Survey;
use crate::view::View;
use crate::walk::Keys;
use crate::{Finding, Loss};

/// Inode numbers from here on cannot have been given out, and some are left to give out below the limit.
pub(crate) const INO_END: u64 = COUNT_KEPT_MAX / 2;

/// What a repair will do besides the edits of its view.
#[derive(Default)]
pub(crate) struct Plan {
    /// Blocks of files that get a copy of their own, by inode and block.
    pub(crate) copies: BTreeSet<(u64, u32)>,
    /// Leaves that are written again, though their items stay.
    pub(crate) rewrites: BTreeSet<u64>,
    /// Files get numbers from this one on.
    pub(crate) next_ino: u64,
    /// What cannot be saved.
    pub(crate) losses: BTreeSet<Loss>,
}

impl Plan {
    /// Whether the plan takes care of `finding` without an edit.
    pub(crate) fn covers(&self, finding: &Finding) -> bool {
        match *finding {
            Finding::MappingUnknown { ino, block, .. }
            | Finding::MappingShared { ino, block, .. } => self.copies.contains(&(ino, block)),
            Finding::NodeUnknown { address } | Finding::NodeShared { address } => {
                self.rewrites.contains(&address)
            }
            // The table is always written anew.
            Finding::UsageExcess { .. } => true,
            _ => false,
        }
    }
}

/// A round of remedies.
pub(crate) struct Remedies<'r, 'v> {
    pub(crate) view: &'r mut View<'v>,
    pub(crate) plan: &'r mut Plan,
    pub(crate) survey: &'r Survey,
    pub(crate) now: Timestamp,
    headless: BTreeMap<u64, &'r File>,
    pub(crate) unreachable: Vec<u64>,
}

impl<'r, 'v> Remedies<'r, 'v> {
    pub(crate) fn new(
        view: &'r mut View<'v>,
        plan: &'r mut Plan,
        survey: &'r Survey,
        now: Timestamp,
    ) -> Self {
        let headless = survey.headless.iter().map(|file| (file.ino, file)).collect();
        Self { view, plan, survey, now, headless, unreachable: Vec::new() }
    }

    /// Does something about every finding that is not covered yet.
    pub(crate) fn apply(mut self, findings: &[Finding]) {
        for finding in findings {
            if !self.plan.covers(finding) {
                self.remedy(finding);
            }
        }
        let is_all = findings.iter().all(|finding| matches!(finding, Finding::Unreachable { .. }));
        self.adopt_unreachable(is_all);
    }

    fn lose(&mut self, loss: Loss) {
        self.plan.losses.insert(loss);
    }

    fn remedy(&mut self, finding: &Finding) {
        match *finding {
            Finding::ItemMisplaced { key } | Finding::ItemDamaged { key } => self.drop_item(key),
            Finding::InodeMissing { ino } => self.restore_inode(ino),
            Finding::InodeNumber { ino } if (FIRST_INO..INO_END).contains(&ino) => {
                self.plan.next_ino = self.plan.next_ino.max(ino + 1);
            }
            Finding::InodeNumber { ino } => self.drop_all(ino),
            Finding::RootMissing => self.restore_root(),
            Finding::EntryName { ino, cookie } => self.drop_entry(ino, cookie),
            Finding::EntryTwice { ino, cookie } => self.drop_entry(ino, cookie),
            Finding::EntryHash { ino, cookie } => self.move_entry(ino, cookie),
            // Its attributes may have been restored by now.
            Finding::EntryDangling { target, .. } if self.inode(target).is_some() => {}
            Finding::EntryDangling { ino, cookie, target } => {
                self.lose_file(ino, cookie, target);
            }
            Finding::EntryKind { ino, cookie, target } => self.correct_kind(ino, cookie, target),
            Finding::EntryOwner { ino } => self.drop_kind(ino, ItemKind::Dirent),
            Finding::DirectoryTwice { ino } => self.keep_one_name(ino),
            Finding::Unreachable { ino } => self.unreachable.push(ino),
            Finding::OrphanMissing { ino } => self.restore_orphan(ino),
            Finding::OrphanWrong { ino } => self.correct_orphan(ino),
            Finding::LinkCount { ino, links, counted } => {
                if links == 0 {
                    // It has names, so nothing of it is to be deleted.
                    self.view.edits.delete(Key::new(0, ItemKind::Orphan, ino));
                }
                let links = u32::try_from(counted).unwrap_or(u32::MAX);
                self.change_inode(ino, |inode| inode.links = links);
            }
            Finding::DirectorySize { ino, size, counted } => {
                if size > counted {
                    self.lose(Loss::Names { ino, count: size - counted });
                }
                self.change_inode(ino, |inode| inode.size = counted);
            }
            Finding::ParentWrong { ino, expected, .. } => {
                self.change_inode(ino, |inode| inode.parent = expected);
            }
            _ => self.remedy_content(finding),
        }
    }

    pub(crate) fn inode(&self, ino: u64) -> Option<Inode> {
        let tolerance = self.view.volume.superblock.tolerance();
        Inode::decode(&self.view.get(&Key::inode(ino))?, ino, tolerance).ok()
    }

    /// Attributes that are new, or replace others that mean nothing any more.
    pub(crate) fn put_inode(&mut self, ino: u64, inode: &Inode) {
        self.view.edits.put(Key::inode(ino), inode.encode());
    }

    fn change_inode(&mut self, ino: u64, change: impl FnOnce(&mut Inode)) {
        if let Some(mut inode) = self.inode(ino) {
            change(&mut inode);
            let old = self.view.get(&Key::inode(ino));
            let value = Inode::keep_rest(&inode.encode(), old.as_deref()).into_owned();
            self.view.edits.put(Key::inode(ino), value);
        }
    }

    fn drop_item(&mut self, key: Key) {
        let Key { ino, kind, offset } = key;
        self.view.edits.delete(key);
        match ItemKind::decode(kind) {
            // What becomes of the rest is decided when it is found to have no attributes.
            Some(ItemKind::Inode) if offset == 0 => {}
            Some(ItemKind::Dirent) => self.lose(Loss::Names { ino, count: 1 }),
            Some(ItemKind::Mapping) if offset <= u64::from(u32::MAX / RUN_BLOCKS) => {
                let run_len = u64::from(RUN_BLOCKS) * BLOCK_SIZE as u64;
                let first = offset * run_len;
                self.lose(Loss::Bytes { ino, first, last: first + run_len - 1 });
            }
            _ => self.lose(Loss::Item { ino, kind }),
        }
    }

    /// Drops the items of `keys`.
    fn drop_keys(&mut self, keys: Keys) {
        let mut all = Vec::new();
        self.view.each(keys, |key, _| all.push(*key));
        all.into_iter().for_each(|key| self.view.edits.delete(key));
    }

    fn drop_kind(&mut self, ino: u64, kind: ItemKind) {
        let low = Key::new(ino, kind, 0);
        self.drop_keys(Keys { low, high: Some(Key::new(ino, kind, u64::MAX).next()) });
    }

    /// Drops everything of `ino`.
    fn drop_all(&mut self, ino: u64) {
        let mut kinds = BTreeSet::new();
        self.view.each(Keys::of(ino), |key, _| {
            kinds.insert(key.kind);
        });
        kinds.into_iter().for_each(|kind| self.lose(Loss::Item { ino, kind }));
        self.drop_keys(Keys::of(ino));
    }

    /// `ino` has items, but no attributes: gives it some, if it was a file.
    fn restore_inode(&mut self, ino: u64) {
        let guessed = self.headless.get(&ino).and_then(|file| file.guess());
        let Some((kind, size)) = guessed else { return self.drop_all(ino) };
        let is_directory = kind == FileKind::Directory;
        let has_blocks = self.has(ino, ItemKind::Mapping);
        let mut inode = Inode {
            mode: kind.mode_bits() | if is_directory { 0o700 } else { 0o600 },
            links: if is_directory { 2 } else { 1 },
            parent: if is_directory { ino } else { 0 },
            size,
            ..sfs_core::root_directory(0, 0, self.now)
        };
        inode.flags.set(InodeFlags::INLINE, kind == FileKind::Regular && !has_blocks);
        inode.flags.set(InodeFlags::XATTRS, self.has(ino, ItemKind::Xattr));
        self.put_inode(ino, &inode);
        self.lose(Loss::Attributes { ino });
    }

    fn has(&self, ino: u64, kind: ItemKind) -> bool {
        let low = Key::new(ino, kind, 0);
        let mut any = false;
        let keys = Keys { low, high: Some(Key::new(ino, kind, u64::MAX).next()) };
        self.view.each(keys, |_, _| any = true);
        any
    }

    fn restore_root(&mut self) {
        let ino = sfs_core::format::ROOT_INO;
        if self.inode(ino).is_some_and(|inode| inode.kind() == FileKind::Directory) {
            return;
        }
        self.drop_kind(ino, ItemKind::Inline);
        self.drop_kind(ino, ItemKind::Mapping);
        self.put_inode(ino, &sfs_core::root_directory(0, 0, self.now));
        self.lose(Loss::Attributes { ino });
    }

    pub(crate) fn drop_entry(&mut self, ino: u64, cookie: u64) {
        self.view.edits.delete(Key::new(ino, ItemKind::Dirent, cookie));
    }

    /// The entry leads to nothing.
    fn lose_file(&mut self, ino: u64, cookie: u64, target: u64) {
        let key = Key::new(ino, ItemKind::Dirent, cookie);
        if let Some(value) = self.view.get(&key)
            && let Some(entry) = Entry::decode(&value)
        {
            let name = entry.name.escape_ascii().to_string();
            self.lose(Loss::File { ino, target, name });
        }
        self.drop_entry(ino, cookie);
        // The directory's size counts it, and is no sign of a further loss.
        self.change_inode(ino, |inode| inode.size = inode.size.saturating_sub(1));
    }

    /// Moves an entry to where its name belongs.
    fn move_entry(&mut self, ino: u64, cookie: u64) {
        let key = Key::new(ino, ItemKind::Dirent, cookie);
        let Some(value) = self.view.get(&key) else { return };
        self.view.edits.delete(key);
        let Some(Entry { target, kind, name }) = Entry::decode(&value) else { return };
        if is_name(name) {
            self.add_entry(ino, name, target, kind);
        }
    }

    fn correct_kind(&mut self, ino: u64, cookie: u64, target: u64) {
        let key = Key::new(ino, ItemKind::Dirent, cookie);
        let (Some(value), Some(inode)) = (self.view.get(&key), self.inode(target)) else { return };
        if let Some(entry) = Entry::decode(&value) {
            let value = Entry { kind: inode.kind(), ..entry }.encode();
            self.view.edits.put(key, value);
        }
    }

    /// A directory has one name: the one in its parent, if there is such a one.
    fn keep_one_name(&mut self, ino: u64) {
        let parent = self.inode(ino).map(|inode| inode.parent);
        let names = self.survey.namespace.names_of(ino);
        let kept = match ino {
            sfs_core::format::ROOT_INO => None,
            _ => names.iter().find(|name| Some(name.parent) == parent).or(names.first()),
        };
        for name in names.iter().filter(|name| Some(*name) != kept) {
            self.view.edits.delete(name.key());
        }
    }

    fn restore_orphan(&mut self, ino: u64) {
        let names = self.survey.namespace.names_of(ino).len();
        if names > 0 {
            self.change_inode(ino, |inode| inode.links = u32::try_from(names).unwrap_or(u32::MAX));
        } else {
            self.view.edits.put(Key::new(0, ItemKind::Orphan, ino), [0; 8]);
        }
    }

    fn correct_orphan(&mut self, ino: u64) {
        let key = Key::new(0, ItemKind::Orphan, ino);
        match self.inode(ino) {
            Some(Inode { links: 0, .. }) => self.view.edits.put(key, [0; 8]),
            // From nowhere on: what is behind its end, if anything is, is not thrown away.
            Some(_) | None => self.view.edits.delete(key),
        }
    }
}
