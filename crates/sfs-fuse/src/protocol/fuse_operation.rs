//! Operations: one variant for each request that a filesystem may get, with its arguments.
//!
//! The names are the kernel's. `handle` is the number that the filesystem gave in its reply to an open;
//! `open_flags` are those of open(2). Requests for DAX and for character devices in user space (CUSE) are missing.

use crate::protocol::abi;
use crate::protocol::argument_reader::ArgumentReader;
use crate::protocol::timestamps::{SetTime, Time};

/// Operation on the inode [`crate::FuseRequest::node`]. For operations on names this inode is the
/// directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the head of this file describes the common arguments")]
pub enum FuseOperation<'a> {
    /// Looks up a name. A reply of [`crate::Reply::Entry`] is a reference to the inode, which the kernel returns by
    /// a `Forget`. The same holds for every request with such a reply.
    Lookup { name: &'a [u8] },
    /// Returns `count` references. There is no reply.
    Forget { count: u64 },
    /// Returns references to several inodes. There is no reply.
    BatchForget(Forgets<'a>),
    /// Reads the attributes, for stat(2).
    Getattr { handle: Option<u64> },
    /// Changes attributes.
    Setattr(SetattrArgs),
    /// Reads a symbolic link.
    Readlink,
    /// Makes a symbolic link.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// Makes a file. The kernel has applied `umask`, unless [`crate::InitFlags::DONT_MASK`] was agreed on.
    Mknod { name: &'a [u8], mode: u32, rdev: u32, umask: u32 },
    /// Makes a directory; `umask` as for `Mknod`.
    Mkdir { name: &'a [u8], mode: u32, umask: u32 },
    /// Removes a name.
    Unlink { name: &'a [u8] },
    /// Removes an empty directory.
    Rmdir { name: &'a [u8] },
    /// Renames a file; `flags` are those of renameat2(2), and unknown flags must be refused.
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    /// Gives the inode `target` a name in this directory.
    Link { target: u64, name: &'a [u8] },
    /// Opens a file. For O_TRUNC with `kill_privileges` see [`SetattrArgs::kill_privileges`].
    Open { open_flags: u32, kill_privileges: bool },
    /// Reads a file.
    Read(ReadArgs),
    /// Writes to a file.
    Write(WriteArgs<'a>),
    /// Reads the figures of statfs(2).
    Statfs,
    /// Closes the last descriptor of a handle. The kernel ignores the error of a reply.
    Release(ReleaseArgs),
    /// Makes a file durable, for fsync(2) or fdatasync(2).
    Fsync { handle: u64, data_only: bool },
    /// Sets an extended attribute; `flags` are those of setxattr(2). With `clear_sgid`, an access list that is set clears
    /// sgid; needs [`crate::InitFlags::SETXATTR_EXT`].
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32, clear_sgid: bool },
    /// Reads an extended attribute: at most `size` bytes, or its length for a `size` of 0.
    Getxattr { name: &'a [u8], size: u32 },
    /// Reads the names of all extended attributes, each with a NUL; `size` as for `Getxattr`.
    Listxattr { size: u32 },
    /// Removes an extended attribute.
    Removexattr { name: &'a [u8] },
    /// Closes a descriptor of a handle.
    Flush { handle: u64, lock_owner: u64 },
    /// Opens a directory.
    Opendir { open_flags: u32 },
    /// Reads the entries of a directory after the entry with the cookie `offset`.
    Readdir(ReadArgs),
    /// Reads entries with attributes. Every entry but "." and ".." is a reference.
    Readdirplus(ReadArgs),
    /// Closes the last descriptor of a directory's handle.
    Releasedir(ReleaseArgs),
    /// Makes a directory durable.
    Fsyncdir { handle: u64, data_only: bool },
    /// Asks whether a lock could be taken.
    Getlk(LockArgs),
    /// Takes or releases a lock.
    Setlk(LockArgs),
    /// Takes a lock, waiting for it.
    Setlkw(LockArgs),
    /// Checks permissions, for access(2); `mask` of R_OK, W_OK and X_OK.
    Access { mask: u32 },
    /// Makes a regular file and opens it; arguments as for `Mknod` and `Open`.
    Create(CreateArgs<'a>),
    /// Reports a signal to the process that waits for the reply to request `unique`. Only an error is sent as a
    /// reply.
    Interrupt { unique: u64 },
    /// Asks for the place of block `block`, of `block_size` bytes, on the device.
    Bmap { block: u64, block_size: u32 },
    /// Announces the unmount, which waits for the reply. The kernel sends this request only for a
    /// mount on a block device.
    Destroy,
    /// Performs an ioctl(2).
    Ioctl(IoctlArgs<'a>),
    /// Asks which of `events` are ready, for poll(2); a notification would name `wakeup`.
    Poll { handle: u64, events: u32, wakeup: u64, flags: u32 },
    /// Performs an fallocate(2) with `mode`.
    Fallocate { handle: u64, offset: u64, len: u64, mode: u32 },
    /// Performs an lseek(2) with SEEK_DATA or SEEK_HOLE.
    Lseek { handle: u64, offset: u64, whence: u32 },
    /// Performs a copy_file_range(2) from this file.
    CopyFileRange(CopyArgs),
    /// Makes all files durable, for syncfs(2). The kernel sends this request only for a mount on a
    /// block device.
    Syncfs,
    /// Makes a regular file without a name, and opens it; `name` is empty.
    Tmpfile(CreateArgs<'a>),
    /// Reads attributes for statx(2) beyond those of `Getattr`; `mask` selects them.
    Statx { handle: Option<u64>, flags: u32, mask: u32 },
}

/// Attributes to change; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetattrArgs {
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// User number of the owner.
    pub uid: Option<u32>,
    /// Group number.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<SetTime>,
    /// Time of the last change of content.
    pub mtime: Option<SetTime>,
    /// Time of the last change of attributes. Only a kernel with a write-back cache sets this time.
    pub ctime: Option<Time>,
    /// Handle of the caller, as for ftruncate(2).
    pub handle: Option<u64>,
    /// `true` if suid, sgid where the group may execute, and capabilities must be cleared. Needs
    /// [`crate::InitFlags::HANDLE_KILLPRIV_V2`].
    pub kill_privileges: bool,
}

/// Arguments of a read from a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadArgs {
    /// Handle; for read-ahead, any handle of the file.
    pub handle: u64,
    /// Offset in bytes, or the cookie of the entry before the first.
    pub offset: u64,
    /// Largest number of bytes to return.
    pub size: u32,
    /// Flags of open(2).
    pub open_flags: u32,
}

/// Arguments of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteArgs<'a> {
    /// Handle; with `from_cache`, any handle of the file.
    pub handle: u64,
    /// Offset in bytes; the kernel has resolved O_APPEND.
    pub offset: u64,
    /// Data. [`crate::FuseSession`] has read it to the beginning of a page.
    pub data: &'a [u8],
    /// Flags of open(2).
    pub open_flags: u32,
    /// `true` if the kernel's cache writes back data of an earlier write.
    pub from_cache: bool,
    /// `true` if privileges must be cleared; see [`SetattrArgs::kill_privileges`].
    pub kill_privileges: bool,
}

/// Arguments of closing a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseArgs {
    /// Handle to close.
    pub handle: u64,
    /// Flags of open(2).
    pub open_flags: u32,
    /// Owner of the locks to release.
    pub lock_owner: u64,
    /// `true` if locks of flock(2) are released as well.
    pub unlock_flock: bool,
}

/// Arguments of making a file and opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateArgs<'a> {
    /// Name of the file.
    pub name: &'a [u8],
    /// Type and permission bits.
    pub mode: u32,
    /// Umask, which the kernel has applied unless [`crate::InitFlags::DONT_MASK`] was agreed on.
    pub umask: u32,
    /// Flags of open(2).
    pub open_flags: u32,
    /// `true` if privileges must be cleared in case the name exists by now; see
    /// [`SetattrArgs::kill_privileges`].
    pub kill_privileges: bool,
}

/// Lock on a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockArgs {
    /// Handle.
    pub handle: u64,
    /// Owner of the lock.
    pub owner: u64,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset of the last byte.
    pub end: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: u32,
    /// Number of the process.
    pub pid: u32,
    /// `true` if the lock is one of flock(2), on the whole file.
    pub is_flock: bool,
}

/// Arguments of an ioctl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlArgs<'a> {
    /// Handle.
    pub handle: u64,
    /// Number of the command.
    pub command: u32,
    /// Argument of the command, a number or an address.
    pub argument: u64,
    /// Bytes that the kernel has copied from that address.
    pub input: &'a [u8],
    /// Largest number of bytes that the reply may return.
    pub output_len_max: u32,
    /// Flags `FUSE_IOCTL_...` of the kernel.
    pub flags: u32,
}

/// Arguments of copying from one file to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyArgs {
    /// Handle of the source.
    pub handle: u64,
    /// Offset in the source, in bytes.
    pub offset: u64,
    /// Inode of the destination.
    pub to_node: u64,
    /// Handle of the destination.
    pub to_handle: u64,
    /// Offset in the destination, in bytes.
    pub to_offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Flags of copy_file_range(2).
    pub flags: u64,
    /// `true` if the reply is [`crate::Reply::Copied`]; otherwise the reply is
    /// [`crate::Reply::Written`].
    pub is_wide: bool,
}

/// Inodes and the number of references to each that the kernel returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgets<'a>(pub(super) &'a [u8]);

impl<'a> Forgets<'a> {
    /// Returns the pairs of inode and count.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut arguments = ArgumentReader::new(self.0);
        let one = move || arguments.fixed::<abi::ForgetOne>().ok();
        std::iter::from_fn(one).map(|one| (one.nodeid, one.nlookup))
    }
}

impl<'a> FuseOperation<'a> {
    /// Returns whether the kernel waits for a reply.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Forget { .. } | Self::BatchForget(_) | Self::Interrupt { .. })
    }
}
