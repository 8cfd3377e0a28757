//! The requests of the null filesystem through fuser, one call on the store each.
//!
//! The session flags are those of SFS; `docs/SEMANTICS.md` has the reasons. No request blocks.

use std::{
    ffi::OsStr,
    io,
    time::{Duration, SystemTime},
};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use sfs_fuse::AsyncDio;

use super::store::{NullNode, Store};

/// Validity of attributes and names. All changes pass through the kernel, so its cache stays
/// correct.
pub(super) const TTL: Duration = Duration::from_secs(1 << 30);
const GENERATION: Generation = Generation(0);
pub(super) const STATFS_BLOCKS: u64 = 1 << 30;
pub(super) const STATFS_FILES: u64 = 1 << 30;

pub(super) struct NullFs {
    store: Store,
    writeback: bool,
}

impl NullFs {
    pub(super) fn new(writeback: bool) -> Self {
        Self { store: Store::new(), writeback }
    }

    fn made(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let kind = match mode & 0o170_000 {
            0o040_000 => FileType::Directory,
            _ => FileType::RegularFile,
        };
        let perm = (mode & 0o7777) as u16;
        self.store.make(parent, name, kind, perm, (req.uid(), req.gid())).map(|node| node.attr())
    }
}

fn flags(writeback: bool) -> InitFlags {
    let mut flags = InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_ATOMIC_O_TRUNC
        | InitFlags::FUSE_CACHE_SYMLINKS;
    flags.set(InitFlags::FUSE_WRITEBACK_CACHE, writeback);
    flags
}

fn absent() -> FileAttr {
    FileAttr { ino: INodeNo(0), ..NullNode::blank() }
}

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn done(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// Calls `each` with cookie, node and name, from the entry after `cookie`, until `each` returns
/// `true` for "full".
pub(super) fn entries(
    node: &NullNode,
    cookie: u64,
    mut each: impl FnMut(u64, &NullNode, &OsStr) -> bool,
) {
    // ".." may name the directory itself, since the kernel resolves ".." on its own.
    for (own, name) in [(1, "."), (2, "..")] {
        if cookie < own && each(own, node, OsStr::new(name)) {
            return;
        }
    }
    for (next, (name, child)) in node.names.read().by_cookie.range(cookie + 1..) {
        if each(*next, child, name) {
            return;
        }
    }
}

impl Filesystem for NullFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // An older kernel may lack a flag. Each flag is requested separately, so that the others
        // are still set.
        let mut flags = flags(self.writeback);
        let is_asked = AsyncDio::WhereSafe.is_asked_of(config.kernel_abi().1);
        flags.set(InitFlags::FUSE_ASYNC_DIO, is_asked);
        for flag in flags.iter() {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_background(64);
        let _ = config.set_congestion_threshold(48);
        let _ = config.set_time_granularity(Duration::from_nanos(1));
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.store.lookup(parent, name) {
            Ok(node) => {
                node.looked_up();
                reply.entry(&TTL, &node.attr(), GENERATION);
            }
            // Inode 0 means that the name is known to be absent during its time to live.
            Err(_) => reply.entry(&TTL, &absent(), GENERATION),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.store.forget(ino, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.store.node(ino) {
            Ok(node) => reply.attr(&TTL, &node.attr()),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Ok(node) = self.store.node(ino) else { return reply.error(Errno::ENOENT) };
        if let Some(size) = size {
            node.resize(size);
        }
        let attr = node.change(|attr| {
            attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
            attr.uid = uid.unwrap_or(attr.uid);
            attr.gid = gid.unwrap_or(attr.gid);
            attr.atime = atime.map_or(attr.atime, time);
            attr.mtime = mtime.map_or(attr.mtime, time);
            attr.ctime = ctime.unwrap_or(attr.ctime);
        });
        reply.attr(&TTL, &attr);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        match self.made(req, parent, name, 0o040_000 | mode & 0o7777) {
            Ok(attr) => reply.entry(&TTL, &attr, GENERATION),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.store.remove(parent, name));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.store.remove(parent, name));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        done(reply, self.store.rename((parent, name), (newparent, newname)));
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Ok(node) = self.store.node(ino) else { return reply.error(Errno::ENOENT) };
        if flags.0 & rustix::fs::OFlags::TRUNC.bits() as i32 != 0 {
            node.resize(0);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.made(req, parent, name, mode) {
            Ok(attr) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&TTL, &attr, GENERATION, FileHandle(0), flags);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Ok(node) = self.store.node(ino) else { return reply.error(Errno::ENOENT) };
        let data = node.data.read();
        let start = (offset as usize).min(data.len());
        let end = start.saturating_add(size as usize).min(data.len());
        reply.data(&data[start..end]);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.store.write(ino, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // The kernel sends one request: after ENOSYS it omits flush from every close.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    // After ENOSYS the kernel does not send opendir again.
    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Ok(node) = self.store.node(ino) else { return reply.error(Errno::ENOENT) };
        entries(&node, offset, |cookie, child, name| {
            reply.add(child.ino, cookie, child.attr().kind, name)
        });
        reply.ok();
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Ok(node) = self.store.node(ino) else { return reply.error(Errno::ENOENT) };
        entries(&node, offset, |cookie, child, name| {
            let full = reply.add(child.ino, cookie, name, &TTL, &child.attr(), GENERATION);
            // The kernel counts every returned entry except the two dots.
            if !full && cookie > 2 {
                child.looked_up();
            }
            full
        });
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (blocks, files) = (STATFS_BLOCKS, STATFS_FILES);
        reply.statfs(blocks, blocks, blocks, files, files, 4096, 255, 4096);
    }

    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::NO_XATTR);
    }
}
