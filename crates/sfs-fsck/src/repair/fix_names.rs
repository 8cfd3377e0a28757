//! Fixes of directory entries.

use sfs_core::format::{ItemKind, Key, ROOT_INO};

use crate::check::links::NameRef;
use crate::read::dirent::{Dirent, is_valid_name};
use crate::repair::editor::TreeEditor;
use crate::repair::loss::Loss;

/// Deletes an entry whose inode `target` does not exist, and records the loss of the file.
pub(crate) fn drop_dangling(editor: &mut TreeEditor<'_, '_>, ino: u64, cookie: u64, target: u64) {
    // An earlier fix may have restored the attributes.
    if editor.inode(target).is_some() {
        return;
    }
    let key = Key::new(ino, ItemKind::Dirent, cookie);
    if let Some(value) = editor.tree.get(&key)
        && let Some(entry) = Dirent::decode(&value)
    {
        let name = entry.name.escape_ascii().to_string();
        editor.lose(Loss::File { ino, target, name });
    }
    editor.drop_entry(ino, cookie);
    // The size of the directory counts the entry. A difference would be reported as a further loss.
    editor.change_inode(ino, |inode| inode.size = inode.size.saturating_sub(1));
}

/// Moves an entry to the cookie of its name. An invalid name is dropped.
pub(crate) fn move_entry(editor: &mut TreeEditor<'_, '_>, ino: u64, cookie: u64) {
    let key = Key::new(ino, ItemKind::Dirent, cookie);
    let Some(value) = editor.tree.get(&key) else { return };
    editor.tree.edits.delete(key);
    let Some(Dirent { target, kind, name }) = Dirent::decode(&value) else { return };
    if is_valid_name(name) {
        editor.add_entry(ino, name, target, kind);
    }
}

/// Sets the kind of an entry to that of its inode `target`.
pub(crate) fn correct_kind(editor: &mut TreeEditor<'_, '_>, ino: u64, cookie: u64, target: u64) {
    let key = Key::new(ino, ItemKind::Dirent, cookie);
    let (Some(value), Some(inode)) = (editor.tree.get(&key), editor.inode(target)) else { return };
    if let Some(entry) = Dirent::decode(&value) {
        let value = Dirent { kind: inode.kind(), ..entry }.encode();
        editor.tree.edits.put(key, value);
    }
}

/// Deletes all but one of the `names` of directory `ino`. The name in its parent stays, or else the first.
pub(crate) fn keep_one_name(editor: &mut TreeEditor<'_, '_>, ino: u64, names: &[NameRef]) {
    let parent = editor.inode(ino).map(|inode| inode.parent);
    let kept = match ino {
        ROOT_INO => None,
        _ => names.iter().find(|name| Some(name.parent) == parent).or(names.first()),
    };
    for name in names.iter().filter(|name| Some(*name) != kept) {
        editor.tree.edits.delete(name.key());
    }
}
