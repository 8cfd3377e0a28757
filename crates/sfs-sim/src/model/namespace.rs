//! Operations of the reference on names: lookup, creation, links, deletion and renames.

use sfs_core::Error;
use sfs_core::request::{Caller, RenameMode};

use super::reference::{Reference, ReferenceNode};

type Result<T> = std::result::Result<T, Error>;

/// Checks the name of a new file; the model draws no other invalid names than long and special ones.
fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.len() > 255 => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

impl Reference {
    /// Returns the inode number of `name` in `parent`.
    pub fn find(&self, parent: u64, name: &[u8]) -> Result<u64> {
        let directory = self.directory(parent)?;
        if name.len() > 255 {
            return Err(Error::NameTooLong);
        }
        directory.entries.get(name).copied().ok_or(Error::NotFound)
    }

    /// Checks whether a new file `name` can be created in `parent`.
    pub fn may_make(&self, parent: u64, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let directory = self.live_directory(parent)?;
        if directory.entries.contains_key(name) { Err(Error::Exists) } else { directory.may_add() }
    }

    /// Adds the new file `ino` as `name` in `parent`.
    pub fn make(
        &mut self,
        parent: u64,
        name: &[u8],
        ino: u64,
        mut node: ReferenceNode,
        caller: &Caller,
    ) {
        let directory = self.edit(parent);
        node.inherit_lists(directory, caller);
        if directory.mode & 0o2000 != 0 {
            node.gid = directory.gid;
            if node.is_directory() {
                node.mode |= 0o2000;
            }
        }
        node.inherit(directory);
        if node.is_directory() {
            node.links = 2;
            node.parent = parent;
            directory.links += 1;
        }
        directory.entries.insert(name.to_vec(), ino);
        directory.touch(caller);
        assert!(self.nodes.insert(ino, node.into()).is_none(), "inode number {ino} is used twice");
        self.refer(ino);
    }

    /// Adds the new file `ino` without a name.
    pub fn make_unnamed(
        &mut self,
        parent: u64,
        ino: u64,
        mut node: ReferenceNode,
        caller: &Caller,
    ) {
        let directory = &self.nodes[&parent];
        node.inherit_lists(directory, caller);
        if directory.mode & 0o2000 != 0 {
            node.gid = directory.gid;
        }
        node.inherit(directory);
        (node.links, node.linkable) = (0, true);
        assert!(self.nodes.insert(ino, node.into()).is_none(), "inode number {ino} is used twice");
        self.refer(ino);
    }

    /// Adds a name for `ino`.
    pub fn link(&mut self, ino: u64, parent: u64, name: &[u8], caller: &Caller) -> Result<()> {
        check_name(name)?;
        let node = self.node(ino)?;
        if node.is_directory() {
            return Err(Error::NotPermitted);
        }
        if node.links == 0 && !node.linkable {
            return Err(Error::NotFound);
        }
        self.may_make(parent, name)?;
        self.node(ino)?.may_remove()?;
        let node = self.edit(ino);
        node.links += 1;
        node.linkable = false;
        node.ctime = caller.now;
        let directory = self.edit(parent);
        directory.entries.insert(name.to_vec(), ino);
        directory.touch(caller);
        self.refer(ino);
        Ok(())
    }

    /// Removes a name of a file that is not a directory.
    pub fn unlink(&mut self, parent: u64, name: &[u8], caller: &Caller) -> Result<()> {
        let ino = self.find(parent, name)?;
        if self.node(ino)?.is_directory() {
            return Err(Error::IsDirectory);
        }
        self.node(parent)?.may_remove()?;
        self.node(ino)?.may_remove()?;
        let directory = self.edit(parent);
        directory.entries.remove(name);
        directory.touch(caller);
        self.drop_link(ino, caller);
        Ok(())
    }

    fn drop_link(&mut self, ino: u64, caller: &Caller) {
        let node = self.edit(ino);
        node.links -= 1;
        node.ctime = caller.now;
        self.drop_nameless(ino);
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, parent: u64, name: &[u8], caller: &Caller) -> Result<()> {
        let ino = self.find(parent, name)?;
        let node = self.node(ino)?;
        if !node.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.node(parent)?.may_remove()?;
        node.may_remove()?;
        if !node.entries.is_empty() {
            return Err(Error::NotEmpty);
        }
        let directory = self.edit(parent);
        directory.entries.remove(name);
        directory.links -= 1;
        directory.touch(caller);
        self.drop_directory(ino, caller);
        Ok(())
    }

    fn drop_directory(&mut self, ino: u64, caller: &Caller) {
        let node = self.edit(ino);
        node.links = 0;
        node.ctime = caller.now;
        self.drop_nameless(ino);
    }

    fn is_within(&self, mut ino: u64, ancestor: u64) -> bool {
        loop {
            if ino == ancestor {
                return true;
            }
            let parent = self.nodes[&ino].parent;
            if parent == ino {
                return false;
            }
            ino = parent;
        }
    }

    /// Renames a file. The caller has to create a whiteout at the old name.
    pub fn rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        mode: RenameMode,
        caller: &Caller,
    ) -> Result<()> {
        check_name(new_name)?;
        let from = self.find(parent, name)?;
        let to = self.live_directory(new_parent)?.entries.get(new_name).copied();
        let is_directory = self.node(from)?.is_directory();
        if is_directory && self.is_within(new_parent, from) {
            return Err(Error::Invalid);
        }
        match (to, mode) {
            (Some(_), mode) if mode.keeps_what_exists() => Err(Error::Exists),
            (None, RenameMode::Exchange) => Err(Error::NotFound),
            (Some(to), _) if to == from => Ok(()),
            (Some(to), RenameMode::Exchange) => {
                if self.node(to)?.is_directory() && self.is_within(parent, to) {
                    return Err(Error::Invalid);
                }
                for ino in [parent, new_parent, from, to] {
                    self.node(ino)?.may_remove()?;
                }
                self.edit(parent).entries.insert(name.to_vec(), to);
                self.edit(new_parent).entries.insert(new_name.to_vec(), from);
                self.moved(from, parent, new_parent, caller);
                self.moved(to, new_parent, parent, caller);
                self.note_replaced(from, to);
                self.note_replaced(to, from);
                Ok(())
            }
            (to, _) => {
                if let Some(to) = to {
                    self.may_replace(is_directory, to, new_parent)?;
                }
                self.node(parent)?.may_remove()?;
                self.node(new_parent)?.may_add()?;
                self.node(from)?.may_remove()?;
                if let Some(to) = to {
                    self.note_replaced(from, to);
                    self.replace(is_directory, to, new_parent, caller);
                }
                self.edit(parent).entries.remove(name);
                self.edit(new_parent).entries.insert(new_name.to_vec(), from);
                self.moved(from, parent, new_parent, caller);
                Ok(())
            }
        }
    }

    /// Notes that file `from` replaces `to`, if both have data.
    fn note_replaced(&mut self, from: u64, to: u64) {
        let has_data = |ino: u64| self.regular(ino).is_ok_and(|node| node.size() > 0);
        if has_data(from) && has_data(to) {
            self.edit(from).replaces = true;
        }
    }

    /// Checks whether an entry of `new_parent` that leads to `to` can be replaced; `from` tells whether a directory
    /// replaces it.
    fn may_replace(&self, from: bool, to: u64, new_parent: u64) -> Result<()> {
        let node = self.node(to)?;
        match (from, node.is_directory()) {
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            _ => {}
        }
        self.node(new_parent)?.may_remove()?;
        node.may_remove()?;
        if node.entries.is_empty() { Ok(()) } else { Err(Error::NotEmpty) }
    }

    fn replace(&mut self, from: bool, to: u64, new_parent: u64, caller: &Caller) {
        if from {
            self.edit(new_parent).links -= 1;
            self.drop_directory(to, caller);
        } else {
            self.drop_link(to, caller);
        }
    }

    /// Updates times, parent and link counts after `ino` was moved to `new_parent`.
    fn moved(&mut self, ino: u64, parent: u64, new_parent: u64, caller: &Caller) {
        let node = self.edit(ino);
        node.ctime = caller.now;
        if node.is_directory() && parent != new_parent {
            node.parent = new_parent;
            self.edit(parent).links -= 1;
            self.edit(new_parent).links += 1;
        }
        self.edit(parent).touch(caller);
        self.edit(new_parent).touch(caller);
    }
}
