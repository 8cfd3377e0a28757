//! Condition under which sync(2) and syncfs(2) reach the daemon of a mount.

use crate::kernel_release;

/// First kernel that sends SYNCFS to every mount on a block device. No kernel sends SYNCFS to other mounts:
/// the flag by which a privileged daemon may ask for it has no settled number yet.
const SENT_SINCE: (u32, u32, u32) = (6, 18, 0);

/// Returns whether a kernel of this `release` tells a mount's daemon of sync(2); `false` if the
/// release cannot be parsed.
pub(crate) fn is_sent(is_block_device: bool, release: &str) -> bool {
    is_block_device && kernel_release::parse(release).is_some_and(|version| version >= SENT_SINCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncfs_is_sent_for_block_devices_by_new_kernels() {
        for release in ["6.18.0", "6.18.44-fc-v657", "7.3-rc4"] {
            assert!(is_sent(true, release) && !is_sent(false, release), "{release}");
        }
        for release in ["6.12.43+deb13-amd64", "6.17.9", "", "linux"] {
            assert!(!is_sent(true, release), "{release}");
        }
    }
}
