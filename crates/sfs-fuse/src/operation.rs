//! What a request asks for.
//!
//! Owns: one variant for each operation that a filesystem may be asked for, with its arguments.
//! Promises: every argument that the kernel sends and that means something is there.
//! Never: knows of mounts for DAX, or of character devices in user space.
//!
//! The names are the kernel's. `handle` is the number that the filesystem has answered an open with;
//! `open_flags` are those of open(2).

mod decode;

use crate::abi;
use crate::arguments::Arguments;
use crate::time::{SetTime, Time};

/// What is asked of the inode [`crate::Request::node`], or in it if that is a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the head of this file says what the arguments have in common")]
pub enum Operation<'a> {
    /// Find a name. An answer of [`crate::Answer::Entry`] is a reference to the inode, which the
    /// kernel gives back by a `Forget`; so is one to every other request that answers so.
    Lookup { name: &'a [u8] },
    /// `count` references are not needed any more. There is no answer.
    Forget { count: u64 },
    /// As `Forget`, for many inodes.
    BatchForget(Forgets<'a>),
    /// stat(2).
    Getattr { handle: Option<u64> },
    /// Change attributes.
    Setattr(Setattr),
    /// Read a symbolic link.
    Readlink,
    /// Make a symbolic link.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// Make a file. `umask` is in effect already, unless [`crate::InitFlags::DONT_MASK`] was agreed on.
    Mknod { name: &'a [u8], mode: u32, rdev: u32, umask: u32 },
    /// Make a directory; as for `Mknod`.
    Mkdir { name: &'a [u8], mode: u32, umask: u32 },
    /// Remove a name.
    Unlink { name: &'a [u8] },
    /// Remove an empty directory.
    Rmdir { name: &'a [u8] },
    /// Rename; `flags` are those of renameat2(2), none of which may be ignored.
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    /// Give the inode `target` a name in this directory.
    Link { target: u64, name: &'a [u8] },
    /// Open a file. With `kill_privileges` and O_TRUNC, see [`Setattr::kill_privileges`].
    Open { open_flags: u32, kill_privileges: bool },
    /// Read.
    Read(Read),
    /// Write.
    Write(Write<'a>),
    /// statfs(2).
    Statfs,
    /// The last descriptor of a handle was closed. The answer's error goes nowhere.
    Release(Release),
    /// fsync(2) of a file, or fdatasync(2).
    Fsync { handle: u64, data_only: bool },
    /// Set an extended attribute; `flags` are those of setxattr(2).
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32 },
    /// Read an extended attribute: at most `size` bytes, or for 0 its length.
    Getxattr { name: &'a [u8], size: u32 },
    /// The names of all extended attributes, each with a NUL behind it; as `Getxattr`.
    Listxattr { size: u32 },
    /// Remove an extended attribute.
    Removexattr { name: &'a [u8] },
    /// A descriptor of the handle was closed.
    Flush { handle: u64, lock_owner: u64 },
    /// Open a directory.
    Opendir { open_flags: u32 },
    /// Entries of a directory after the one with the cookie `offset`.
    Readdir(Read),
    /// As `Readdir`, with attributes: every entry but "." and ".." is a reference.
    Readdirplus(Read),
    /// The last descriptor of a directory's handle was closed.
    Releasedir(Release),
    /// fsync(2) of a directory.
    Fsyncdir { handle: u64, data_only: bool },
    /// Whether a lock could be had.
    Getlk(Lock),
    /// Lock or unlock.
    Setlk(Lock),
    /// As `Setlk`, and wait for it.
    Setlkw(Lock),
    /// access(2); `mask` of R_OK, W_OK and X_OK.
    Access { mask: u32 },
    /// Make a regular file and open it; as for `Mknod` and `Open`.
    Create(Create<'a>),
    /// Whoever waits for the answer to the request with this number has got a signal. An error is
    /// the answer; otherwise there is none.
    Interrupt { unique: u64 },
    /// Where block `block`, of `block_size` bytes, is on the device.
    Bmap { block: u64, block_size: u32 },
    /// The filesystem is being unmounted, and waits. Only sent to what is mounted on a block device.
    Destroy,
    /// ioctl(2).
    Ioctl(Ioctl<'a>),
    /// poll(2): which of `events` there are; `wakeup` is what a notification would name.
    Poll { handle: u64, events: u32, wakeup: u64, flags: u32 },
    /// fallocate(2), with its `mode`.
    Fallocate { handle: u64, offset: u64, len: u64, mode: u32 },
    /// lseek(2), only for SEEK_DATA and SEEK_HOLE.
    Lseek { handle: u64, offset: u64, whence: u32 },
    /// copy_file_range(2) from this file.
    CopyFileRange(Copy),
    /// syncfs(2): everything. Only sent to what is mounted on a block device.
    Syncfs,
    /// Make a regular file without a name, and open it; its name is empty.
    Tmpfile(Create<'a>),
    /// statx(2), for those who want to know more than `Getattr` says; `mask` says what.
    Statx { handle: Option<u64>, flags: u32, mask: u32 },
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setattr {
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Last change of attributes. Only said by a kernel whose cache writes back.
    pub ctime: Option<Time>,
    /// The handle through which it is asked, as by ftruncate(2).
    pub handle: Option<u64>,
    /// With [`crate::InitFlags::HANDLE_KILLPRIV_V2`]: suid, sgid where the group may execute, and
    /// capabilities are to go.
    pub kill_privileges: bool,
}

/// Reading a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Through which; for what the kernel reads ahead a guess.
    pub handle: u64,
    /// Where: in bytes, or the cookie of the entry before.
    pub offset: u64,
    /// Bytes, at most.
    pub size: u32,
    /// Of open(2).
    pub open_flags: u32,
}

/// Writing to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Through which; a guess if `from_cache`.
    pub handle: u64,
    /// Where, in bytes; that of O_APPEND is settled already.
    pub offset: u64,
    /// What. [`crate::Session`] has read it to the beginning of a page.
    pub data: &'a [u8],
    /// Of open(2).
    pub open_flags: u32,
    /// The kernel writes back what was written before.
    pub from_cache: bool,
    /// See [`Setattr::kill_privileges`].
    pub kill_privileges: bool,
}

/// A handle that is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Which.
    pub handle: u64,
    /// Of open(2).
    pub open_flags: u32,
    /// Whose locks go with it.
    pub lock_owner: u64,
    /// The locks of flock(2), too.
    pub unlock_flock: bool,
}

/// A new file that will be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Type and permission bits.
    pub mode: u32,
    /// In effect already, unless [`crate::InitFlags::DONT_MASK`] was agreed on.
    pub umask: u32,
    /// Of open(2).
    pub open_flags: u32,
    /// See [`Setattr::kill_privileges`]; the name may have come to exist.
    pub kill_privileges: bool,
}

/// A lock on a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Through which.
    pub handle: u64,
    /// Whose.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: u32,
    /// The process.
    pub pid: u32,
    /// By flock(2), of the whole file.
    pub is_flock: bool,
}

/// ioctl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// Through which.
    pub handle: u64,
    /// The request.
    pub command: u32,
    /// Its argument, a number or an address.
    pub argument: u64,
    /// What the kernel has copied from that address.
    pub input: &'a [u8],
    /// Bytes that the answer may have.
    pub output_len_max: u32,
    /// FUSE_IOCTL_... of the kernel.
    pub flags: u32,
}

/// Copying from one file to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Through which it is read.
    pub handle: u64,
    /// From where, in bytes.
    pub offset: u64,
    /// The inode that is written.
    pub to_node: u64,
    /// Through which.
    pub to_handle: u64,
    /// To where, in bytes.
    pub to_offset: u64,
    /// Bytes.
    pub len: u64,
    /// Of copy_file_range(2).
    pub flags: u64,
    /// The answer is [`crate::Answer::Copied`]; otherwise [`crate::Answer::Written`].
    pub is_wide: bool,
}

/// Inodes and how many references to each are not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgets<'a>(&'a [u8]);

impl<'a> Forgets<'a> {
    /// Inode and count of each.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut arguments = Arguments::new(self.0);
        let one = move || arguments.fixed::<abi::ForgetOne>().ok();
        std::iter::from_fn(one).map(|one| (one.nodeid, one.nlookup))
    }
}

impl<'a> Operation<'a> {
    /// Whether the kernel waits for an answer.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Forget { .. } | Self::BatchForget(_) | Self::Interrupt { .. })
    }
}
