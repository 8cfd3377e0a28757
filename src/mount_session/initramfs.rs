//! Whether this program runs in an initramfs, whose files are deleted once the root filesystem is mounted.

use std::path::Path;

use sfs_system::mountinfo::{self, MountRecord};

/// File that says so, in an initramfs that was made for systemd.
const MARK: &str = "/etc/initrd-release";

/// Type of the filesystem into which the kernel unpacks an initramfs.
const KIND: &str = "rootfs";

/// Returns whether this program runs in an initramfs, as far as the system tells.
pub(super) fn is_around() -> bool {
    let root = mountinfo::at(Path::new("/")).ok().flatten();
    Path::new(MARK).exists() || root.is_some_and(|root| is_initramfs(&root))
}

fn is_initramfs(root: &MountRecord) -> bool {
    root.kind == KIND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initramfs_is_known_by_its_type() {
        let root = |kind: &str| {
            let line = format!("1 1 0:2 / / rw - {kind} {kind} rw\n");
            let mounts = MountRecord::parse_all(line.as_bytes());
            is_initramfs(mounts.last().expect("a mount"))
        };
        assert!(root("rootfs"));
        assert!(!root("ext4") && !root("tmpfs"), "a container may be in memory");
    }
}
