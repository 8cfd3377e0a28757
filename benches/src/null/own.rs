//! The requests of the null filesystem through the transports of sfs-fuse.
//!
//! The functions translate between requests and the store; the replies are those of
//! `filesystem.rs`. No data is copied that `filesystem.rs` does not copy, and no request blocks.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use fuser::{FileAttr, FileType, INodeNo};
use parking_lot::{ArcRwLockReadGuard, RawRwLock};
use rustix::mount::{MountFlags, mount};
use sfs_fuse::{
    AsyncDio, DirectoryListing, Errno, FuseOperation, FuseRequest, FuseSession, InitFlags,
    ListingEntry, NodeAttributes, NodeEntry, OpenReply, OpenReplyFlags, Reply, SessionConfig,
    SetTime, SetattrArgs, Statfs, Time,
};

use super::below::{Below, Lent};
use super::filesystem::{STATFS_BLOCKS, STATFS_FILES, TTL, entries};
use super::store::{NullNode, Store};

const WRITE_MAX: u32 = 1 << 20;

/// A part of a file's content.
pub(super) enum Content {
    /// Bytes of the store, which do not change while the reply is sent.
    Stored(ArcRwLockReadGuard<RawRwLock, Vec<u8>>, Range<usize>),
    /// Bytes read from the device.
    Read(Lent),
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Stored(data, range) => &data[range.clone()],
            Self::Read(lent) => lent.as_ref(),
        }
    }
}

/// Mounts at `dir`, as root, and serves. `mounted` is called between mounting and serving, so it
/// must not wait for a reply.
pub(super) fn serve(
    dir: &Path,
    writeback: bool,
    rings: bool,
    threads: usize,
    below: Option<&Path>,
    mounted: impl FnOnce(),
) -> io::Result<()> {
    let below = below.map(|path| Below::open(path).map(Arc::new)).transpose()?;
    let door = door(dir)?;
    let flags = flags(writeback);
    let config = SessionConfig {
        flags,
        async_dio: AsyncDio::WhereSafe,
        max_write: WRITE_MAX,
        max_background: 64,
        congestion_threshold: 48,
        threads,
        rings,
        ..SessionConfig::default()
    };
    let session = FuseSession::new(door.into(), &config)?;
    if rings {
        session.rings().map_err(|why| io::Error::other(why.to_string()))?;
    }
    let store = Store::new();
    mounted();
    let answer = |request: &FuseRequest<'_>, room: &mut [u8]| match &below {
        Some(below) => match answer_below(&store, below, request, room)? {
            Some(answer) => Ok(answer),
            None => answer(&store, request),
        },
        None => answer(&store, request),
    };
    session.run(answer, |error| eprintln!("nullfs: {error}"))
}

fn door(dir: &Path) -> io::Result<File> {
    let door = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other\0",
        door.as_raw_fd()
    );
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).expect("one NUL, at the end");
    mount("nullfs", dir, "fuse.nullfs", MountFlags::NOATIME, data)?;
    Ok(door)
}

fn flags(writeback: bool) -> InitFlags {
    let mut flags = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::ATOMIC_O_TRUNC
        | InitFlags::CACHE_SYMLINKS;
    flags.set(InitFlags::WRITEBACK_CACHE, writeback);
    flags
}

/// Serves `request` from the device, if it is a request for file content.
fn answer_below(
    store: &Store,
    below: &Arc<Below>,
    request: &FuseRequest<'_>,
    room: &mut [u8],
) -> Result<Option<Reply<Content>>, Errno> {
    let node = || store.node(INodeNo(request.node)).map_err(errno);
    let failed = |error: io::Error| {
        eprintln!("nullfs: {error}");
        Errno::new(rustix::io::Errno::IO.raw_os_error())
    };
    match &request.operation {
        FuseOperation::Read(read) => {
            let left = node()?.attr().size.saturating_sub(read.offset);
            let len = left.min(read.size.into()) as usize;
            if below.read_into(read.offset, len, room).map_err(failed)? {
                return Ok(Some(Reply::InPlace(len)));
            }
            let lent = below.read(read.offset, len).map_err(failed)?;
            Ok(Some(Reply::Data(Content::Read(lent))))
        }
        FuseOperation::Write(write) => {
            below.write(write.offset, write.data).map_err(failed)?;
            let end = write.offset + write.data.len() as u64;
            node()?.change(|attr| attr.size = attr.size.max(end));
            Ok(Some(Reply::Written(write.data.len() as u32)))
        }
        // The size is an attribute only: the store holds no bytes.
        FuseOperation::Setattr(set) => {
            let without = SetattrArgs { size: None, ..*set };
            let node = node()?;
            if let Some(size) = set.size {
                node.change(|attr| attr.size = size);
            }
            Ok(Some(setattr(&node, &without)))
        }
        FuseOperation::Fsync { .. } | FuseOperation::Syncfs => {
            below.flush().map_err(failed)?;
            Ok(Some(Reply::Done))
        }
        _ => Ok(None),
    }
}

fn answer(store: &Store, request: &FuseRequest<'_>) -> Result<Reply<Content>, Errno> {
    let node = || store.node(INodeNo(request.node)).map_err(errno);
    let parent = INodeNo(request.node);
    let make = |name: &[u8], kind: FileType, mode: u32| {
        let owner = (request.uid, request.gid);
        let perm = (mode & 0o7777) as u16;
        store.make(parent, OsStr::from_bytes(name), kind, perm, owner).map_err(errno)
    };
    let opened = |flags| OpenReply { handle: 0, flags };
    match &request.operation {
        FuseOperation::Lookup { name } => {
            Ok(Reply::Entry(match store.lookup(parent, OsStr::from_bytes(name)) {
                Ok(node) => {
                    node.looked_up();
                    entry(&node.attr())
                }
                // A name known to be absent.
                Err(_) => NodeEntry { name_ttl: TTL, ..NodeEntry::default() },
            }))
        }
        FuseOperation::Forget { count } => {
            store.forget(parent, *count);
            Ok(Reply::Done)
        }
        FuseOperation::BatchForget(forgets) => {
            forgets.iter().for_each(|(node, count)| store.forget(INodeNo(node), count));
            Ok(Reply::Done)
        }
        FuseOperation::Getattr { .. } => Ok(Reply::Attributes(attributes(&node()?.attr()), TTL)),
        FuseOperation::Setattr(set) => Ok(setattr(&*node()?, set)),
        FuseOperation::Mkdir { name, mode, .. } => {
            make(name, FileType::Directory, *mode).map(|node| Reply::Entry(entry(&node.attr())))
        }
        FuseOperation::Create(create) => {
            let node = make(create.name, FileType::RegularFile, create.mode)?;
            Ok(Reply::Created(entry(&node.attr()), opened(OpenReplyFlags::KEEP_CACHE)))
        }
        FuseOperation::Unlink { name } | FuseOperation::Rmdir { name } => {
            store.remove(parent, OsStr::from_bytes(name)).map_err(errno).map(|()| Reply::Done)
        }
        FuseOperation::Rename { name, new_parent, new_name, flags: 0 } => {
            let from = (parent, OsStr::from_bytes(name));
            let to = (INodeNo(*new_parent), OsStr::from_bytes(new_name));
            store.rename(from, to).map_err(errno).map(|()| Reply::Done)
        }
        FuseOperation::Open { open_flags, .. } => {
            if open_flags & rustix::fs::OFlags::TRUNC.bits() != 0 {
                node()?.resize(0);
            }
            Ok(Reply::Opened(opened(OpenReplyFlags::KEEP_CACHE)))
        }
        FuseOperation::Read(read) => {
            let data = node()?.data.read_arc();
            let start = (read.offset as usize).min(data.len());
            let end = start.saturating_add(read.size as usize).min(data.len());
            Ok(Reply::Data(Content::Stored(data, start..end)))
        }
        FuseOperation::Write(write) => {
            store.write(parent, write.offset, write.data).map_err(errno)?;
            Ok(Reply::Written(write.data.len() as u32))
        }
        FuseOperation::Readdir(read) | FuseOperation::Readdirplus(read) => {
            let plus = matches!(request.operation, FuseOperation::Readdirplus(_));
            Ok(Reply::Directory(directory(&*node()?, read.offset, read.size, plus)))
        }
        FuseOperation::Statfs => Ok(Reply::Statfs(Statfs {
            blocks: STATFS_BLOCKS,
            blocks_free: STATFS_BLOCKS,
            blocks_available: STATFS_BLOCKS,
            files: STATFS_FILES,
            files_free: STATFS_FILES,
            block_size: 4096,
            name_len_max: 255,
            fragment_size: 4096,
        })),
        FuseOperation::Getxattr { .. } => Err(Errno::new(rustix::io::Errno::NODATA.raw_os_error())),
        FuseOperation::Release(_)
        | FuseOperation::Releasedir(_)
        | FuseOperation::Fsync { .. }
        | FuseOperation::Fsyncdir { .. }
        | FuseOperation::Destroy => Ok(Reply::Done),
        // Opendir, too: after this error the kernel does not send it again.
        _ => Err(Errno::NOT_IMPLEMENTED),
    }
}

fn setattr(node: &NullNode, set: &SetattrArgs) -> Reply<Content> {
    if let Some(size) = set.size {
        node.resize(size);
    }
    let attr = node.change(|attr| {
        attr.perm = set.mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, moment);
        attr.mtime = set.mtime.map_or(attr.mtime, moment);
        attr.ctime = set.ctime.map_or(attr.ctime, |time| moment(SetTime::At(time)));
    });
    Reply::Attributes(attributes(&attr), TTL)
}

fn directory(node: &NullNode, cookie: u64, len_max: u32, plus: bool) -> DirectoryListing {
    let mut directory = DirectoryListing::new(len_max);
    entries(node, cookie, |cookie, child, name| {
        let attr = child.attr();
        let mode = attributes(&attr).mode;
        let listed = ListingEntry { ino: child.ino.0, cookie, mode, name: name.as_bytes() };
        if !plus {
            return !directory.add(&listed);
        }
        // The kernel counts every returned entry except the two dots.
        let file = (cookie > 2).then(|| entry(&attr));
        let full = !directory.add_with(&listed, file.as_ref());
        if !full && cookie > 2 {
            child.looked_up();
        }
        full
    });
    directory
}

fn entry(attr: &FileAttr) -> NodeEntry {
    NodeEntry {
        node: attr.ino.0,
        generation: 0,
        name_ttl: TTL,
        attributes_ttl: TTL,
        attributes: attributes(attr),
    }
}

fn attributes(attr: &FileAttr) -> NodeAttributes {
    let kind = match attr.kind {
        FileType::Directory => 0o040_000,
        _ => 0o100_000,
    };
    NodeAttributes {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        mode: kind | u32::from(attr.perm),
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        block_size: attr.blksize,
    }
}

/// Converts a time; all times here are after 1970.
fn time(time: SystemTime) -> Time {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

fn moment(set: SetTime) -> SystemTime {
    match set {
        SetTime::Now => SystemTime::now(),
        SetTime::At(Time { secs, nanos }) => {
            UNIX_EPOCH + std::time::Duration::new(secs.max(0) as u64, nanos)
        }
    }
}

fn errno(errno: fuser::Errno) -> Errno {
    Errno::new(i32::from(errno))
}
