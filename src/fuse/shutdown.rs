//! The ioctl(2) that stops a volume at once, as ext4, XFS and F2FS have it, for tests of crashes.
//!
//! Afterwards the volume writes no more to the device, not even a last checkpoint, and the next
//! mount finds the same state as after a crash. Dirty data in the kernel's cache is not written
//! back first; a caller that needs the write-back calls syncfs(2).

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, geteuid};
use sfs_fuse::{FuseRequest, IoctlArgs, Reply};
use zerocopy::IntoBytes;

use super::fuse_shell::FuseShell;
use super::privileges;
use super::reply_result::{OperationResult, Refusal, ReplyBytes};

/// Number of the command: `XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`. The number
/// says that the command returns a value, but in fact the command takes one.
pub(super) const SHUTDOWN: u32 = 0x8004_587d;

/// Highest flag: data that is not durable is lost. The flags 0 and 1 make everything durable first.
const NO_LOG_FLUSH: u32 = 2;

impl FuseShell {
    pub(super) fn shut_down(
        &self,
        request: &FuseRequest<'_>,
        ioctl: &IoctlArgs<'_>,
    ) -> OperationResult {
        // The caller waits for the reply, so its process number cannot be reused meanwhile.
        let pid = Pid::from_raw(request.pid.cast_signed());
        if !geteuid().is_root() || !privileges::is_admin(request.pid) {
            return Err(Refusal::Errno(libc::EPERM));
        }
        let flags = argument(pid, ioctl.argument)?;
        if flags > NO_LOG_FLUSH {
            return Err(Refusal::Errno(libc::EINVAL));
        }
        if flags < NO_LOG_FLUSH && !self.volume.is_read_only() {
            self.volume.sync_all()?;
        }
        self.volume.shut_down();
        self.log_shutdown(pid.as_raw());
        Ok(Reply::Ioctl(0, ReplyBytes::Value(Vec::new())))
    }
}

/// Reads the number at `address` of a process, which the kernel does not fetch for this command.
fn argument(pid: Pid, address: u64) -> Result<u32, Refusal> {
    let mut number = 0u32;
    let base = usize::try_from(address).map_err(|_| Refusal::Errno(libc::EFAULT))?;
    let from = [RemoteIoVec { base, len: size_of_val(&number) }];
    match process_vm_readv(pid, &mut [IoSliceMut::new(number.as_mut_bytes())], &from) {
        Ok(len) if len == size_of_val(&number) => Ok(number),
        Ok(_) => Err(Refusal::Errno(libc::EFAULT)),
        Err(error) => Err(Refusal::Errno(error as i32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_from_the_caller() {
        let (own, number) = (Pid::this(), 0xdead_beefu32);
        let address = &raw const number as u64;
        assert!(matches!(argument(own, address), Ok(0xdead_beef)));
        assert!(matches!(argument(own, 8), Err(Refusal::Errno(libc::EFAULT))));
    }
}
