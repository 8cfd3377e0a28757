//! Block devices over image files, by losetup(8).

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    /// Path of the block device.
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches a loop device to `image`; prints the reason and returns `None` if no loop device can be attached.
    pub fn attach(image: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        let reason = match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().into();
                return Some(Self { path });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        eprintln!("skipped: losetup: {reason}");
        None
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}
