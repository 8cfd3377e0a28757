//! The cases of the slides, each a filesystem with options, and those that this kernel cannot run.

use sfs_lab::host::Filesystem;

/// A filesystem with the mount options of a case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) filesystem: Filesystem,
    pub(super) options: &'static [&'static str],
    /// `true` if the case is in the figure, which has one of each filesystem.
    pub(super) is_drawn: bool,
}

const fn case(
    name: &'static str,
    filesystem: Filesystem,
    options: &'static [&'static str],
    is_drawn: bool,
) -> Case {
    Case { name, filesystem, options, is_drawn }
}

const fn btrfs(node_size: u32) -> Filesystem {
    Filesystem::BtrfsSeparate { node_size }
}

/// The cases that run. The slides' ext3 and ext4 have `data=writeback,barrier=1`, their XFS `logbsize=128k`. `nodelalloc`
/// stands in for the block allocation options that ext4 has no more.
pub(super) const CASES: [Case; 12] = [
    case("ext2", Filesystem::Ext2, &[], true),
    case("ext3, data=writeback", Filesystem::Ext3, &["data=writeback"], false),
    case("ext4, data=writeback", Filesystem::Ext4, &["data=writeback"], true),
    case("ext4, data=ordered", Filesystem::Ext4, &["data=ordered"], false),
    case("ext4, data=ordered,nodelalloc", Filesystem::Ext4, &["data=ordered", "nodelalloc"], false),
    case("ext4, data=ordered,nobarrier", Filesystem::Ext4, &["data=ordered", "nobarrier"], false),
    case("xfs, logbsize=128k", Filesystem::Xfs, &["logbsize=128k"], true),
    case("xfs, logbsize=32k", Filesystem::Xfs, &["logbsize=32k"], false),
    case("btrfs, nodes of 4 KiB, nossd", btrfs(4096), &["nossd"], false),
    case("btrfs, nodes of 4 KiB, ssd", btrfs(4096), &["ssd"], false),
    case("btrfs, nodes of 16 KiB, nossd", btrfs(16_384), &["nossd"], false),
    case("btrfs, nodes of 16 KiB, ssd", btrfs(16_384), &["ssd"], true),
];

/// The cases that this kernel cannot run, and why.
pub(super) const NOT_RUN: [(&str, &str); 5] = [
    ("ext4, noreservation", "the option is accepted and ignored"),
    ("ext4, oldalloc", "the option is accepted and ignored"),
    ("xfs, nobarrier", "the option left XFS in Linux 4.19"),
    ("reiserfs", "left Linux in 6.13"),
    ("nilfs2", "not in this kernel"),
];
