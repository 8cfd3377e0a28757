//! Files that no name leads to.
//!
//! Owns: `/lost+found`, and the names in it.
//! Promises: whatever is reachable only through something unreachable stays where it is in that.
//! Never: counts links; the next survey does.

use sfs_core::format::{FileKind, Inode, ItemKind, Key, ROOT_INO};

use crate::Loss;
use crate::namespace::{Entry, cookie};
use crate::remedy::Remedies;
use crate::walk::Keys;

/// Where nameless files go.
const NAME: &str = "lost+found";

/// Names with one hash that a directory can hold.
const COLLISIONS_MAX: u64 = 256;

impl Remedies<'_, '_> {
    /// Gives a name to each file that nothing at all leads to; or, if all that is wrong is unreachable,
    /// and all that is unreachable in rings, to one of them.
    pub(crate) fn adopt_unreachable(&mut self, is_all: bool) {
        let unreachable = std::mem::take(&mut self.unreachable);
        let is_nameless = |ino: &u64| self.survey.namespace.names_of(*ino).is_empty();
        let nameless: Vec<u64> = unreachable.iter().copied().filter(is_nameless).collect();
        if let (Some(first), true) = (unreachable.first(), is_all && nameless.is_empty()) {
            let names = self.survey.namespace.names_of(*first);
            names.iter().for_each(|name| self.drop_entry(name.parent, name.cookie));
            self.adopt(*first);
        }
        nameless.into_iter().for_each(|ino| self.adopt(ino));
    }

    fn adopt(&mut self, ino: u64) {
        let Some(inode) = self.inode(ino) else { return };
        let kind = inode.kind();
        let what = match kind {
            FileKind::Regular => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::CharDevice | FileKind::BlockDevice => "device",
            FileKind::Socket => "socket",
        };
        let home = self.lost_and_found();
        self.add_entry(home, format!("{what}-{ino}").as_bytes(), ino, kind);
        self.plan.losses.insert(Loss::Nameless { ino });
    }

    /// The directory for nameless files, made if there is none.
    fn lost_and_found(&mut self) -> u64 {
        let mut name = NAME.to_owned();
        loop {
            match self.find_entry(ROOT_INO, name.as_bytes()) {
                Some((ino, FileKind::Directory)) => return ino,
                Some(_) => name.push('+'),
                None => break,
            }
        }
        let ino = self.plan.next_ino;
        self.plan.next_ino += 1;
        let inode = Inode {
            mode: FileKind::Directory.mode_bits() | 0o700,
            ..sfs_core::root_directory(0, 0, self.now)
        };
        self.put_inode(ino, &inode);
        self.add_entry(ROOT_INO, name.as_bytes(), ino, FileKind::Directory);
        ino
    }

    fn find_entry(&self, parent: u64, name: &[u8]) -> Option<(u64, FileKind)> {
        let low = Key::new(parent, ItemKind::Dirent, cookie(self.hash_key(), name));
        let high = Key { offset: low.offset + COLLISIONS_MAX, ..low };
        let mut found = None;
        self.view.each(Keys { low, high: Some(high) }, |_, value| {
            let entry = Entry::decode(value).filter(|entry| entry.name == name);
            found = entry.map(|entry| (entry.target, entry.kind)).or(found);
        });
        found
    }

    /// Adds an entry where its name belongs, unless the name is there already.
    pub(crate) fn add_entry(&mut self, parent: u64, name: &[u8], target: u64, kind: FileKind) {
        if self.find_entry(parent, name).is_some() {
            return;
        }
        let first = cookie(self.hash_key(), name);
        let keys = (first..first + COLLISIONS_MAX).map(|at| Key::new(parent, ItemKind::Dirent, at));
        let free = { keys }.find(|key| self.view.get(key).is_none());
        if let Some(key) = free {
            self.view.edits.put(key, Entry { target, kind, name }.encode());
        }
    }

    fn hash_key(&self) -> [u64; 2] {
        self.view.volume.superblock.hash_key
    }
}
