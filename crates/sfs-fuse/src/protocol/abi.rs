//! Structures and numbers of the protocol, as `<linux/fuse.h>` of version 7.45 defines them.
//!
//! Integers have the machine's byte order, and fields have the kernel's names. All padding is named, and the size
//! of every structure is checked at compile time.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version that is known here.
pub(crate) const MINOR: u32 = 45;
/// Oldest minor version whose messages have the structures below: that of Linux 5.4.
pub(crate) const MINOR_MIN: u32 = 31;

/// Opcodes of requests.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BMAP: u32 = 37;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const POLL: u32 = 40;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Bit of `unique` in a request that the kernel sends again. The reply must have it, too.
pub(crate) const RESENT: u64 = 1 << 63;

/// Codes of notifications, in [`OutHeader::error`].
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const PRUNE: i32 = 9;
}

/// Commands of a ring's entry.
pub(crate) mod uring {
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// Bits of [`SetattrIn::valid`].
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bit of [`GetattrIn::getattr_flags`]: `fh` is valid.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// Bit of [`FsyncIn::fsync_flags`]: only data.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// Bit of [`OpenIn::open_flags`] and [`CreateIn::open_flags`].
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// Bit of [`SetxattrExt::setxattr_flags`].
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Bit of [`WriteIn::write_flags`]: the data comes from the page cache, and `fh` is any handle of the file.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// Bit of [`WriteIn::write_flags`].
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Bit of [`LkIn::lk_flags`].
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// Bit of [`ReleaseIn::release_flags`].
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// First minor version whose kernel takes [`notify::PRUNE`].
pub(crate) const PRUNE_MINOR: u32 = 45;
/// Bit of [`NotifyInvalEntryOut::flags`].
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
/// [`ExtHeader::kind`] of supplementary groups.
pub(crate) const EXT_GROUPS: u32 = 32;

/// Declares structures of messages, and checks their sizes.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident: $len:literal { $($field:ident: $kind:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $len);
    )* };
}

wire! {
    /// Header of every request.
    InHeader: 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Header of every reply and notification.
    OutHeader: 16 { len: u32, error: i32, unique: u64 }
    /// Header of each extension of a request.
    ExtHeader: 8 { size: u32, kind: u32 }

    ForgetIn: 8 { nlookup: u64 }
    ForgetOne: 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn: 8 { count: u32, dummy: u32 }
    GetattrIn: 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn: 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn: 8 { mode: u32, umask: u32 }
    RenameIn: 8 { newdir: u64 }
    Rename2In: 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn: 8 { oldnodeid: u64 }
    OpenIn: 8 { flags: u32, open_flags: u32 }
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn: 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn: 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn: 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn: 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    FsyncIn: 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// Short form, if SETXATTR_EXT was not agreed on.
    SetxattrIn: 8 { size: u32, flags: u32 }
    /// Fields after [`SetxattrIn`], if SETXATTR_EXT was agreed on.
    SetxattrExt: 8 { setxattr_flags: u32, padding: u32 }
    GetxattrIn: 8 { size: u32, padding: u32 }
    FileLock: 24 { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn: 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    AccessIn: 8 { mask: u32, padding: u32 }
    /// Fields that kernels before 7.36 send.
    InitIn: 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// Fields after [`InitIn`], if its flags have INIT_EXT.
    InitExt: 48 { flags2: u32, unused: [u32; 11] }
    SyncfsIn: 8 { padding: u64 }
    InterruptIn: 8 { unique: u64 }
    BmapIn: 16 { block: u64, blocksize: u32, padding: u32 }
    IoctlIn: 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    PollIn: 24 { fh: u64, kh: u64, flags: u32, events: u32 }
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn: 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn: 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    StatxIn: 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }

    Attr: 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut: 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    OpenOut: 16 { fh: u64, open_flags: u32, backing_id: i32 }
    WriteOut: 8 { size: u32, padding: u32 }
    StatfsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut: 8 { size: u32, padding: u32 }
    LkOut: 24 { lk: FileLock }
    InitOut: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
        max_background: u16, congestion_threshold: u16, max_write: u32, time_gran: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    BmapOut: 8 { block: u64 }
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    PollOut: 8 { revents: u32, padding: u32 }
    LseekOut: 8 { offset: u64 }
    CopyFileRangeOut: 8 { bytes_copied: u64 }
    SxTime: 16 { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx: 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32,
        mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut: 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
    Dirent: 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    UringHeader: 288 {
        in_out: [u64; 16], op_in: [u64; 16],
        flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64,
    }
    UringCmdReq: 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
    NotifyInvalInodeOut: 24 { ino: u64, off: i64, len: i64 }
    NotifyPruneOut: 16 { count: u32, padding: u32, spare: u64 }
    NotifyInvalEntryOut: 16 { parent: u64, namelen: u32, flags: u32 }
}
