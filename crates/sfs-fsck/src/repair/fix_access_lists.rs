//! Fixes of access lists. A repair gives nobody a permission that mode and list did not both allow.

use sfs_core::format::{AccessList, AccessListKind, FileKind, ItemKind, Key};

use crate::check::xattrs::decode_first;
use crate::read::key_range::KeyRange;
use crate::repair::editor::TreeEditor;

/// Permissions of everybody but the owner.
const OF_OTHERS: u32 = 0o077;

/// Must be called before a defective attribute is dropped. If it is the list that decides about access, only the owner
/// keeps permissions: those of the group were a limit for everybody whom the list named, and the list may have
/// excluded somebody.
pub(crate) fn before_drop(editor: &mut TreeEditor<'_, '_>, ino: u64, offset: u64) {
    let first = editor.tree.get(&Key::new(ino, ItemKind::Xattr, offset >> 16 << 16));
    let name = first.as_deref().and_then(decode_first).map(|(name, ..)| name);
    let has_mode = editor.inode(ino).is_some_and(|inode| inode.kind() != FileKind::Symlink);
    if has_mode && name.and_then(AccessListKind::of_name) == Some(AccessListKind::Access) {
        editor.change_inode(ino, |inode| inode.mode &= !OF_OTHERS);
    }
}

/// Gives the mode of `ino`, and its access list at `offset`, the permissions that both allow.
pub(crate) fn restrict_to_both(
    editor: &mut TreeEditor<'_, '_>,
    ino: u64,
    offset: u64,
    permissions: u32,
) {
    let low = Key::new(ino, ItemKind::Xattr, offset >> 16 << 16);
    let high = Some(Key { offset: offset | 0xffff, ..low }.next());
    let mut parts: Vec<(Key, Vec<u8>)> = Vec::new();
    editor.tree.each(KeyRange { low, high }, |key, part| parts.push((*key, part.to_vec())));
    let Some(value_at) = parts
        .first()
        .and_then(|(_, first)| decode_first(first).map(|(_, value, _)| first.len() - value.len()))
    else {
        return;
    };
    let starts = |no: usize| if no == 0 { value_at } else { 0 };
    let value: Vec<u8> =
        parts.iter().enumerate().flat_map(|(no, (_, part))| &part[starts(no)..]).copied().collect();
    let Some(mut list) = AccessList::decode(&value) else { return };
    list.restrict(permissions);
    let mut value = list.encode().into_iter();
    for (no, (key, mut part)) in parts.into_iter().enumerate() {
        part[starts(no)..].iter_mut().zip(&mut value).for_each(|(old, new)| *old = new);
        editor.tree.edits.put(key, part);
    }
    editor.change_inode(ino, |inode| inode.mode = inode.mode & !0o777 | permissions);
}
