//! Version, fixed addresses and limits of the format, which several structures share.

/// Format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 2;

/// Block of the superblock. The blocks before it stay zero, so that probers for other filesystems find nothing.
pub const SUPERBLOCK_ADDRESS: u64 = 4;

/// Block of the locator: a superblock of the volume, not always the newest, that leads to the
/// backup.
pub const LOCATOR_ADDRESS: u64 = 5;

/// Number of blocks of a checkpoint slot.
pub const CHECKPOINT_SLOT_BLOCKS: u64 = 16;

/// Inode number of the root directory.
pub const ROOT_INO: u64 = 1;

/// First inode number given to a file; the numbers before it are the volume's own.
pub const FIRST_INO: u64 = 16;

/// Longest name of a directory entry or extended attribute, in bytes.
pub const NAME_LEN_MAX: usize = 255;

/// Longest value of a tree item, in bytes: three items of this size fit in a node.
pub const VALUE_LEN_MAX: usize = 1280;

/// Longest file that is stored in tree items, in bytes.
pub const INLINE_LEN_MAX: usize = 1024;

/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_LEN_MAX: usize = 4095;

/// Longest value of an extended attribute, in bytes (the kernel's limit).
pub const XATTR_LEN_MAX: usize = 65_536;

/// Number of blocks in the largest file: 16 TiB.
pub const FILE_BLOCKS_MAX: u64 = 1 << 32;

/// Largest number of open heads, the metadata head included.
pub const HEADS_MAX: usize = 9;

/// Bound of all counts from a device. No count of a real volume reaches it; a larger, forged count
/// could make another count overflow.
pub const COUNT_MAX: u64 = 1 << 62;

/// Bound of the counts in checkpoints and deltas. A mount that continues from such a count never
/// reaches [`COUNT_MAX`], which no program accepts.
pub const COUNT_KEPT_MAX: u64 = COUNT_MAX / 2;
