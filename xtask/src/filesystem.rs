//! The filesystems that are tested and measured.
//!
//! The commands that make, mount, unmount and check each of them are here, and nowhere else.

use std::path::Path;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::{
    device::TestDevice,
    machine,
    object_store::StoreKind,
    run::Cmd,
    workspace::{Profile, Programs, Workspace},
};

/// A filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FilesystemKind {
    /// SFS.
    Sfs,
    /// The null filesystem of `benches/`, which stores data in RAM.
    Null,
    /// The null filesystem over a device: the cost of FUSE and a device together.
    NullDevice,
    /// The kernel's ext4.
    Ext4,
    /// The kernel's XFS.
    Xfs,
    /// The kernel's btrfs.
    Btrfs,
    /// ext4 through FUSE.
    Fuse2fs,
    /// NTFS through FUSE.
    #[value(name = "ntfs-3g")]
    Ntfs3g,
}

/// A filesystem with its transport and data layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) kind: FilesystemKind,
    /// Transport, if it is not the default.
    transport: Option<&'static str>,
    /// Data layout, if it is not the log.
    data_layout: Option<&'static str>,
    /// Object store that has the volume, if it is not on a device.
    pub(crate) store: Option<StoreKind>,
}

impl From<FilesystemKind> for Subject {
    fn from(kind: FilesystemKind) -> Self {
        Self { kind, transport: None, data_layout: None, store: None }
    }
}

impl Subject {
    /// Returns SFS with the transport `transport`.
    pub(crate) fn over(transport: &'static str) -> Self {
        Self { transport: Some(transport), ..FilesystemKind::Sfs.into() }
    }

    /// Returns SFS with the data layout `data_layout`.
    pub(crate) fn with_layout(data_layout: &'static str) -> Self {
        Self { data_layout: Some(data_layout), ..FilesystemKind::Sfs.into() }
    }

    /// Returns SFS with its volumes in an object store.
    pub(crate) fn in_store(store: StoreKind) -> Self {
        Self { store: Some(store), ..FilesystemKind::Sfs.into() }
    }

    /// Makes the device of a volume of `len` bytes: `on_image` does it with the path of an image, unless the volume is in an object
    /// store.
    pub(crate) fn device(
        &self,
        workspace: &Workspace,
        image: &Path,
        len: u64,
        on_image: impl FnOnce(&Path, u64) -> Result<TestDevice>,
    ) -> Result<TestDevice> {
        match self.store {
            Some(store) => {
                let dir = image.with_file_name("store");
                TestDevice::in_store(store, &workspace.tools(), &dir, len)
            }
            None => on_image(image, len),
        }
    }

    pub(crate) fn name(&self) -> String {
        let over = self.transport.map(|transport| format!(" over {transport}"));
        let placing = self.data_layout.map(|data_layout| format!(", {data_layout}"));
        let within = self.store.map(|store| format!(" in {store}"));
        [Some(self.kind.name().to_owned()), over, placing, within].into_iter().flatten().collect()
    }

    /// Returns the environment variables of a command that replays a run.
    pub(crate) fn environment(&self) -> String {
        let transport = self.transport.map(|transport| format!("SFS_TRANSPORT={transport} "));
        let data_layout = self.data_layout.map(|data_layout| format!("SFS_LAYOUT={data_layout} "));
        [transport, data_layout].into_iter().flatten().collect()
    }

    /// Builds the programs of this workspace that the filesystem needs.
    pub(crate) fn build(&self, workspace: &Workspace, profile: Profile) -> Result<Programs> {
        let mut programs = self.kind.build(workspace, profile)?;
        if let Some(transport) = self.transport {
            programs = programs.over(transport);
        }
        if let Some(data_layout) = self.data_layout {
            programs = programs.with_layout(data_layout);
        }
        Ok(programs)
    }
}

/// Treatment of the device's blocks when a filesystem is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// The blocks are discarded, if the filesystem supports it.
    Discard,
    /// The blocks stay allocated.
    Keep,
}

/// Cache mode of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// The kernel writes dirty pages back later, if the filesystem allows it.
    Writeback,
    /// Write-back as above, without discards. Below a loop device a discard frees memory that the
    /// next write has to allocate again, a cost that flash does not have.
    WritebackKeep,
    /// Every write(2) reaches the filesystem at once, if the filesystem can be configured so.
    Through,
}

impl FilesystemKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sfs => "SFS",
            Self::Null => "null",
            Self::NullDevice => "null on a device",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Fuse2fs => "fuse2fs",
            Self::Ntfs3g => "ntfs-3g",
        }
    }

    /// Checks that everything to make and mount the filesystem is present, or installs it.
    pub(crate) fn need(self) -> Result<()> {
        match self {
            Self::Sfs | Self::Null | Self::NullDevice => machine::need_fuse(),
            Self::Ext4 => {
                machine::need_loop().and_then(|()| machine::need("mkfs.ext4", "e2fsprogs"))
            }
            Self::Xfs => machine::need_loop().and_then(|()| machine::need("mkfs.xfs", "xfsprogs")),
            Self::Btrfs => {
                machine::need_loop().and_then(|()| machine::need("mkfs.btrfs", "btrfs-progs"))
            }
            Self::Fuse2fs => {
                machine::need_fuse()?;
                machine::need("mkfs.ext4", "e2fsprogs")?;
                machine::need("fuse2fs", "fuse2fs")
            }
            Self::Ntfs3g => machine::need_fuse().and_then(|()| machine::need("ntfs-3g", "ntfs-3g")),
        }
    }

    /// Builds the programs of this workspace that the filesystem needs.
    pub(crate) fn build(self, workspace: &Workspace, profile: Profile) -> Result<Programs> {
        match self {
            Self::Sfs => workspace.build(profile, &["sfs", "sfs-mkfs", "sfs-fsck"]),
            Self::Null | Self::NullDevice => workspace.build(profile, &["sfs-bench"]),
            // No program of this workspace is needed, so the directory of the programs is not used.
            Self::Ext4 | Self::Xfs | Self::Btrfs | Self::Fuse2fs | Self::Ntfs3g => {
                workspace.build(profile, &["xtask"])
            }
        }
    }

    /// Makes an empty filesystem on `device`.
    pub(crate) fn make(
        self,
        programs: &Programs,
        device: &TestDevice,
        blocks: Blocks,
    ) -> Result<()> {
        let keep = blocks == Blocks::Keep;
        // Zeroing in the background would be measured with the next row.
        let mut ext4 = "lazy_itable_init=0,lazy_journal_init=0".to_owned();
        if keep {
            ext4 += ",nodiscard";
        }
        let cmd = match self {
            Self::Null | Self::NullDevice => return Ok(()),
            Self::Sfs if device.volume.is_some() => programs.mkfs_cmd().arg("--quiet"),
            Self::Sfs => programs.mkfs_cmd().arg("--force").args(keep.then_some("--keep-blocks")),
            Self::Ext4 | Self::Fuse2fs => {
                Cmd::new(tool("mkfs.ext4")).args(["-q", "-F", "-E", &ext4])
            }
            Self::Xfs => Cmd::new(tool("mkfs.xfs")).args(["-q", "-f"]).args(keep.then_some("-K")),
            Self::Btrfs => {
                Cmd::new(tool("mkfs.btrfs")).args(["-q", "-f"]).args(keep.then_some("-K"))
            }
            Self::Ntfs3g => Cmd::new(tool("mkntfs")).args(["-Q", "-F", "-q"]),
        };
        let cmd = match &device.volume {
            Some(volume) => volume.of_mkfs(cmd),
            None => cmd,
        };
        cmd.arg(&device.path).read().map(drop)
    }

    /// Returns the command that mounts. The command stays in the foreground if [`FilesystemKind::stays`].
    pub(crate) fn mount(
        self,
        programs: &Programs,
        device: &TestDevice,
        dir: &Path,
        cache: Cache,
    ) -> Cmd {
        let cmd = self.mount_device(programs, &device.path, dir, cache);
        match &device.volume {
            Some(volume) => volume.of_mount(cmd),
            None => cmd,
        }
    }

    fn mount_device(self, programs: &Programs, dev: &Path, dir: &Path, cache: Cache) -> Cmd {
        match (self, cache) {
            (Self::Sfs, Cache::Writeback) => programs.mount_cmd("sfs-mount").arg(dev).arg(dir),
            (Self::Sfs, Cache::Through) => {
                programs.mount_cmd("sfs-mount").arg(dev).arg(dir).args(["-o", "nowriteback"])
            }
            (Self::Sfs, Cache::WritebackKeep) => {
                programs.mount_cmd("sfs-mount").arg(dev).arg(dir).args(["-o", "nodiscard"])
            }
            (Self::Null, Cache::Writeback | Cache::WritebackKeep) => {
                programs.mount_cmd("nullfs").arg(dir)
            }
            (Self::Null, Cache::Through) => {
                programs.mount_cmd("nullfs").arg(dir).arg("--no-writeback")
            }
            (Self::NullDevice, _) => programs.mount_cmd("nullfs").arg(dir).arg("--device").arg(dev),
            (Self::Btrfs, Cache::WritebackKeep) => {
                let cmd = Cmd::new("mount").args(["-t", "btrfs", "-o", "nodiscard"]);
                cmd.args(programs.option_arguments()).arg(dev).arg(dir)
            }
            (Self::Ext4 | Self::Xfs | Self::Btrfs, _) => {
                let cmd = Cmd::new("mount").args(["-t", self.name()]);
                cmd.args(programs.option_arguments()).arg(dev).arg(dir)
            }
            (Self::Fuse2fs, _) => Cmd::new(tool("fuse2fs")).arg(dev).arg(dir).args([
                "-f",
                "-o",
                "allow_other,default_permissions",
            ]),
            (Self::Ntfs3g, _) => Cmd::new(tool("ntfs-3g"))
                .arg(dev)
                .arg(dir)
                .args(["-o", "no_detach,permissions,allow_other"]),
        }
    }

    /// Returns whether the mounting command is the daemon, and runs until the unmount.
    pub(crate) fn stays(self) -> bool {
        matches!(self, Self::Null | Self::NullDevice | Self::Fuse2fs | Self::Ntfs3g)
    }

    /// Returns whether the files are still there after an unmount.
    pub(crate) fn is_persistent(self) -> bool {
        !matches!(self, Self::Null | Self::NullDevice)
    }

    /// Returns the name of the daemon that the mounting command starts.
    pub(crate) fn daemon(self) -> Option<&'static str> {
        (self == Self::Sfs).then_some("sfs-mount")
    }

    /// Unmounts as a user would.
    pub(crate) fn unmount(self, programs: &Programs, dir: &Path) -> Result<()> {
        match self {
            Self::Sfs => programs.cmd("sfs-umount").arg(dir).read().map(drop),
            _ => crate::cleanup::unmount_once(dir),
        }
    }

    /// Checks the unmounted volume with its data, and changes nothing. The error contains the
    /// findings.
    pub(crate) fn check(self, programs: &Programs, device: &TestDevice) -> Result<()> {
        let cmd = match self {
            Self::Null | Self::NullDevice => return Ok(()),
            Self::Sfs => programs.cmd("sfs-fsck").args(["-n", "--data"]),
            Self::Ext4 | Self::Fuse2fs => Cmd::new(tool("e2fsck")).args(["-f", "-n"]),
            Self::Xfs => Cmd::new(tool("xfs_repair")).arg("-n"),
            Self::Btrfs => Cmd::new(tool("btrfs")).args(["check", "--readonly"]),
            Self::Ntfs3g => Cmd::new(tool("ntfsfix")).arg("-n"),
        };
        let cmd = match &device.volume {
            Some(volume) => volume.of_check(cmd),
            None => cmd,
        };
        let output = cmd.arg(&device.path).output()?;
        if !output.status.success() {
            let text = [&output.stdout[..], &output.stderr[..]].concat();
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            bail!("the check of {} failed ({}): {text}", self.name(), output.status);
        }
        Ok(())
    }
}

/// Returns the full path of a program: an ordinary user's `PATH` may lack the system's directories.
fn tool(name: &str) -> std::path::PathBuf {
    machine::program(name).unwrap_or_else(|| name.into())
}
