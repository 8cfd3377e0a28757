//! The commands of ioctl(2) that SFS has.
//!
//! The kernel passes every command that it does not do itself. It copies the argument to and from the caller only as
//! the number of the command says: in the request `input` has the bytes of a command that takes some, and the reply has the
//! bytes of a command that returns some.

use sfs_fuse::{FuseRequest, IoctlArgs};

use super::fuse_shell::FuseShell;
use super::reply_result::{OperationResult, Refusal};
use super::{inode_flags, shutdown, volume_ioctl};

impl FuseShell {
    /// Performs an ioctl(2). Commands that SFS does not have answer ENOTTY, as of other filesystems.
    pub(super) fn ioctl(
        &self,
        request: &FuseRequest<'_>,
        ioctl: &IoctlArgs<'_>,
    ) -> OperationResult {
        match ioctl.command {
            inode_flags::GET_FLAGS => self.get_flags(request.node),
            inode_flags::SET_FLAGS => self.set_flags(request, ioctl.input),
            inode_flags::GET_XATTR => self.get_extended_flags(request.node),
            inode_flags::SET_XATTR => self.set_extended_flags(request, ioctl.input),
            volume_ioctl::TRIM => self.trim(request, ioctl.input),
            volume_ioctl::GET_LABEL => self.get_label(),
            volume_ioctl::SET_LABEL => self.set_label(request, ioctl.input),
            shutdown::SHUTDOWN => self.shut_down(request, ioctl),
            _ => Err(Refusal::Errno(libc::ENOTTY)),
        }
    }
}

/// Returns whether a command changes the volume. A shutdown need not wait: nothing is written after it.
pub(super) fn is_change(command: u32) -> bool {
    matches!(
        command,
        inode_flags::SET_FLAGS
            | inode_flags::SET_XATTR
            | volume_ioctl::TRIM
            | volume_ioctl::SET_LABEL
    )
}
