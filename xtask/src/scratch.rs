//! A directory for images and mount points, removed at the end.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result};

use crate::cleanup::{Guard, Undo};

/// A directory, removed when dropped.
pub(crate) struct Scratch {
    pub(crate) dir: PathBuf,
    _guard: Guard,
}

impl Scratch {
    /// Makes a directory among the system's temporary files. Other users have to reach the mount
    /// points, and the repository may be in a directory that is closed to them.
    pub(crate) fn new() -> Result<Self> {
        Self::within(&env::temp_dir())
    }

    /// Makes a directory in RAM if there is space for twice `len` bytes, or else as
    /// [`Scratch::new`].
    pub(crate) fn in_ram(len: u64) -> Result<Self> {
        let shm = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(shm).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
        if free / 2 >= len { Self::within(shm) } else { Self::new() }
    }

    /// Returns whether the directory is in RAM.
    pub(crate) fn is_in_ram(&self) -> bool {
        self.dir.starts_with("/dev/shm")
    }

    /// Describes the place of the files in a table.
    pub(crate) fn place(&self) -> &'static str {
        if self.is_in_ram() { "in RAM" } else { "on the disk, for want of RAM" }
    }

    fn within(parent: &Path) -> Result<Self> {
        static NO: AtomicU32 = AtomicU32::new(0);
        let no = NO.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("sfs-xtask-{}-{no}", process::id()));
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        Ok(Self { _guard: Undo::Remove(dir.clone()).later(), dir })
    }

    /// Makes the directory `name` inside this one.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        Ok(dir)
    }
}
