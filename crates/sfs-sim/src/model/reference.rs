//! The reference: a simple filesystem in memory with the expected result and effect of every operation.
//!
//! Clones share unchanged files, so that the state after each operation can be stored. The only input from
//! the volume is the inode number of a new file.

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{FileKind, InodeFlags, Label, ROOT_INO, Timestamp};
use sfs_core::request::{AllocateMode, Allocation, AttributeChanges, Caller, WriteMode};

use super::content::FileContent;
use super::file_flags;
use super::fixture::NOW;

/// Extended attribute that a write removes.
pub const CAPABILITY: &[u8] = b"security.capability";

type Result<T> = std::result::Result<T, Error>;

/// File of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceNode {
    /// Type and permissions.
    pub mode: u32,
    /// Link count; for a directory, the entries `.` and `..` that refer to it count as well.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of content.
    pub mtime: Timestamp,
    /// Time of the last change of content or attributes.
    pub ctime: Timestamp,
    /// Time of the creation.
    pub btime: Timestamp,
    /// Flags that users set.
    pub flags: InodeFlags,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Arc<Vec<u8>>>,
    /// Content of a regular file.
    pub content: FileContent,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Parent of a directory.
    pub parent: u64,
    /// Entries of a directory.
    pub entries: BTreeMap<Vec<u8>, u64>,
    /// `true` if the file replaced another one, or was truncated to be rewritten. The fourth sentence of the
    /// durability contract is about these files.
    pub replaces: bool,
    /// `true` if the file was made without a name and has never had one.
    pub linkable: bool,
}

impl ReferenceNode {
    /// Makes a new file of `caller`, with one link.
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
            flags: InodeFlags::NONE,
            xattrs: BTreeMap::new(),
            content: FileContent::default(),
            target: Vec::new(),
            parent: 0,
            entries: BTreeMap::new(),
            replaces: false,
            linkable: false,
        }
    }

    /// Returns the type of the file.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).expect("a mode with a kind")
    }

    /// Returns whether the file is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Returns the size that `stat` has to report.
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

    /// Sets the times of the last change of the content.
    pub fn touch(&mut self, caller: &Caller) {
        self.mtime = caller.now;
        self.ctime = caller.now;
    }
}

/// State of the whole filesystem.
#[derive(Clone, Debug)]
pub struct Reference {
    /// All files, by inode number.
    pub nodes: BTreeMap<u64, Arc<ReferenceNode>>,
    /// Number of references to each inode that the caller has not dropped.
    pub references: BTreeMap<u64, u64>,
    /// Label of the volume.
    pub label: Label,
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Reference {
    /// Makes a filesystem with an empty root directory.
    pub fn new() -> Self {
        let mut root =
            ReferenceNode::new(0o040_755, &Caller { uid: 0, gid: 0, now: NOW, umask: None });
        root.links = 2;
        root.parent = ROOT_INO;
        Self {
            nodes: [(ROOT_INO, Arc::new(root))].into(),
            references: BTreeMap::new(),
            label: Label::NONE,
        }
    }

    /// Returns the file `ino`.
    pub fn node(&self, ino: u64) -> Result<&ReferenceNode> {
        self.nodes.get(&ino).map(|node| &**node).ok_or(Error::NotFound)
    }

    /// Returns the file `ino` for a change.
    ///
    /// # Panics
    ///
    /// If the file does not exist.
    pub fn edit(&mut self, ino: u64) -> &mut ReferenceNode {
        Arc::make_mut(self.nodes.get_mut(&ino).expect("the file exists"))
    }

    /// Returns the directory `ino`.
    pub fn directory(&self, ino: u64) -> Result<&ReferenceNode> {
        self.node(ino).and_then(|n| if n.is_directory() { Ok(n) } else { Err(Error::NotDirectory) })
    }

    /// Returns the directory `ino`, which must not be deleted.
    pub fn live_directory(&self, ino: u64) -> Result<&ReferenceNode> {
        self.directory(ino).and_then(|n| if n.links > 0 { Ok(n) } else { Err(Error::NotFound) })
    }

    /// Returns a file that was made without a name and has never had one.
    pub fn unnamed(&self) -> Option<u64> {
        self.nodes.iter().find(|(_, node)| node.linkable).map(|(ino, _)| *ino)
    }

    /// Returns the inode numbers of all files.
    pub fn inos(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// Adds a reference to `ino`.
    pub fn refer(&mut self, ino: u64) {
        *self.references.entry(ino).or_default() += 1;
    }

    /// Drops all references to `ino`, and returns their number.
    pub fn forget(&mut self, ino: u64) -> u64 {
        let count = self.references.remove(&ino).unwrap_or(0);
        self.drop_nameless(ino);
        count
    }

    /// Drops all references to all files, as a remount does.
    pub fn forget_all(&mut self) {
        for ino in self.inos() {
            self.forget(ino);
        }
    }

    /// Deletes the file if it has neither a name nor a reference.
    pub fn drop_nameless(&mut self, ino: u64) {
        let nameless = self.nodes.get(&ino).is_some_and(|node| node.links == 0);
        if nameless && !self.references.contains_key(&ino) {
            self.nodes.remove(&ino);
        }
    }

    /// Allows each file that is empty now to be empty after a crash, because this state may be durable.
    pub fn forget_replaced(&mut self) {
        for node in self.nodes.values_mut().filter(|node| node.replaces && node.size() == 0) {
            Arc::make_mut(node).replaces = false;
        }
    }

    /// Returns the regular file `ino`.
    pub fn regular(&self, ino: u64) -> Result<&ReferenceNode> {
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

    /// Moves the time of the last access of a regular file that was changed since, or last read a day ago. Returns
    /// whether the time has moved.
    pub fn note_access(&mut self, ino: u64, now: Timestamp) -> Result<bool> {
        let node = self.node(ino)?;
        let moves = node.kind() == FileKind::Regular
            && !node.flags.contains(InodeFlags::NO_ATIME)
            && (node.atime <= node.mtime.max(node.ctime) || now.secs - node.atime.secs >= 86_400)
            && node.atime != now;
        if moves {
            self.edit(ino).atime = now;
        }
        Ok(moves)
    }

    /// Preallocates, punches or zeroes a range of a regular file.
    pub fn allocate(
        &mut self,
        ino: u64,
        offset: u64,
        len: u64,
        allocation: &Allocation,
        caller: &Caller,
    ) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= 1 << 44);
        let end = end.ok_or(Error::FileTooLarge)?;
        let node = self.regular(ino)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        // Appending may take space, but nothing of an append-only file is destroyed.
        match allocation.mode {
            AllocateMode::Reserve => node.may_add()?,
            AllocateMode::PunchHole | AllocateMode::ZeroRange => node.may_remove()?,
        }
        let node = self.edit(ino);
        if allocation.kill_privileges {
            node.strip_privileges();
            node.xattrs.remove(CAPABILITY);
        }
        if allocation.mode != AllocateMode::Reserve {
            node.content.punch(offset, end);
        }
        if allocation.mode != AllocateMode::PunchHole {
            node.content.reserve(offset, end);
        }
        let keeps_size = allocation.keep_size || allocation.mode == AllocateMode::PunchHole;
        if !keeps_size && end > node.content.size {
            node.content.truncate(end);
        }
        if !allocation.keep_times {
            node.touch(caller);
        }
        Ok(())
    }

    /// Copies a range of a regular file.
    pub fn copy(
        &mut self,
        from: (u64, u64),
        to: (u64, u64),
        len: u64,
        mode: WriteMode,
        caller: &Caller,
    ) -> Result<()> {
        let source = self.regular(from.0)?;
        let len = len.min(source.content.size.saturating_sub(from.1));
        let bytes = source.content.read(from.1, len as usize);
        self.regular(to.0)?.may_add()?;
        let overlaps = from.0 == to.0 && from.1 < to.1 + len && to.1 < from.1 + len;
        if len > 0 && overlaps {
            return Err(Error::Invalid);
        }
        self.write(to.0, to.1, &bytes, mode, caller)
    }

    /// Changes attributes, and the length of a regular file.
    pub fn set_attributes(
        &mut self,
        ino: u64,
        changes: &AttributeChanges,
        caller: &Caller,
    ) -> Result<()> {
        if changes.size.is_some() {
            self.regular(ino)?;
        }
        file_flags::check_attributes(self.node(ino)?, changes, caller)?;
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
            node.follow_mode();
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
