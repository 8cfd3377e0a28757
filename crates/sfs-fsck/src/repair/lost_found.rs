//! `/lost+found`: new names for inodes that no path reaches.
//!
//! An inode that has a name in an unreachable directory keeps that name. The next round of fixes
//! corrects link counts.

use sfs_core::format::{FileKind, Inode, ROOT_INO};

use crate::check::namespace::NamespaceCheck;
use crate::read::dirent::find_entry;
use crate::repair::editor::TreeEditor;
use crate::repair::loss::Loss;

/// Name of the directory.
const NAME: &str = "lost+found";

/// Gives a new name to each of the `unreachable` inodes that has no name.
///
/// Unreachable inodes that all have names form rings of directories. If no other findings are left
/// (`is_all`), the first inode of such a list loses its names and gets a new name.
pub(crate) fn adopt_unreachable(
    editor: &mut TreeEditor<'_, '_>,
    namespace: &NamespaceCheck,
    unreachable: &[u64],
    is_all: bool,
) {
    let is_nameless = |ino: &u64| namespace.names_of(*ino).is_empty();
    let nameless: Vec<u64> = unreachable.iter().copied().filter(is_nameless).collect();
    if let (Some(first), true) = (unreachable.first(), is_all && nameless.is_empty()) {
        let names = namespace.names_of(*first);
        names.iter().for_each(|name| editor.drop_entry(name.parent, name.cookie));
        adopt(editor, *first);
    }
    nameless.into_iter().for_each(|ino| adopt(editor, ino));
}

/// Adds an entry for `ino` to `/lost+found`.
fn adopt(editor: &mut TreeEditor<'_, '_>, ino: u64) {
    let Some(inode) = editor.inode(ino) else { return };
    let kind = inode.kind();
    let prefix = match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::CharDevice | FileKind::BlockDevice => "device",
        FileKind::Socket => "socket",
    };
    let parent = lost_found(editor);
    editor.add_entry(parent, format!("{prefix}-{ino}").as_bytes(), ino, kind);
    editor.lose(Loss::Nameless { ino });
}

/// Returns the inode number of `/lost+found`, and makes the directory if there is none. Appends `+`
/// to the name as long as a file that is no directory has the name.
fn lost_found(editor: &mut TreeEditor<'_, '_>) -> u64 {
    let mut name = NAME.to_owned();
    loop {
        match find_entry(editor.tree, ROOT_INO, name.as_bytes()) {
            Some((ino, FileKind::Directory)) => return ino,
            Some(_) => name.push('+'),
            None => break,
        }
    }
    let ino = editor.plan.next_ino;
    editor.plan.next_ino += 1;
    let inode = Inode {
        mode: FileKind::Directory.mode_bits() | 0o700,
        ..sfs_core::root_directory(0, 0, editor.now)
    };
    editor.put_inode(ino, &inode);
    editor.add_entry(ROOT_INO, name.as_bytes(), ino, FileKind::Directory);
    ino
}
