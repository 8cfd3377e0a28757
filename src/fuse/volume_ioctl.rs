//! The commands of ioctl(2) for the whole volume: discarding free space, and the label.

use std::time::{Duration, Instant};

use sfs_core::format::Label;
use sfs_core::request::TrimRange;
use sfs_fuse::FuseRequest;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::fuse_shell::FuseShell;
use super::privileges;
use super::reply_result::{OperationResult, Refusal, returned};

/// `FITRIM`, `_IOWR('X', 121, struct fstrim_range)`.
pub(super) const TRIM: u32 = 0xc018_5879;
/// `FS_IOC_GETFSLABEL`, `_IOR(0x94, 49, char[256])`.
pub(super) const GET_LABEL: u32 = 0x8100_9431;
/// `FS_IOC_SETFSLABEL`, `_IOW(0x94, 50, char[256])`.
pub(super) const SET_LABEL: u32 = 0x4100_9432;

/// Bytes of a label in the kernel's form, its NUL included.
const LABEL_ROOM: usize = 256;

/// Longest pause between two steps of a trim. A step may have waited long for the log.
const TRIM_PAUSE_MAX: Duration = Duration::from_millis(100);

/// `struct fstrim_range` of `<linux/fs.h>`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FsTrimRange {
    start: u64,
    len: u64,
    minlen: u64,
}

impl FuseShell {
    /// Discards the free space in a range of the device, and returns the number of bytes in place of the length. After each
    /// step the trim pauses for the time that the step took, so that the device serves others at least half of the time.
    pub(super) fn trim(&self, request: &FuseRequest<'_>, input: &[u8]) -> OperationResult {
        self.check_change(request)?;
        let (mut range, _) =
            FsTrimRange::read_from_prefix(input).map_err(|_| Refusal::Errno(libc::EINVAL))?;
        let block_count = self.volume.layout().block_count;
        let block = sfs_device::BLOCK_SIZE as u64;
        if range.start >= block_count * block || range.len < block {
            return Err(Refusal::Errno(libc::EINVAL));
        }
        let Some(_alone) = self.trimming.try_lock() else {
            return Err(Refusal::Errno(libc::EBUSY));
        };
        let asked = TrimRange { start: range.start, len: range.len, least: range.minlen };
        let mut trim = self.volume.begin_trim(&asked)?;
        range.len = 0;
        let mut begun = Instant::now();
        while let Some(bytes) = self.volume.trim_step(&mut trim)? {
            range.len += bytes;
            std::thread::sleep(begun.elapsed().min(TRIM_PAUSE_MAX));
            begun = Instant::now();
        }
        returned(range.as_bytes().to_vec())
    }

    /// Returns the label of the volume.
    pub(super) fn get_label(&self) -> OperationResult {
        let mut bytes = self.volume.label().as_str().as_bytes().to_vec();
        bytes.resize(LABEL_ROOM, 0);
        returned(bytes)
    }

    /// Sets the label of the volume, durably.
    pub(super) fn set_label(&self, request: &FuseRequest<'_>, input: &[u8]) -> OperationResult {
        self.check_change(request)?;
        let end = input.iter().position(|byte| *byte == 0);
        let text = end.and_then(|end| str::from_utf8(&input[..end]).ok());
        let label = text.and_then(Label::new).ok_or(Refusal::Errno(libc::EINVAL))?;
        self.volume.set_label(label)?;
        returned(Vec::new())
    }

    /// Checks that the caller is an administrator, and that the mount does not rest: nothing is written then, and the
    /// kernel does not refuse these commands by itself.
    fn check_change(&self, request: &FuseRequest<'_>) -> Result<(), Refusal> {
        if !privileges::is_admin(&self.monitor, request.pid) {
            return Err(Refusal::Errno(libc::EPERM));
        }
        if self.waker.is_resting() { Err(Refusal::Errno(libc::EROFS)) } else { Ok(()) }
    }
}
