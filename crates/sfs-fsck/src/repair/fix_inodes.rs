//! Fixes of lost attributes, the root directory, and orphan items.

use sfs_core::format::{FileKind, Inode, InodeFlags, ItemKind, Key, ROOT_INO};

use crate::check::file::FileCheck;
use crate::repair::editor::TreeEditor;
use crate::repair::loss::Loss;

/// Gives guessed attributes to an inode that lost its own. The guess comes from `file`, the check of the
/// inode's items; an inode without a guess is dropped.
pub(crate) fn restore_inode(editor: &mut TreeEditor<'_, '_>, ino: u64, file: Option<&FileCheck>) {
    let Some((kind, size)) = file.and_then(FileCheck::guess) else {
        return editor.drop_inode(ino);
    };
    let is_directory = kind == FileKind::Directory;
    let has_blocks = editor.has(ino, ItemKind::Mapping);
    let mut inode = Inode {
        mode: kind.mode_bits() | if is_directory { 0o700 } else { 0o600 },
        links: if is_directory { 2 } else { 1 },
        parent: if is_directory { ino } else { 0 },
        size,
        ..sfs_core::root_directory(0, 0, editor.now)
    };
    inode.flags.set(InodeFlags::INLINE, kind == FileKind::Regular && !has_blocks);
    inode.flags.set(InodeFlags::XATTRS, editor.has(ino, ItemKind::Xattr));
    editor.put_inode(ino, &inode);
    editor.lose(Loss::Attributes { ino });
}

/// Makes the root inode a directory, unless it is one.
pub(crate) fn restore_root(editor: &mut TreeEditor<'_, '_>) {
    let ino = ROOT_INO;
    if editor.inode(ino).is_some_and(|inode| inode.kind() == FileKind::Directory) {
        return;
    }
    editor.drop_kind(ino, ItemKind::Inline);
    editor.drop_kind(ino, ItemKind::Mapping);
    editor.put_inode(ino, &sfs_core::root_directory(0, 0, editor.now));
    editor.lose(Loss::Attributes { ino });
}

/// Changes the link count of `ino` from `links` to `counted`. An inode that had no links loses its orphan
/// item.
pub(crate) fn correct_links(editor: &mut TreeEditor<'_, '_>, ino: u64, links: u32, counted: u64) {
    if links == 0 {
        // The inode has names, so no mount may delete it.
        editor.tree.edits.delete(Key::new(0, ItemKind::Orphan, ino));
    }
    let links = u32::try_from(counted).unwrap_or(u32::MAX);
    editor.change_inode(ino, |inode| inode.links = links);
}

/// Fixes an inode without links and without an orphan item: with names it gets links, else an orphan item.
pub(crate) fn restore_orphan(editor: &mut TreeEditor<'_, '_>, ino: u64, name_count: usize) {
    if name_count > 0 {
        let links = u32::try_from(name_count).unwrap_or(u32::MAX);
        editor.change_inode(ino, |inode| inode.links = links);
    } else {
        editor.tree.edits.put(Key::new(0, ItemKind::Orphan, ino), [0; 8]);
    }
}

/// Corrects the orphan item of an inode without links, and deletes any other orphan item.
pub(crate) fn correct_orphan(editor: &mut TreeEditor<'_, '_>, ino: u64) {
    let key = Key::new(0, ItemKind::Orphan, ino);
    match editor.inode(ino) {
        Some(Inode { links: 0, .. }) => editor.tree.edits.put(key, [0; 8]),
        // The item of an inode with links is wrong if its block number is invalid. Blocks past the end of the
        // file stay.
        Some(_) | None => editor.tree.edits.delete(key),
    }
}
