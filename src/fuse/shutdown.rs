//! The ioctl(2) that stops a volume at once, as ext4, XFS and F2FS have it, for tests of crashes.
//!
//! Afterwards the volume writes no more to the device, not even a last checkpoint, and the next
//! mount finds the same state as after a crash. Dirty data in the kernel's cache is not written
//! back first; a caller that needs the write-back calls syncfs(2).

use nix::unistd::geteuid;
use sfs_fuse::{FuseRequest, IoctlArgs, Reply};

use super::fuse_shell::FuseShell;
use super::privileges;
use super::reply_result::{OperationResult, Refusal, ReplyBytes};
use crate::monitor::SHUTDOWN_FLAG_MAX;

/// Number of the command: `XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`. The number
/// says that the command returns a value, but in fact the command takes one.
pub(super) const SHUTDOWN: u32 = 0x8004_587d;

impl FuseShell {
    pub(super) fn shut_down(
        &self,
        request: &FuseRequest<'_>,
        ioctl: &IoctlArgs<'_>,
    ) -> OperationResult {
        // The caller waits for the reply, so its process number cannot be reused meanwhile.
        if !geteuid().is_root() || !privileges::is_admin(&self.monitor, request.pid) {
            return Err(Refusal::Errno(libc::EPERM));
        }
        // The kernel does not fetch the number for this command.
        let flag = self.monitor.shutdown_flag(request.pid, ioctl.argument);
        let flag = flag.map_err(Refusal::Errno)?;
        if flag < SHUTDOWN_FLAG_MAX && !self.volume.is_read_only() {
            self.volume.sync_all()?;
        }
        if let Some(journal) = &self.journal {
            journal.stop_volume();
        }
        self.volume.shut_down();
        self.log_shutdown(request.pid.cast_signed());
        Ok(Reply::Ioctl(0, ReplyBytes::Value(Vec::new())))
    }
}
