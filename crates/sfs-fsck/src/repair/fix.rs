//! Choice of the fix for each finding about files.
//!
//! A [`Fixes`] is one round of edits for the findings of the last check of the tree. The next check shows the
//! remaining findings.

use std::collections::BTreeMap;

use sfs_core::format::{COUNT_KEPT_MAX, FIRST_INO, ItemKind};

use crate::check::file::FileCheck;
use crate::check::namespace::NamespaceCheck;
use crate::check::tree::TreeCheck;
use crate::finding::Finding;
use crate::repair::editor::TreeEditor;
use crate::repair::fix_content::fix_content;
use crate::repair::loss::Loss;
use crate::repair::{fix_inodes, fix_names, lost_found};

/// End of the inode numbers that a repair keeps. Numbers from here to the limit of the format are
/// left for new files.
const INO_END: u64 = COUNT_KEPT_MAX / 2;

/// Round of fixes.
pub(crate) struct Fixes<'r, 'v> {
    editor: TreeEditor<'r, 'v>,
    namespace: &'r NamespaceCheck,
    without_attributes: BTreeMap<u64, &'r FileCheck>,
    unreachable: Vec<u64>,
}

impl<'r, 'v> Fixes<'r, 'v> {
    /// Returns a round of fixes with `editor`, after the check `tree_check` of its tree.
    pub(crate) fn new(editor: TreeEditor<'r, 'v>, tree_check: &'r TreeCheck) -> Self {
        let files = tree_check.without_attributes.iter();
        let without_attributes = files.map(|file| (file.ino, file)).collect();
        let namespace = &tree_check.namespace;
        Self { editor, namespace, without_attributes, unreachable: Vec::new() }
    }

    /// Fixes all `findings` that the plan does not cover.
    pub(crate) fn apply(mut self, findings: &[Finding]) {
        for finding in findings {
            if !self.editor.plan.covers(finding) {
                self.fix(finding);
            }
        }
        let is_unreachable = |finding: &Finding| {
            matches!(finding, Finding::Unreachable { .. } | Finding::OwnParent { .. })
        };
        let is_all = findings.iter().all(is_unreachable);
        let Self { mut editor, namespace, unreachable, .. } = self;
        lost_found::adopt_unreachable(&mut editor, namespace, &unreachable, is_all);
    }

    fn fix(&mut self, finding: &Finding) {
        let editor = &mut self.editor;
        match *finding {
            Finding::ItemMisplaced { key } | Finding::ItemDamaged { key } => editor.drop_item(key),
            Finding::InodeMissing { ino } => {
                let file = self.without_attributes.get(&ino).copied();
                fix_inodes::restore_inode(editor, ino, file);
            }
            Finding::InodeNumber { ino } if (FIRST_INO..INO_END).contains(&ino) => {
                editor.plan.next_ino = editor.plan.next_ino.max(ino + 1);
            }
            Finding::InodeNumber { ino } => editor.drop_inode(ino),
            Finding::RootMissing => fix_inodes::restore_root(editor),
            Finding::EntryName { ino, cookie } | Finding::EntryTwice { ino, cookie } => {
                editor.drop_entry(ino, cookie);
            }
            Finding::EntryHash { ino, cookie } => fix_names::move_entry(editor, ino, cookie),
            Finding::EntryDangling { ino, cookie, target } => {
                fix_names::drop_dangling(editor, ino, cookie, target);
            }
            Finding::EntryKind { ino, cookie, target } => {
                fix_names::correct_kind(editor, ino, cookie, target);
            }
            Finding::EntryOwner { ino } => editor.drop_kind(ino, ItemKind::Dirent),
            Finding::DirectoryTwice { ino } => {
                fix_names::keep_one_name(editor, ino, self.namespace.names_of(ino));
            }
            Finding::Unreachable { ino } | Finding::OwnParent { ino } => self.unreachable.push(ino),
            Finding::OrphanMissing { ino } => {
                let name_count = self.namespace.names_of(ino).len();
                fix_inodes::restore_orphan(editor, ino, name_count);
            }
            Finding::OrphanWrong { ino } => fix_inodes::correct_orphan(editor, ino),
            Finding::LinkCount { ino, links, counted } => {
                fix_inodes::correct_links(editor, ino, links, counted);
            }
            Finding::DirectorySize { ino, size, counted } => {
                if size > counted {
                    editor.lose(Loss::Names { ino, count: size - counted });
                }
                editor.change_inode(ino, |inode| inode.size = counted);
            }
            Finding::ParentWrong { ino, expected, .. } => {
                editor.change_inode(ino, |inode| inode.parent = expected);
            }
            _ => fix_content(editor, finding),
        }
    }
}
