//! The nodes of the null filesystem: inodes, bytes and names.
//!
//! An unlinked node lives until the kernel forgets it. Directory cookies stay valid, and an inode
//! number is never reused.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use fuser::{Errno, FileAttr, FileType, INodeNo};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

/// A file or a directory.
pub(super) struct NullNode {
    pub(super) ino: INodeNo,
    attr: Mutex<FileAttr>,
    pub(super) data: Arc<RwLock<Vec<u8>>>,
    pub(super) names: RwLock<Names>,
    lookups: AtomicU64,
}

/// Entries of a directory, by name and by cookie.
#[derive(Default)]
pub(super) struct Names {
    by_name: FxHashMap<OsString, u64>,
    pub(super) by_cookie: BTreeMap<u64, (OsString, Arc<NullNode>)>,
    last_cookie: u64,
}

/// First cookie of an entry; cookies 1 and 2 are "." and "..".
const COOKIE_FIRST: u64 = 3;

impl Names {
    fn get(&self, name: &OsStr) -> Option<&Arc<NullNode>> {
        self.by_name.get(name).map(|cookie| &self.by_cookie[cookie].1)
    }

    fn insert(&mut self, name: &OsStr, node: Arc<NullNode>) -> Option<Arc<NullNode>> {
        let old = self.remove(name);
        self.last_cookie = (self.last_cookie + 1).max(COOKIE_FIRST);
        self.by_name.insert(name.to_owned(), self.last_cookie);
        self.by_cookie.insert(self.last_cookie, (name.to_owned(), node));
        old
    }

    fn remove(&mut self, name: &OsStr) -> Option<Arc<NullNode>> {
        let cookie = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie).map(|(_, node)| node)
    }
}

impl NullNode {
    fn new(ino: u64, kind: FileType, perm: u16, owner: (u32, u32)) -> Arc<Self> {
        let now = SystemTime::now();
        let attr = FileAttr {
            ino: INodeNo(ino),
            atime: now,
            mtime: now,
            ctime: now,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: owner.0,
            gid: owner.1,
            ..Self::blank()
        };
        Arc::new(Self {
            ino: INodeNo(ino),
            attr: Mutex::new(attr),
            data: Arc::default(),
            names: RwLock::default(),
            lookups: AtomicU64::new(0),
        })
    }

    /// Returns attributes of an empty node.
    pub(super) fn blank() -> FileAttr {
        let epoch = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: INodeNo(0),
            size: 0,
            blocks: 0,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind: FileType::RegularFile,
            perm: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    pub(super) fn attr(&self) -> FileAttr {
        *self.attr.lock()
    }

    /// Changes the attributes and returns them.
    pub(super) fn change(&self, change: impl FnOnce(&mut FileAttr)) -> FileAttr {
        let mut attr = self.attr.lock();
        change(&mut attr);
        attr.blocks = attr.size.div_ceil(512);
        *attr
    }

    pub(super) fn resize(&self, len: u64) {
        self.data.write().resize(len as usize, 0);
        self.change(|attr| attr.size = len);
    }

    fn write(&self, offset: u64, bytes: &[u8], room: impl FnOnce() -> Vec<u8>) {
        let mut data = self.data.write();
        if data.capacity() == 0 {
            *data = room();
        }
        let start = offset as usize;
        let end = start + bytes.len();
        if start == data.len() {
            data.extend_from_slice(bytes);
        } else {
            if end > data.len() {
                data.resize(end, 0);
            }
            data[start..end].copy_from_slice(bytes);
        }
        let len = data.len() as u64;
        self.change(|attr| attr.size = len);
    }

    /// Counts one more entry reply for this node.
    pub(super) fn looked_up(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }
}

/// All nodes by number.
pub(super) struct Store {
    nodes: RwLock<FxHashMap<u64, Arc<NullNode>>>,
    ino_next: AtomicU64,
    /// Memory of deleted files, for reuse. Fresh memory costs a page fault for each page, which
    /// would be charged to FUSE.
    room: Mutex<Vec<Vec<u8>>>,
}

/// Capacity below which memory is not kept for reuse: smaller files grow in place.
const ROOM_MIN: usize = 64 << 10;

impl Store {
    pub(super) fn new() -> Self {
        let root = NullNode::new(INodeNo::ROOT.0, FileType::Directory, 0o755, (0, 0));
        root.looked_up();
        let nodes = FxHashMap::from_iter([(INodeNo::ROOT.0, root)]);
        Self {
            nodes: RwLock::new(nodes),
            ino_next: AtomicU64::new(INodeNo::ROOT.0 + 1),
            room: Mutex::default(),
        }
    }

    pub(super) fn node(&self, ino: INodeNo) -> Result<Arc<NullNode>, Errno> {
        self.nodes.read().get(&ino.0).cloned().ok_or(Errno::ENOENT)
    }

    pub(super) fn write(&self, ino: INodeNo, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let room = || if bytes.len() < ROOM_MIN { Vec::new() } else { self.take_room() };
        self.node(ino)?.write(offset, bytes, room);
        Ok(())
    }

    fn take_room(&self) -> Vec<u8> {
        self.room.lock().pop().unwrap_or_default()
    }

    pub(super) fn lookup(&self, parent: INodeNo, name: &OsStr) -> Result<Arc<NullNode>, Errno> {
        self.node(parent)?.names.read().get(name).cloned().ok_or(Errno::ENOENT)
    }

    pub(super) fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        perm: u16,
        owner: (u32, u32),
    ) -> Result<Arc<NullNode>, Errno> {
        let parent = self.node(parent)?;
        let mut names = parent.names.write();
        if names.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        let ino = self.ino_next.fetch_add(1, Ordering::Relaxed);
        let node = NullNode::new(ino, kind, perm, owner);
        node.looked_up();
        self.nodes.write().insert(ino, node.clone());
        names.insert(name, node.clone());
        Ok(node)
    }

    pub(super) fn remove(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let parent = self.node(parent)?;
        let mut names = parent.names.write();
        let node = names.get(name).ok_or(Errno::ENOENT)?;
        if !node.names.read().by_cookie.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        let node = names.remove(name).ok_or(Errno::ENOENT)?;
        drop(names);
        self.unlinked(&node);
        Ok(())
    }

    pub(super) fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
    ) -> Result<(), Errno> {
        let node = self.node(from.0)?.names.write().remove(from.1).ok_or(Errno::ENOENT)?;
        let old = self.node(to.0)?.names.write().insert(to.1, node);
        if let Some(old) = old {
            self.unlinked(&old);
        }
        Ok(())
    }

    pub(super) fn forget(&self, ino: INodeNo, count: u64) {
        let Ok(node) = self.node(ino) else { return };
        let left = node.lookups.fetch_sub(count, Ordering::Relaxed) - count;
        if left == 0 && node.attr().nlink == 0 {
            self.gone(&node);
        }
    }

    fn unlinked(&self, node: &NullNode) {
        node.change(|attr| attr.nlink = 0);
        if node.lookups.load(Ordering::Relaxed) == 0 {
            self.gone(node);
        }
    }

    fn gone(&self, node: &NullNode) {
        self.nodes.write().remove(&node.ino.0);
        let mut room = mem::take(&mut *node.data.write());
        if room.capacity() >= ROOM_MIN {
            room.clear();
            self.room.lock().push(room);
        }
    }
}
