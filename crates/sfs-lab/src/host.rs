//! Real filesystems on a model: the kernel's and SFS, each mounted on `sfs-lab ssd`.
//!
//! Owns: the disk's process, making and mounting, the jobs that are run there.
//! Promises: what was mounted and attached is gone when its value is dropped, also after an error;
//! what is not installed is said by name.
//! Never: counts: the record of the disk's requests does, replayed on models.

mod disk;
mod filesystem;
mod jobs;
mod overwriting;
mod postmark;

pub use disk::{Disk, DiskRequest};
pub use filesystem::{Filesystem, Mounted, need_disks};
pub use jobs::Job;
pub use overwriting::{Phases, Utilization, overwrite};
pub use postmark::Postmark;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Folders that a user's `PATH` may lack.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A program: one of ours that lies beside this one, or one that is installed.
pub fn program(name: &str) -> Option<PathBuf> {
    let ours = std::env::current_exe().ok()?.parent()?.join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    let installed = folders.map(|folder| folder.join(name));
    std::iter::once(ours).chain(installed).find(|path| path.is_file())
}

/// Runs a command that has nothing to say unless it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| shown.clone())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}: {}", output.status, said.trim().lines().last().unwrap_or_default());
    }
    Ok(())
}
