//! Flags of files, as chattr(1) and lsattr(1) set and show them, in the two forms of the kernel.
//!
//! Since Linux 5.13 the kernel serves these commands itself, asks for the flags by two private requests, and has
//! checked before a change that the caller owns the file, or has CAP_LINUX_IMMUTABLE for "immutable" and
//! "append-only". Older kernels pass the command of any caller, so a change is refused there. The capability is checked here,
//! too, by the effective capabilities of the calling thread.

use sfs_core::format::InodeFlags;
use sfs_fuse::{FuseRequest, IoctlArgs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::fuse_shell::{FuseShell, caller};
use super::privileges;
use super::reply_result::{OperationResult, Refusal, returned};
use crate::kernel_release;

/// `FS_IOC_GETFLAGS`, `_IOR('f', 1, long)`; the argument is an int all the same.
pub(super) const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`, `_IOW('f', 2, long)`.
pub(super) const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`, `_IOR('X', 31, struct fsxattr)`.
pub(super) const GET_XATTR: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`, `_IOW('X', 32, struct fsxattr)`.
pub(super) const SET_XATTR: u32 = 0x401c_5820;

/// First kernel that checks the caller of a change.
const CHECKED_SINCE: (u32, u32, u32) = (5, 13, 0);

/// `FS_XFLAG_HASATTR`, which can only be read.
const HAS_XATTRS: u32 = 1 << 31;

/// Each flag, its bit of `FS_IOC_GETFLAGS` (`FS_IMMUTABLE_FL` ...), and of `FS_IOC_FSGETXATTR` (`FS_XFLAG_IMMUTABLE` ...).
const BITS: [(InodeFlags, u32, u32); 4] = [
    (InodeFlags::IMMUTABLE, 0x10, 0x08),
    (InodeFlags::APPEND_ONLY, 0x20, 0x10),
    (InodeFlags::NO_DUMP, 0x40, 0x80),
    (InodeFlags::NO_ATIME, 0x80, 0x40),
];

/// `struct fsxattr` of `<linux/fs.h>`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extent_count: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

impl FuseShell {
    /// Returns the flags of file `ino` in the form of `FS_IOC_GETFLAGS`.
    pub(super) fn get_flags(&self, ino: u64) -> OperationResult {
        let flags = self.volume.attributes(ino)?.flags;
        let bits = BITS.iter().filter(|(flag, ..)| flags.contains(*flag)).map(|(_, bit, _)| bit);
        returned(bits.sum::<u32>().as_bytes().to_vec())
    }

    /// Returns the flags of file `ino` in the form of `FS_IOC_FSGETXATTR`.
    pub(super) fn get_extended_flags(&self, ino: u64) -> OperationResult {
        let flags = self.volume.attributes(ino)?.flags;
        let bits = BITS.iter().filter(|(flag, ..)| flags.contains(*flag)).map(|(.., bit)| bit);
        let xattrs = if flags.contains(InodeFlags::XATTRS) { HAS_XATTRS } else { 0 };
        let shown = FsXattr { flags: bits.sum::<u32>() | xattrs, ..FsXattr::default() };
        returned(shown.as_bytes().to_vec())
    }

    /// Sets the flags of a file from the form of `FS_IOC_SETFLAGS`.
    pub(super) fn set_flags(&self, request: &FuseRequest<'_>, input: &[u8]) -> OperationResult {
        self.change_flags(request, classic_flags(input)?)
    }

    /// Sets the flags of a file from the form of `FS_IOC_FSSETXATTR`. SFS has none of the other fields.
    pub(super) fn set_extended_flags(
        &self,
        request: &FuseRequest<'_>,
        input: &[u8],
    ) -> OperationResult {
        self.change_flags(request, extended_flags(input)?)
    }

    /// Returns whether a command that sets flags would change some: not if it is refused, or the file has them already.
    pub(super) fn would_change_flags(
        &self,
        request: &FuseRequest<'_>,
        ioctl: &IoctlArgs<'_>,
    ) -> Result<bool, Refusal> {
        let flags = match ioctl.command {
            SET_FLAGS => classic_flags(ioctl.input)?,
            _ => extended_flags(ioctl.input)?,
        };
        let before = self.check_flags(request, flags)?;
        Ok(before.intersection(InodeFlags::OF_USERS) != flags)
    }

    fn change_flags(&self, request: &FuseRequest<'_>, flags: InodeFlags) -> OperationResult {
        self.check_flags(request, flags)?;
        let ino = request.node;
        self.volume.set_flags(ino, flags, &caller(request))?;
        self.names_changed(ino)?;
        self.attributes_changed(ino);
        returned(Vec::new())
    }

    /// Returns the flags that the file of `request` has, if the caller may set `flags` instead.
    fn check_flags(
        &self,
        request: &FuseRequest<'_>,
        flags: InodeFlags,
    ) -> Result<InodeFlags, Refusal> {
        let is_checked = kernel_release::parse(&kernel_release::running())
            .is_some_and(|release| release >= CHECKED_SINCE);
        if !is_checked {
            return Err(Refusal::Errno(libc::EOPNOTSUPP));
        }
        let privileged = InodeFlags::IMMUTABLE | InodeFlags::APPEND_ONLY;
        let before = self.volume.attributes(request.node)?.flags;
        if before.intersection(privileged) != flags.intersection(privileged)
            && !privileges::may_make_immutable(&self.monitor, request.pid)
        {
            return Err(Refusal::Errno(libc::EPERM));
        }
        Ok(before)
    }
}

/// Returns the flags in the form of `FS_IOC_SETFLAGS`.
fn classic_flags(input: &[u8]) -> Result<InodeFlags, Refusal> {
    let (bits, _) = u32::read_from_prefix(input).map_err(|_| Refusal::Errno(libc::EINVAL))?;
    flags_of(bits, |(_, bit, _)| bit)
}

/// Returns the flags in the form of `FS_IOC_FSSETXATTR`.
fn extended_flags(input: &[u8]) -> Result<InodeFlags, Refusal> {
    let (given, _) = FsXattr::read_from_prefix(input).map_err(|_| Refusal::Errno(libc::EINVAL))?;
    if (given.extent_size, given.project, given.copy_extent_size) != (0, 0, 0) {
        return Err(Refusal::Errno(libc::EOPNOTSUPP));
    }
    flags_of(given.flags & !HAS_XATTRS, |(.., bit)| bit)
}

/// Returns the flags with the given `bits`, by the bit that `bit` takes from a row of [`BITS`].
fn flags_of(bits: u32, bit: impl Fn((InodeFlags, u32, u32)) -> u32) -> Result<InodeFlags, Refusal> {
    let set = BITS.into_iter().filter(|row| bits & bit(*row) != 0);
    let (flags, known) =
        set.fold((InodeFlags::NONE, 0), |(flags, known), row| (flags | row.0, known | bit(row)));
    if known == bits { Ok(flags) } else { Err(Refusal::Errno(libc::EOPNOTSUPP)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_flags() {
        let classic = |bits| flags_of(bits, |(_, bit, _)| bit).ok();
        let extended = |bits| flags_of(bits, |(.., bit)| bit).ok();
        assert_eq!(classic(0xf0), Some(InodeFlags::OF_USERS));
        assert_eq!(extended(0xd8), Some(InodeFlags::OF_USERS));
        assert_eq!(classic(0x40), extended(0x80), "no dump");
        assert_eq!(classic(0x80), extended(0x40), "no atime");
        assert_eq!((classic(0x1), extended(0x1)), (None, None), "other flags are refused");
        assert_eq!(size_of::<FsXattr>(), 28);
    }
}
