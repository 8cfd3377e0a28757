//! The filesystems of the mounted experiments, on the models of a hard drive and of an SSD.

use anyhow::{Context, Result, bail};
use sfs_lab::host::{DiskPair, Filesystem, Medium, PairRequest};

/// Sizes of the devices. The cache is the whole SSD.
pub(super) const HDD_LEN: u64 = 1 << 30;
pub(super) const SSD_LEN: u64 = 512 << 20;

/// Dirty memory: the number of bytes that a job writes between two syncs, and the write buffer of SFS.
pub(super) const DIRTY_BYTES: u64 = 16 << 20;

/// Size of a segment of SFS without a cache: the default of sfs-mkfs depends on the device.
const SEGMENT_BYTES: u64 = 1 << 20;

/// A filesystem and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A filesystem of the kernel on one device.
    Kernel(Kernel, Medium),
    /// SFS on one device.
    Sfs(Medium),
    /// SFS on the hard drive with the SSD as its cache: N-hybrid in the form of segments.
    NHybrid,
}

/// A filesystem of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Ext2,
    Ext4,
    Xfs,
}

impl Subject {
    pub(super) const EXT4_ON_DISK: Self = Self::Kernel(Kernel::Ext4, Medium::Hdd);
    pub(super) const EXT2_ON_SSD: Self = Self::Kernel(Kernel::Ext2, Medium::Ssd);

    /// All that run Bonnie++, in the order of the tables.
    pub(super) const ALL: [Self; 8] = [
        Self::Kernel(Kernel::Ext2, Medium::Hdd),
        Self::Kernel(Kernel::Xfs, Medium::Hdd),
        Self::EXT4_ON_DISK,
        Self::EXT2_ON_SSD,
        Self::Kernel(Kernel::Xfs, Medium::Ssd),
        Self::Sfs(Medium::Hdd),
        Self::Sfs(Medium::Ssd),
        Self::NHybrid,
    ];

    /// Returns the name in tables.
    pub(super) fn name(self) -> String {
        match self {
            Self::Kernel(kernel, medium) => format!("{}, {}", kernel.name(), medium.name()),
            Self::Sfs(medium) => format!("SFS, {}", medium.name()),
            Self::NHybrid => "SFS, disk with cache".to_owned(),
        }
    }

    /// Returns the device with the filesystem.
    pub(super) fn medium(self) -> Medium {
        match self {
            Self::Kernel(_, medium) | Self::Sfs(medium) => medium,
            Self::NHybrid => Medium::Hdd,
        }
    }

    /// Returns the filesystem, whose cache is on the SSD of the pair.
    fn filesystem(self, pair: &DiskPair) -> Filesystem {
        match self {
            Self::Kernel(kernel, _) => kernel.filesystem(),
            Self::Sfs(_) => Filesystem::Sfs {
                policy: "sfs".to_owned(),
                victims: None,
                segment_size: SEGMENT_BYTES,
                layout: "log",
            },
            Self::NHybrid => Filesystem::SfsWithCache { ssd: pair.device(Medium::Ssd).to_owned() },
        }
    }

    /// Makes the filesystem, new, and returns it.
    pub(super) fn make(self, pair: &DiskPair) -> Result<Filesystem> {
        let filesystem = self.filesystem(pair);
        if let Some(program) = filesystem.missing() {
            bail!("{program} is not installed");
        }
        filesystem.make(pair.device(self.medium()))?;
        Ok(filesystem)
    }

    /// Returns the mount options beside those of the filesystem.
    pub(super) fn options(self) -> Vec<String> {
        match self {
            Self::Kernel(..) => Vec::new(),
            Self::Sfs(_) | Self::NHybrid => vec![format!("write_buffer={DIRTY_BYTES}")],
        }
    }
}

impl Kernel {
    fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    pub(super) fn filesystem(self) -> Filesystem {
        match self {
            Self::Ext2 => Filesystem::Ext2,
            Self::Ext4 => Filesystem::Ext4,
            Self::Xfs => Filesystem::Xfs,
        }
    }
}

/// Starts new models, in virtual time.
pub(super) fn pair() -> Result<DiskPair> {
    let lab = std::env::current_exe().context("this program's own path")?;
    let request = PairRequest { ssd: ("ssd-m", SSD_LEN), hdd: ("deskstar", HDD_LEN) };
    DiskPair::start(&lab, &request)
}
