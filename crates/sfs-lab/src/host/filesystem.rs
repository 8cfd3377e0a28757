//! The filesystems that are compared: how each is made, mounted and unmounted.
//!
//! Owns: their names, programs and options; the only place where they differ.
//! Promises: defaults, but for what the name says; and btrfs does not keep data and metadata in
//! regions of their own, as on a small device one would be full before the other.
//! Never: formats anything but the device that it is told.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{program, run};

/// A filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// Ours, with a layout policy and bytes of a segment.
    Sfs {
        /// Data layout.
        policy: String,
        /// Bytes.
        segment_size: u64,
        /// What `sfs-mkfs --layout` is told.
        layout: &'static str,
    },
    /// Without a journal.
    Ext2,
    /// ext4's code with ext3's features.
    Ext3,
    /// As mkfs.ext4 makes it.
    Ext4,
    /// As mkfs.xfs makes it.
    Xfs,
    /// Copy on write.
    Btrfs,
    /// In place.
    BtrfsNodatacow,
}

/// Says why no disk can be exported and no filesystem mounted; `Ok` if they can.
pub fn need_disks() -> Result<()> {
    let door = File::options().read(true).write(true).open("/dev/fuse");
    door.context("/dev/fuse")?;
    File::options()
        .read(true)
        .write(true)
        .open("/dev/loop-control")
        .context("/dev/loop-control")?;
    for name in ["losetup", "mount", "umount"] {
        program(name).with_context(|| format!("{name} is not installed"))?;
    }
    Ok(())
}

impl Filesystem {
    /// What the tables call it.
    pub fn name(&self) -> String {
        match self {
            Self::Sfs { policy, layout: "log", .. } => format!("SFS, {policy}"),
            Self::Sfs { layout, .. } => format!("SFS, {layout}"),
            Self::Ext2 => "ext2".into(),
            Self::Ext3 => "ext3".into(),
            Self::Ext4 => "ext4".into(),
            Self::Xfs => "xfs".into(),
            Self::Btrfs => "btrfs".into(),
            Self::BtrfsNodatacow => "btrfs-nodatacow".into(),
        }
    }

    /// A program that it needs and that is not here.
    pub fn missing(&self) -> Option<&'static str> {
        let needed: &[&str] = match self {
            Self::Sfs { .. } => &["sfs-mkfs", "sfs-mount", "sfs-umount"],
            Self::Ext2 | Self::Ext3 | Self::Ext4 => &["mkfs.ext4"],
            Self::Xfs => &["mkfs.xfs"],
            Self::Btrfs | Self::BtrfsNodatacow => &["mkfs.btrfs"],
        };
        needed.iter().copied().find(|name| program(name).is_none())
    }

    /// Makes an empty one.
    pub fn make(&self, device: &Path) -> Result<()> {
        // Zeroing in the background would go on during the job.
        const EXT: [&str; 4] = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let mut command = match self {
            Self::Sfs { segment_size, layout, .. } => {
                let mut command = tool("sfs-mkfs");
                let size = segment_size.to_string();
                command.args(["--quiet", "--force", "--segment-size", &size]);
                command.args(["--layout", layout]);
                command
            }
            Self::Ext2 => with(tool("mkfs.ext4"), &[&EXT[..], &["-t", "ext2"]].concat()),
            Self::Ext3 => with(tool("mkfs.ext4"), &[&EXT[..], &["-t", "ext3"]].concat()),
            Self::Ext4 => with(tool("mkfs.ext4"), &EXT),
            Self::Xfs => with(tool("mkfs.xfs"), &["-q", "-f"]),
            Self::Btrfs | Self::BtrfsNodatacow => {
                with(tool("mkfs.btrfs"), &["-q", "-f", "--mixed"])
            }
        };
        run(command.arg(device))
    }

    /// Mounts it in a new directory of `folder`.
    pub fn mount(&self, device: &Path, folder: &Path) -> Result<Mounted> {
        self.mount_with(&[], device, folder)
    }

    /// As [`Filesystem::mount`], with more options.
    pub fn mount_with(&self, options: &[&str], device: &Path, folder: &Path) -> Result<Mounted> {
        let dir = folder.join("mount");
        fs::create_dir_all(&dir)?;
        let (kind, own) = match self {
            Self::Sfs { policy, .. } => ("", format!("policy={policy}")),
            Self::Ext2 => ("ext2", "rw".to_owned()),
            Self::Ext3 => ("ext3", "rw".to_owned()),
            Self::Ext4 => ("ext4", "rw".to_owned()),
            Self::Xfs => ("xfs", "rw".to_owned()),
            Self::Btrfs => ("btrfs", "rw".to_owned()),
            Self::BtrfsNodatacow => ("btrfs", "nodatacow".to_owned()),
        };
        let options = [&[own.as_str()], options].concat().join(",");
        let mut command = match kind {
            "" => tool("sfs-mount"),
            kind => with(tool("mount"), &["-t", kind]),
        };
        command.args(["-o", &options]);
        // Not `run`: the daemon that sfs-mount leaves behind may keep a pipe open.
        let status = command.arg(device).arg(&dir).status()?;
        if !status.success() {
            bail!("{} cannot be mounted: {status}", self.name());
        }
        Ok(Mounted { dir, is_ours: matches!(self, Self::Sfs { .. }), is_over: false })
    }
}

fn tool(name: &str) -> Command {
    Command::new(program(name).unwrap_or_else(|| name.into()))
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

/// A mounted filesystem; unmounted with the value.
pub struct Mounted {
    dir: PathBuf,
    is_ours: bool,
    is_over: bool,
}

impl Mounted {
    /// Its root.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts it; everything is on the device afterwards.
    pub fn unmount(mut self) -> Result<()> {
        self.is_over = true;
        self.unmount_once()
    }

    fn unmount_once(&self) -> Result<()> {
        run(tool(if self.is_ours { "sfs-umount" } else { "umount" }).arg(&self.dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.is_over && self.unmount_once().is_err() {
            let _ = run(tool("umount").arg("--lazy").arg(&self.dir));
        }
    }
}
