//! The filesystems that are compared: their names, programs and options.
//!
//! All options are defaults, except the options that a name implies. btrfs mixes data and metadata,
//! because on a small device one of two separate regions would be full before the other. Only mixed btrfs has
//! no choice of the size of its nodes, so another name has them separate.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use sfs_mkfs::{Human, output};

use super::command::{program, run};

/// Time during which a busy filesystem is unmounted again and again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// SFS.
    Sfs {
        /// Grouping policy, as in `-o policy=`.
        policy: String,
        /// Victim policy, as in `-o victim=`; by default that of the grouping policy.
        victims: Option<&'static str>,
        /// Size of a segment, in bytes.
        segment_size: u64,
        /// Data layout, as in `sfs-mkfs --layout`.
        layout: &'static str,
    },
    /// SFS with an SSD before its hard drive.
    SfsWithCache {
        /// Block device of the SSD, all of which is the cache.
        ssd: PathBuf,
    },
    /// ext2, without a journal.
    Ext2,
    /// ext3, which is ext4's code with ext3's features.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs with copy on write.
    Btrfs,
    /// btrfs in place, mounted with `nodatacow`.
    BtrfsNodatacow,
    /// btrfs with separate data and metadata, one copy of each.
    BtrfsSeparate {
        /// Size of a node of its trees, in bytes.
        node_size: u32,
    },
}

/// Returns an error if this machine cannot export a disk or mount a filesystem on it.
pub fn need_disks() -> Result<()> {
    File::options().read(true).write(true).open("/dev/fuse").context("/dev/fuse")?;
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
    /// Returns the name in tables.
    pub fn name(&self) -> String {
        match self {
            Self::Sfs { policy, victims: Some("cost-benefit"), .. } if policy == "none" => {
                "LFS-CB".into()
            }
            Self::Sfs { policy, layout: "log", .. } => format!("SFS, {policy}"),
            Self::Sfs { layout, .. } => format!("SFS, {layout}"),
            Self::SfsWithCache { .. } => "SFS with a cache".into(),
            Self::Ext2 => "ext2".into(),
            Self::Ext3 => "ext3".into(),
            Self::Ext4 => "ext4".into(),
            Self::Xfs => "xfs".into(),
            Self::Btrfs => "btrfs".into(),
            Self::BtrfsNodatacow => "btrfs-nodatacow".into(),
            Self::BtrfsSeparate { node_size } => {
                format!("btrfs, nodes of {}", Human(u64::from(*node_size)))
            }
        }
    }

    /// Returns a program that the filesystem needs and that is not installed.
    pub fn missing(&self) -> Option<&'static str> {
        let needed: &[&str] = match self {
            Self::Sfs { .. } | Self::SfsWithCache { .. } => {
                &["sfs-mkfs", "sfs-mount", "sfs-umount", "sfs-ctl"]
            }
            Self::Ext2 | Self::Ext3 | Self::Ext4 => &["mkfs.ext4"],
            Self::Xfs => &["mkfs.xfs"],
            Self::Btrfs | Self::BtrfsNodatacow | Self::BtrfsSeparate { .. } => &["mkfs.btrfs"],
        };
        needed.iter().copied().find(|name| program(name).is_none())
    }

    /// Makes an empty filesystem on `device`.
    pub fn make(&self, device: &Path) -> Result<()> {
        // ext4 would otherwise zero tables in the background during the job.
        const EXT: [&str; 4] = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let mut command = match self {
            Self::Sfs { segment_size, layout, .. } => {
                let mut command = tool("sfs-mkfs");
                let size = segment_size.to_string();
                command.args(["--quiet", "--force", "--segment-size", &size]);
                command.args(["--layout", layout]);
                command
            }
            Self::SfsWithCache { ssd } => {
                let mut command = tool("sfs-mkfs");
                command.args(["--quiet", "--force", "--cache"]).arg(ssd);
                command
            }
            Self::Ext2 => with(tool("mkfs.ext4"), &[&EXT[..], &["-t", "ext2"]].concat()),
            Self::Ext3 => with(tool("mkfs.ext4"), &[&EXT[..], &["-t", "ext3"]].concat()),
            Self::Ext4 => with(tool("mkfs.ext4"), &EXT),
            Self::Xfs => with(tool("mkfs.xfs"), &["-q", "-f"]),
            Self::Btrfs | Self::BtrfsNodatacow => {
                with(tool("mkfs.btrfs"), &["-q", "-f", "--mixed"])
            }
            Self::BtrfsSeparate { node_size } => {
                let node_size = node_size.to_string();
                let sizes = ["--nodesize", &node_size];
                let profiles = ["-q", "-f", "--data", "single", "--metadata", "single"];
                with(tool("mkfs.btrfs"), &[&profiles[..], &sizes].concat())
            }
        };
        run(command.arg(device))
    }

    /// Mounts the filesystem in the directory `mount` of `folder`.
    pub fn mount(&self, device: &Path, folder: &Path) -> Result<MountedFilesystem> {
        self.mount_with(&[], device, folder)
    }

    /// Mounts the filesystem as [`Filesystem::mount`] does, with more options.
    pub fn mount_with(
        &self,
        options: &[&str],
        device: &Path,
        folder: &Path,
    ) -> Result<MountedFilesystem> {
        let dir = folder.join("mount");
        fs::create_dir_all(&dir)?;
        let (kind, own) = match self {
            Self::Sfs { policy, victims: None, .. } => ("", format!("policy={policy}")),
            Self::Sfs { policy, victims: Some(victims), .. } => {
                ("", format!("policy={policy},victim={victims}"))
            }
            Self::SfsWithCache { ssd } => ("", format!("cache_dev={}", ssd.display())),
            Self::Ext2 => ("ext2", "rw".to_owned()),
            Self::Ext3 => ("ext3", "rw".to_owned()),
            Self::Ext4 => ("ext4", "rw".to_owned()),
            Self::Xfs => ("xfs", "rw".to_owned()),
            Self::Btrfs | Self::BtrfsSeparate { .. } => ("btrfs", "rw".to_owned()),
            Self::BtrfsNodatacow => ("btrfs", "nodatacow".to_owned()),
        };
        let options = [&[own.as_str()], options].concat().join(",");
        let mut command = match kind {
            "" => tool("sfs-mount"),
            kind => with(tool("mount"), &["-t", kind]),
        };
        command.args(["-o", &options]);
        // The function `run` would wait for a pipe that the daemon of sfs-mount may keep open.
        let status = command.arg(device).arg(&dir).status()?;
        if !status.success() {
            bail!("{} cannot be mounted: {status}", self.name());
        }
        Ok(MountedFilesystem {
            dir,
            is_ours: matches!(self, Self::Sfs { .. } | Self::SfsWithCache { .. }),
            is_unmounted: false,
        })
    }
}

fn tool(name: &str) -> Command {
    Command::new(program(name).unwrap_or_else(|| name.into()))
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

/// A mounted filesystem, which is unmounted when the value is dropped.
pub struct MountedFilesystem {
    dir: PathBuf,
    is_ours: bool,
    is_unmounted: bool,
}

impl MountedFilesystem {
    /// Returns the path of the root.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes everything durable: a sync of the kernel does not reach a FUSE daemon, which is asked on its own.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(File::open(&self.dir)?)?;
        match self.is_ours {
            true => run(tool("sfs-ctl").arg("checkpoint").arg(&self.dir)),
            false => Ok(()),
        }
    }

    /// Writes what was read lately to the cache of the filesystem, which must be [`Filesystem::SfsWithCache`].
    pub fn flush_cache(&self) -> Result<()> {
        run(tool("sfs-ctl").args(["cache", "flush"]).arg(&self.dir))
    }

    /// Unmounts the filesystem. All data is on the device afterwards. While it is in use, this function tries again for
    /// some seconds.
    ///
    /// # Errors
    ///
    /// If the filesystem cannot be unmounted; the error names the processes that use it. It then disappears
    /// from the tree, and its users keep it.
    pub fn unmount(mut self) -> Result<()> {
        self.is_unmounted = true;
        self.unmount_patiently().inspect_err(|_| self.detach())
    }

    fn unmount_patiently(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.unmount_once() {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() >= PATIENCE => {
                    let users = users(&self.dir);
                    return Err(error.context(format!(
                        "{} cannot be unmounted; it is used by {}",
                        self.dir.display(),
                        if users.is_empty() { "no process".to_owned() } else { users.join(", ") }
                    )));
                }
                Err(_) => thread::sleep(RETRY_INTERVAL),
            }
        }
    }

    /// Removes the mount from the tree, whoever uses it.
    fn detach(&self) {
        let _ = run(tool("umount").arg("--lazy").arg(&self.dir));
    }

    fn unmount_once(&self) -> Result<()> {
        run(tool(if self.is_ours { "sfs-umount" } else { "umount" }).arg(&self.dir))
    }
}

impl Drop for MountedFilesystem {
    fn drop(&mut self) {
        if !self.is_unmounted
            && let Err(error) = self.unmount_patiently()
        {
            output::complain(format_args!("{error:#}"));
            self.detach();
        }
    }
}

/// Returns the names and numbers of processes with a directory or a file below `dir` in use.
fn users(dir: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|process| uses(process, dir))
        .map(|process| {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let number = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
            format!("{} ({number})", name.trim())
        })
        .collect()
}

/// Returns whether a process, by its directory in /proc, has something below `dir` in use.
fn uses(process: &Path, dir: &Path) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let links = ["cwd", "root", "exe"].map(|name| process.join(name));
    links
        .into_iter()
        .chain(open.map(|entry| entry.path()))
        .any(|link| fs::read_link(link).is_ok_and(|target| target.starts_with(dir)))
}
