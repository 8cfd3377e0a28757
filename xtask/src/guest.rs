//! Guests: small Debian systems in QEMU, for tests that need a whole machine: boot, shutdown, power cuts.
//!
//! [`DebianTree`] is a tree of files that debootstrap has made, kept under `target/guest`. [`DebianTree::write_disk`]
//! puts it into an image. [`Guest`] starts QEMU with disks, and returns the output of the guest's serial port, by
//! lines. A guest runs `/guest/run` of its *payload* at every boot: a tar archive on a disk of its own, so the tree
//! does not depend on the test. Guests have no network. QEMU emulates the processor, so a boot takes ten
//! seconds or more; `SFS_GUEST_ACCEL=kvm` uses KVM.

mod debian_tree;
mod machine;

pub(crate) use debian_tree::{DebianTree, Suite};
pub(crate) use machine::{Disk, Guest};

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;

/// Puts `script` of `packaging/guest` into the directory `guest` of a guest, to be run at every boot, with what it sources.
pub(crate) fn put_scripts(workspace: &Workspace, script: &str, guest: &Path) -> Result<()> {
    let scripts = workspace.root.join("packaging/guest");
    for (from, to) in [(script, "run"), ("checks.sh", "checks")] {
        let (from, to) = (scripts.join(from), guest.join(to));
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Checks that guests can be built and started here; as root, missing packages are installed.
pub(crate) fn need() -> Result<()> {
    if !crate::machine::is_root() {
        bail!("building a Debian system for a guest needs root");
    }
    for (tool, package) in [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("debootstrap", "debootstrap"),
        ("mke2fs", "e2fsprogs"),
        ("tar", "tar"),
    ] {
        crate::machine::need(tool, package)?;
    }
    Ok(())
}
