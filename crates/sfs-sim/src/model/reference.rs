//! The reference: a filesystem in memory, as simple as can be.
//!
//! Owns: what every operation must answer, and what must be there afterwards.
//! Promises: a clone is cheap, so that the state after each operation can be kept.
//! Never: looks at the volume, but for the inode number that a new file got.

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{FileKind, Label, ROOT_INO, Timestamp};
use sfs_core::request::{AttributeChanges, Caller, WriteMode};

use super::content::Content;
use super::rig::NOW;

/// The attribute that a write clears.
pub const CAPABILITY: &[u8] = b"security.capability";

type Result<T> = std::result::Result<T, Error>;

/// A file of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type and permissions.
    pub mode: u32,
    /// Names, and of a directory those in its children.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device file.
    pub rdev: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Arc<Vec<u8>>>,
    /// Content of a regular file.
    pub content: Content,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// The directory that holds a directory.
    pub parent: u64,
    /// Names in a directory.
    pub entries: BTreeMap<Vec<u8>, u64>,
    /// It took the place of another file, or was cut to nothing to be written anew: the fourth
    /// sentence of the contract is about it.
    pub replaces: bool,
    /// It was made without a name, and has not had one.
    pub linkable: bool,
}

impl Node {
    /// A new file of `caller`.
    pub fn new(mode: u32, caller: &Caller) -> Self {
        let now = caller.now;
        Self {
            mode,
            links: 1,
            uid: caller.uid,
            gid: caller.gid,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            xattrs: BTreeMap::new(),
            content: Content::default(),
            target: Vec::new(),
            parent: 0,
            entries: BTreeMap::new(),
            replaces: false,
            linkable: false,
        }
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).expect("a mode with a kind")
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// What `stat` says of the length.
    pub fn size(&self) -> u64 {
        match self.kind() {
            FileKind::Directory => self.entries.len() as u64,
            FileKind::Symlink => self.target.len() as u64,
            _ => self.content.size,
        }
    }

    fn strip_privileges(&mut self) {
        let sgid = if self.mode & 0o010 != 0 { 0o2000 } else { 0 };
        self.mode &= !(0o4000 | sgid);
    }

    /// Its content changes.
    pub fn touch(&mut self, caller: &Caller) {
        self.mtime = caller.now;
        self.ctime = caller.now;
    }
}

/// The whole filesystem.
#[derive(Clone, Debug)]
pub struct Reference {
    /// All files, by inode number.
    pub nodes: BTreeMap<u64, Arc<Node>>,
    /// References that the caller got and has not forgotten.
    pub references: BTreeMap<u64, u64>,
    /// The name of the volume.
    pub label: Label,
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Reference {
    /// An empty root directory.
    pub fn new() -> Self {
        let mut root = Node::new(0o040_755, &Caller { uid: 0, gid: 0, now: NOW });
        root.links = 2;
        root.parent = ROOT_INO;
        Self {
            nodes: [(ROOT_INO, Arc::new(root))].into(),
            references: BTreeMap::new(),
            label: Label::NONE,
        }
    }

    /// The file `ino`.
    pub fn node(&self, ino: u64) -> Result<&Node> {
        self.nodes.get(&ino).map(|node| &**node).ok_or(Error::NotFound)
    }

    /// The file `ino`, which exists, to be changed.
    pub fn edit(&mut self, ino: u64) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&ino).expect("the file exists"))
    }

    /// The directory `ino`.
    pub fn directory(&self, ino: u64) -> Result<&Node> {
        self.node(ino).and_then(|n| if n.is_directory() { Ok(n) } else { Err(Error::NotDirectory) })
    }

    /// The directory `ino`, which must have a name.
    pub fn live_directory(&self, ino: u64) -> Result<&Node> {
        self.directory(ino).and_then(|n| if n.links > 0 { Ok(n) } else { Err(Error::NotFound) })
    }

    /// A file that was made without a name and has none yet.
    pub fn unnamed(&self) -> Option<u64> {
        self.nodes.iter().find(|(_, node)| node.linkable).map(|(ino, _)| *ino)
    }

    /// Files that have a name, or a reference.
    pub fn inos(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// A caller gets a reference.
    pub fn refer(&mut self, ino: u64) {
        *self.references.entry(ino).or_default() += 1;
    }

    /// Forgets all references to `ino`; gives how many there were.
    pub fn forget(&mut self, ino: u64) -> u64 {
        let count = self.references.remove(&ino).unwrap_or(0);
        self.drop_nameless(ino);
        count
    }

    /// A reopened volume knows no references.
    pub fn forget_all(&mut self) {
        for ino in self.inos() {
            self.forget(ino);
        }
    }

    /// Deletes a file that has neither name nor reference.
    pub fn drop_nameless(&mut self, ino: u64) {
        let nameless = self.nodes.get(&ino).is_some_and(|node| node.links == 0);
        if nameless && !self.references.contains_key(&ino) {
            self.nodes.remove(&ino);
        }
    }

    /// What has been said so far may have become durable: a file that is empty by now may be found
    /// so.
    pub fn forget_replaced(&mut self) {
        for node in self.nodes.values_mut().filter(|node| node.replaces && node.size() == 0) {
            Arc::make_mut(node).replaces = false;
        }
    }

    /// The regular file `ino`.
    pub fn regular(&self, ino: u64) -> Result<&Node> {
        let node = self.node(ino)?;
        match node.kind() {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Writes to a regular file.
    pub fn write(
        &mut self,
        ino: u64,
        offset: u64,
        bytes: &[u8],
        mode: WriteMode,
        caller: &Caller,
    ) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.regular(ino)?;
        let node = self.edit(ino);
        if mode.kill_privileges {
            node.strip_privileges();
            node.xattrs.remove(CAPABILITY);
        }
        node.content.write(offset, bytes);
        if !mode.keep_times {
            node.touch(caller);
        }
        Ok(())
    }

    /// Changes attributes and length.
    pub fn set_attributes(
        &mut self,
        ino: u64,
        changes: &AttributeChanges,
        caller: &Caller,
    ) -> Result<()> {
        if changes.size.is_some() {
            self.regular(ino)?;
        }
        self.node(ino)?;
        let node = self.edit(ino);
        if let Some(size) = changes.size {
            node.replaces |= size == 0 && node.content.size > 0;
            node.content.truncate(size);
        }
        if !changes.keep_times || node.kind() != FileKind::Regular {
            node.ctime = caller.now;
            if changes.size.is_some() {
                node.mtime = caller.now;
            }
        }
        if changes.give_owner() || changes.size.is_some() || changes.kill_privileges {
            node.xattrs.remove(CAPABILITY);
        }
        if let Some(mode) = changes.mode {
            node.mode = node.mode & !0o7777 | mode & 0o7777;
        }
        node.uid = changes.uid.unwrap_or(node.uid);
        node.gid = changes.gid.unwrap_or(node.gid);
        let strips = changes.give_owner() || changes.kill_privileges;
        if strips && node.kind() == FileKind::Regular && changes.mode.is_none() {
            node.strip_privileges();
        }
        node.atime = changes.atime.unwrap_or(node.atime);
        node.mtime = changes.mtime.unwrap_or(node.mtime);
        node.ctime = changes.ctime.unwrap_or(node.ctime);
        node.btime = changes.btime.unwrap_or(node.btime);
        Ok(())
    }
}
