//! Decoding: from an opcode and its argument bytes to a [`FuseOperation`].
//!
//! Each opcode states its arguments in their order; bytes that are left over are an error. Modes, flags and offsets
//! are passed on unchecked, for the filesystem to check.

use crate::protocol::abi::{self, opcode};
use crate::protocol::argument_reader::{ArgumentReader, Malformed};
use crate::protocol::fuse_operation::{
    CopyArgs, CreateArgs, Forgets, FuseOperation, IoctlArgs, LockArgs, ReadArgs, ReleaseArgs,
    SetattrArgs, WriteArgs,
};
use crate::protocol::init_features::InitFlags;
use crate::protocol::timestamps::{SetTime, Time};

impl<'a> FuseOperation<'a> {
    pub(crate) fn decode(
        opcode: u32,
        mut arguments: ArgumentReader<'a>,
        agreed: InitFlags,
    ) -> Result<Self, Malformed> {
        let from = &mut arguments;
        let operation = match opcode {
            opcode::LOOKUP
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::CREATE
            | opcode::TMPFILE => Self::decode_name(opcode, from)?,
            opcode::FORGET => Self::Forget { count: from.fixed::<abi::ForgetIn>()?.nlookup },
            opcode::BATCH_FORGET => Self::BatchForget(batch_forget(from)?),
            opcode::GETATTR => Self::Getattr { handle: getattr(from)? },
            opcode::SETATTR => Self::Setattr(setattr(&from.fixed()?)),
            opcode::STATX => statx(&from.fixed()?),
            opcode::READLINK => Self::Readlink,
            opcode::STATFS => Self::Statfs,
            opcode::SYNCFS => from.fixed().map(|abi::SyncfsIn { .. }| Self::Syncfs)?,
            opcode::DESTROY => Self::Destroy,
            opcode::INTERRUPT => {
                Self::Interrupt { unique: from.fixed::<abi::InterruptIn>()?.unique }
            }
            opcode::SETXATTR => setxattr(from, agreed)?,
            opcode::GETXATTR => {
                let size = from.fixed::<abi::GetxattrIn>()?.size;
                Self::Getxattr { name: from.text()?, size }
            }
            opcode::LISTXATTR => Self::Listxattr { size: from.fixed::<abi::GetxattrIn>()?.size },
            opcode::REMOVEXATTR => Self::Removexattr { name: from.text()? },
            opcode::ACCESS => Self::Access { mask: from.fixed::<abi::AccessIn>()?.mask },
            _ => Self::decode_handle(opcode, from)?,
        };
        arguments.end()?;
        Ok(operation)
    }

    /// Decodes operations on names in a directory.
    fn decode_name(opcode: u32, from: &mut ArgumentReader<'a>) -> Result<Self, Malformed> {
        Ok(match opcode {
            opcode::LOOKUP => Self::Lookup { name: from.name()? },
            opcode::SYMLINK => Self::Symlink { name: from.name()?, target: from.text()? },
            opcode::MKNOD => {
                let abi::MknodIn { mode, rdev, umask, .. } = from.fixed()?;
                Self::Mknod { name: from.name()?, mode, rdev, umask }
            }
            opcode::MKDIR => {
                let abi::MkdirIn { mode, umask } = from.fixed()?;
                Self::Mkdir { name: from.name()?, mode, umask }
            }
            opcode::UNLINK => Self::Unlink { name: from.name()? },
            opcode::RMDIR => Self::Rmdir { name: from.name()? },
            opcode::RENAME => {
                let new_parent = from.fixed::<abi::RenameIn>()?.newdir;
                Self::Rename { new_parent, name: from.name()?, new_name: from.name()?, flags: 0 }
            }
            opcode::RENAME2 => {
                let abi::Rename2In { newdir: new_parent, flags, .. } = from.fixed()?;
                Self::Rename { new_parent, name: from.name()?, new_name: from.name()?, flags }
            }
            opcode::LINK => {
                let target = from.fixed::<abi::LinkIn>()?.oldnodeid;
                Self::Link { target, name: from.name()? }
            }
            opcode::CREATE => {
                let fixed = from.fixed()?;
                Self::Create(create(&fixed, from.name()?))
            }
            opcode::TMPFILE => {
                let fixed = from.fixed()?;
                // The kernel sends a placeholder instead of a name.
                from.text()?;
                Self::Tmpfile(create(&fixed, b""))
            }
            other => return Err(Malformed::Opcode(other)),
        })
    }

    /// Decodes operations on open files.
    fn decode_handle(opcode: u32, from: &mut ArgumentReader<'a>) -> Result<Self, Malformed> {
        Ok(match opcode {
            opcode::OPEN => {
                let abi::OpenIn { flags, open_flags } = from.fixed()?;
                let kill_privileges = open_flags & abi::OPEN_KILL_SUIDGID != 0;
                Self::Open { open_flags: flags, kill_privileges }
            }
            opcode::OPENDIR => Self::Opendir { open_flags: from.fixed::<abi::OpenIn>()?.flags },
            opcode::READ => Self::Read(read(&from.fixed()?)),
            opcode::READDIR => Self::Readdir(read(&from.fixed()?)),
            opcode::READDIRPLUS => Self::Readdirplus(read(&from.fixed()?)),
            opcode::WRITE => Self::Write(write(from)?),
            opcode::RELEASE => Self::Release(release(&from.fixed()?)),
            opcode::RELEASEDIR => Self::Releasedir(release(&from.fixed()?)),
            opcode::FSYNC => {
                let (handle, data_only) = fsync(&from.fixed()?);
                Self::Fsync { handle, data_only }
            }
            opcode::FSYNCDIR => {
                let (handle, data_only) = fsync(&from.fixed()?);
                Self::Fsyncdir { handle, data_only }
            }
            opcode::FLUSH => {
                let abi::FlushIn { fh: handle, lock_owner, .. } = from.fixed()?;
                Self::Flush { handle, lock_owner }
            }
            opcode::GETLK => Self::Getlk(lock(&from.fixed()?)),
            opcode::SETLK => Self::Setlk(lock(&from.fixed()?)),
            opcode::SETLKW => Self::Setlkw(lock(&from.fixed()?)),
            opcode::BMAP => {
                let abi::BmapIn { block, blocksize: block_size, .. } = from.fixed()?;
                Self::Bmap { block, block_size }
            }
            opcode::IOCTL => Self::Ioctl(ioctl(from)?),
            opcode::POLL => {
                let abi::PollIn { fh: handle, kh: wakeup, flags, events } = from.fixed()?;
                Self::Poll { handle, events, wakeup, flags }
            }
            opcode::FALLOCATE => {
                let abi::FallocateIn { fh: handle, offset, length: len, mode, .. } =
                    from.fixed()?;
                Self::Fallocate { handle, offset, len, mode }
            }
            opcode::LSEEK => {
                let abi::LseekIn { fh: handle, offset, whence, .. } = from.fixed()?;
                Self::Lseek { handle, offset, whence }
            }
            opcode::COPY_FILE_RANGE => Self::CopyFileRange(copy(&from.fixed()?, false)),
            opcode::COPY_FILE_RANGE_64 => Self::CopyFileRange(copy(&from.fixed()?, true)),
            other => return Err(Malformed::Opcode(other)),
        })
    }
}

fn batch_forget<'a>(from: &mut ArgumentReader<'a>) -> Result<Forgets<'a>, Malformed> {
    let count = from.fixed::<abi::BatchForgetIn>()?.count;
    let len = usize::try_from(count).ok().and_then(|n| n.checked_mul(size_of::<abi::ForgetOne>()));
    from.bytes(len.ok_or(Malformed::Short)?).map(Forgets)
}

fn handle(getattr_flags: u32, fh: u64) -> Option<u64> {
    (getattr_flags & abi::GETATTR_FH != 0).then_some(fh)
}

fn getattr(from: &mut ArgumentReader<'_>) -> Result<Option<u64>, Malformed> {
    let abi::GetattrIn { getattr_flags, fh, .. } = from.fixed()?;
    Ok(handle(getattr_flags, fh))
}

fn statx<'a>(fixed: &abi::StatxIn) -> FuseOperation<'a> {
    let abi::StatxIn { getattr_flags, fh, sx_flags: flags, sx_mask: mask, .. } = *fixed;
    FuseOperation::Statx { handle: handle(getattr_flags, fh), flags, mask }
}

fn setattr(fixed: &abi::SetattrIn) -> SetattrArgs {
    let has = |bit: u32| fixed.valid & bit != 0;
    let time = |given: u32, now: u32, secs: u64, nanos: u32| {
        let at = || SetTime::At(Time::from_wire(secs, nanos));
        has(given).then(|| if has(now) { SetTime::Now } else { at() })
    };
    use abi::fattr as bit;
    SetattrArgs {
        mode: has(bit::MODE).then_some(fixed.mode),
        uid: has(bit::UID).then_some(fixed.uid),
        gid: has(bit::GID).then_some(fixed.gid),
        size: has(bit::SIZE).then_some(fixed.size),
        atime: time(bit::ATIME, bit::ATIME_NOW, fixed.atime, fixed.atimensec),
        mtime: time(bit::MTIME, bit::MTIME_NOW, fixed.mtime, fixed.mtimensec),
        ctime: has(bit::CTIME).then(|| Time::from_wire(fixed.ctime, fixed.ctimensec)),
        handle: has(bit::FH).then_some(fixed.fh),
        kill_privileges: has(bit::KILL_SUIDGID),
    }
}

fn setxattr<'a>(
    from: &mut ArgumentReader<'a>,
    agreed: InitFlags,
) -> Result<FuseOperation<'a>, Malformed> {
    let abi::SetxattrIn { size, flags } = from.fixed()?;
    let clear_sgid = if agreed.contains(InitFlags::SETXATTR_EXT) {
        from.fixed::<abi::SetxattrExt>()?.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0
    } else {
        false
    };
    let name = from.text()?;
    let value = from.bytes(usize::try_from(size).map_err(|_| Malformed::Short)?)?;
    Ok(FuseOperation::Setxattr { name, value, flags, clear_sgid })
}

fn read(fixed: &abi::ReadIn) -> ReadArgs {
    let abi::ReadIn { fh: handle, offset, size, flags: open_flags, .. } = *fixed;
    ReadArgs { handle, offset, size, open_flags }
}

fn write<'a>(from: &mut ArgumentReader<'a>) -> Result<WriteArgs<'a>, Malformed> {
    let abi::WriteIn { fh: handle, offset, size, write_flags, flags: open_flags, .. } =
        from.fixed()?;
    Ok(WriteArgs {
        handle,
        offset,
        data: from.bytes(usize::try_from(size).map_err(|_| Malformed::Short)?)?,
        open_flags,
        from_cache: write_flags & abi::WRITE_CACHE != 0,
        kill_privileges: write_flags & abi::WRITE_KILL_SUIDGID != 0,
    })
}

fn release(fixed: &abi::ReleaseIn) -> ReleaseArgs {
    let abi::ReleaseIn { fh: handle, flags: open_flags, release_flags, lock_owner } = *fixed;
    let unlock_flock = release_flags & abi::RELEASE_FLOCK_UNLOCK != 0;
    ReleaseArgs { handle, open_flags, lock_owner, unlock_flock }
}

/// Returns the handle, and whether only data is to be made durable.
fn fsync(fixed: &abi::FsyncIn) -> (u64, bool) {
    (fixed.fh, fixed.fsync_flags & abi::FSYNC_FDATASYNC != 0)
}

fn create<'a>(fixed: &abi::CreateIn, name: &'a [u8]) -> CreateArgs<'a> {
    let abi::CreateIn { flags, mode, umask, open_flags } = *fixed;
    let kill_privileges = open_flags & abi::OPEN_KILL_SUIDGID != 0;
    CreateArgs { name, mode, umask, open_flags: flags, kill_privileges }
}

fn lock(fixed: &abi::LkIn) -> LockArgs {
    let abi::LkIn { fh: handle, owner, lk, lk_flags, .. } = *fixed;
    let abi::FileLock { start, end, kind, pid } = lk;
    LockArgs { handle, owner, start, end, kind, pid, is_flock: lk_flags & abi::LK_FLOCK != 0 }
}

fn ioctl<'a>(from: &mut ArgumentReader<'a>) -> Result<IoctlArgs<'a>, Malformed> {
    let abi::IoctlIn { fh: handle, flags, cmd: command, arg: argument, in_size, out_size } =
        from.fixed()?;
    let input = from.bytes(usize::try_from(in_size).map_err(|_| Malformed::Short)?)?;
    Ok(IoctlArgs { handle, command, argument, input, output_len_max: out_size, flags })
}

fn copy(fixed: &abi::CopyFileRangeIn, is_wide: bool) -> CopyArgs {
    let abi::CopyFileRangeIn { fh_in, off_in, nodeid_out, fh_out, off_out, len, flags } = *fixed;
    CopyArgs {
        handle: fh_in,
        offset: off_in,
        to_node: nodeid_out,
        to_handle: fh_out,
        to_offset: off_out,
        len,
        flags,
        is_wide,
    }
}
