//! The requests of a trace for a request of the kernel and its reply: one, two for an operation that does two things,
//! and none for what the kernel tells of itself.

use sfs_fuse::{FuseOperation, FuseRequest, Reply};
use sfs_trace::{TraceOperation, TraceRequest};

use super::fuse_shell::FuseShell;
use super::reply_result::{ReplyBytes, ReplyResult};

/// A file that a request is about to take a name from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedFile {
    ino: u64,
    links: u32,
}

/// Files that the names of a request lead to before it is served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilesBefore {
    /// File of the name.
    named: NamedFile,
    /// File that a rename replaces.
    replaced: Option<NamedFile>,
}

impl FuseShell {
    /// Finds the files that the reply does not name: those whose names are removed or changed.
    pub(super) fn files_before(&self, request: &FuseRequest<'_>) -> FilesBefore {
        let find = |parent: u64, name: &[u8]| {
            let found = self.volume.lookup(parent, name).ok()?;
            self.forget([(found.ino, 1)]);
            Some(NamedFile { ino: found.ino, links: found.inode.links })
        };
        let named = |name| find(request.node, name).unwrap_or_default();
        match &request.operation {
            FuseOperation::Unlink { name } | FuseOperation::Rmdir { name } => {
                FilesBefore { named: named(name), replaced: None }
            }
            FuseOperation::Rename { name, new_parent, new_name, flags } => {
                let replaces = flags & libc::RENAME_EXCHANGE == 0;
                let replaced = replaces.then(|| find(*new_parent, new_name)).flatten();
                let named = named(name);
                // A rename to another name of the same file changes nothing.
                FilesBefore { named, replaced: replaced.filter(|file| file.ino != named.ino) }
            }
            _ => FilesBefore::default(),
        }
    }
}

/// Returns the requests for a trace. Time and duration are left to the recorder.
pub(super) fn of(
    request: &FuseRequest<'_>,
    before: FilesBefore,
    result: &ReplyResult,
) -> Vec<TraceRequest> {
    let Some(one) = one(request, before, result) else { return Vec::new() };
    let errno = match result {
        Ok(_) => 0,
        Err(errno) => u16::try_from(errno.code()).unwrap_or(u16::MAX),
    };
    let first = TraceRequest { errno, ..one };
    let second = if errno == 0 { second(request, before) } else { None };
    [first].into_iter().chain(second).collect()
}

/// Returns the second effect of a request that has succeeded.
fn second(request: &FuseRequest<'_>, before: FilesBefore) -> Option<TraceRequest> {
    match &request.operation {
        FuseOperation::Open { open_flags, .. } => {
            let truncates = open_flags.cast_signed() & libc::O_TRUNC != 0;
            truncates.then(|| TraceRequest::new(TraceOperation::Truncate, request.node))
        }
        FuseOperation::Rename { new_parent, new_name, .. } => {
            before.replaced.map(|file| unlinked(file, *new_parent, new_name))
        }
        _ => None,
    }
}

fn unlinked(file: NamedFile, parent: u64, name: &[u8]) -> TraceRequest {
    let len = file.links.saturating_sub(1).into();
    let unlink = TraceRequest::new(TraceOperation::Unlink, file.ino);
    TraceRequest { len, other: parent, name: Some(name.into()), ..unlink }
}

fn one(
    request: &FuseRequest<'_>,
    before: FilesBefore,
    result: &ReplyResult,
) -> Option<TraceRequest> {
    let node = request.node;
    let plain = |operation| TraceRequest::new(operation, node);
    let range = |operation, offset, len| TraceRequest { offset, len, ..plain(operation) };
    let made = |operation, name: &[u8]| TraceRequest {
        inode: entry(result),
        other: node,
        name: Some(name.into()),
        ..plain(operation)
    };
    Some(match &request.operation {
        FuseOperation::Forget { .. }
        | FuseOperation::BatchForget(_)
        | FuseOperation::Interrupt { .. }
        | FuseOperation::Destroy => return None,
        FuseOperation::Read(read) => range(TraceOperation::Read, read.offset, read.size.into()),
        FuseOperation::Write(write) => {
            let len = written(result).unwrap_or(write.data.len() as u64);
            range(TraceOperation::Write, write.offset, len)
        }
        FuseOperation::CopyFileRange(copy) => TraceRequest {
            inode: copy.to_node,
            other: node,
            ..range(TraceOperation::Copy, copy.to_offset, written(result).unwrap_or(copy.len))
        },
        FuseOperation::Fallocate { offset, len, mode, .. } => {
            range(allocation(*mode), *offset, *len)
        }
        FuseOperation::Setattr(changes) => match changes.size {
            Some(size) => range(TraceOperation::Truncate, size, 0),
            None => plain(TraceOperation::Attributes),
        },
        FuseOperation::Fsync { data_only: true, .. } => plain(TraceOperation::Fdatasync),
        FuseOperation::Fsync { .. } | FuseOperation::Fsyncdir { .. } => {
            plain(TraceOperation::Fsync)
        }
        FuseOperation::Syncfs => plain(TraceOperation::Syncfs),
        FuseOperation::Mknod { name, .. } | FuseOperation::Symlink { name, .. } => {
            made(TraceOperation::Create, name)
        }
        FuseOperation::Create(create) | FuseOperation::Tmpfile(create) => {
            made(TraceOperation::Create, create.name)
        }
        FuseOperation::Mkdir { name, .. } => made(TraceOperation::Mkdir, name),
        FuseOperation::Link { target, name } => {
            TraceRequest { inode: *target, ..made(TraceOperation::Link, name) }
        }
        FuseOperation::Unlink { name } => unlinked(before.named, node, name),
        FuseOperation::Rmdir { name } => {
            TraceRequest { inode: before.named.ino, ..made(TraceOperation::Rmdir, name) }
        }
        FuseOperation::Rename { name, new_parent, new_name, .. } => TraceRequest {
            inode: before.named.ino,
            other: *new_parent,
            other_name: Some((*new_name).into()),
            ..made(TraceOperation::Rename, name)
        },
        FuseOperation::Lookup { name } => {
            TraceRequest { inode: node, other: entry(result), ..made(TraceOperation::Lookup, name) }
        }
        FuseOperation::Setxattr { .. } | FuseOperation::Removexattr { .. } => {
            plain(TraceOperation::Setxattr)
        }
        FuseOperation::Getxattr { .. } | FuseOperation::Listxattr { .. } => {
            plain(TraceOperation::Getxattr)
        }
        FuseOperation::Open { .. } | FuseOperation::Opendir { .. } => plain(TraceOperation::Open),
        FuseOperation::Release(_) | FuseOperation::Releasedir(_) => plain(TraceOperation::Release),
        FuseOperation::Getattr { .. } | FuseOperation::Statx { .. } => {
            plain(TraceOperation::Getattr)
        }
        FuseOperation::Readdir(_) | FuseOperation::Readdirplus(_) => plain(TraceOperation::Readdir),
        FuseOperation::Readlink
        | FuseOperation::Statfs
        | FuseOperation::Flush { .. }
        | FuseOperation::Getlk(_)
        | FuseOperation::Setlk(_)
        | FuseOperation::Setlkw(_)
        | FuseOperation::Access { .. }
        | FuseOperation::Bmap { .. }
        | FuseOperation::Ioctl(_)
        | FuseOperation::Poll { .. }
        | FuseOperation::Lseek { .. } => plain(TraceOperation::Other),
    })
}

fn allocation(mode: u32) -> TraceOperation {
    let has = |flag: i32| mode.cast_signed() & flag != 0;
    if has(libc::FALLOC_FL_PUNCH_HOLE) {
        TraceOperation::Punch
    } else if has(libc::FALLOC_FL_ZERO_RANGE) {
        TraceOperation::Zero
    } else {
        TraceOperation::Allocate
    }
}

/// Returns the inode that a reply refers to; 0 if there is none.
fn entry(result: &ReplyResult) -> u64 {
    match result {
        Ok(Reply::Entry(entry) | Reply::Created(entry, _)) => entry.node,
        _ => 0,
    }
}

/// Returns the number of bytes that were written.
fn written(result: &Result<Reply<ReplyBytes>, sfs_fuse::Errno>) -> Option<u64> {
    match result {
        Ok(Reply::Written(len)) => Some((*len).into()),
        Ok(Reply::Copied(len)) => Some(*len),
        _ => None,
    }
}
