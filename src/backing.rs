//! What can only be set once a mount answers: the kernel's read-ahead and dirty limits for it.
//!
//! Owns: the files under /sys/class/bdi.
//! Promises: a mount works without; what cannot be set is left as it is.
//! Never: touches another mount's settings.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Read-ahead, in KiB: eight requests of the size that the kernel sends by default.
const READ_AHEAD_KB: &str = "1024";

/// Dirty pages that the kernel keeps for this mount, in bytes: absorbs a burst, and close() still
/// returns within a second or two on a slow card.
const DIRTY_BYTES_MAX: &str = "268435456";

/// Waits until the mount at `dir` answers; gives its device number.
pub(crate) fn wait_for(dir: &Path) -> io::Result<u64> {
    Ok(fs::metadata(dir)?.dev())
}

/// Sets the limits of the mount with device number `dev`. Only root can.
pub(crate) fn configure(dev: u64) {
    let (major, minor) = (nix::sys::stat::major(dev), nix::sys::stat::minor(dev));
    let names = [format!("{major}:{minor}-fuseblk"), format!("{major}:{minor}")];
    let base = Path::new("/sys/class/bdi");
    let Some(dir) = names.iter().map(|name| base.join(name)).find(|dir| dir.exists()) else {
        tracing::debug!("no backing device for {major}:{minor}");
        return;
    };
    set(dir.join("read_ahead_kb"), READ_AHEAD_KB);
    set(dir.join("strict_limit"), "0");
    set(dir.join("max_bytes"), DIRTY_BYTES_MAX);
}

fn set(file: PathBuf, value: &str) {
    if let Err(error) = fs::write(&file, value) {
        tracing::debug!("{}: {error}", file.display());
    }
}
