//! The bytes of a volume: encoding and decoding of every structure of `docs/FORMAT.md`.
//!
//! A decoder verifies the checksum, where the structure has one, and the range of each field. It never panics on
//! bytes from a device. Nothing here reads a device.
//!
//! To add an on-disk field:
//! 1. Choose its place: a record of the checkpoint's extension area, a tagged change of a delta, an extension record
//!    of a mapping run, appended bytes of an inode, or bytes of the superblock that are still zero.
//! 2. Choose the rule for programs that do not know it: a class ([`ExtensionClass`], the class of a change) or a
//!    bit in [`Features`].
//! 3. State it in `docs/FORMAT.md`, then encode and decode it here; bytes without it must keep their meaning.
//! 4. Add golden bytes to `tests/format_golden.rs` and hostile bytes to `tests/decoders.rs`; no old constant changes.
//! 5. Have `sfs-fsck` check it and its `dump` show it.

mod checkpoint;
mod chunk;
pub mod codec;
mod corruption;
mod data_layout;
mod delta;
mod errors;
mod extension;
mod failure;
mod features;
mod head;
mod history;
mod inode;
mod key;
mod mapping;
mod node;
mod superblock;
mod tolerance;
mod usage;

pub use checkpoint::{CheckpointRecord, HeadRecord, POLICY_STATE_LEN_MAX, PolicyRecord};
pub use chunk::{ChunkHeader, ChunkSummary, SummaryEntry, summary_blocks, summary_len};
pub use corruption::{Corruption, CorruptionKind, Location, Structure};
pub use data_layout::DataLayout;
pub use delta::{Change, DELTA_LEN_MAX, DeltaForm, is_allowed_in_delta};
pub use errors::{ERROR_KINDS_MAX, ErrorCount, ErrorCounts, Occurrence, Remembered};
pub use extension::{EXTENSION_LEN_MAX, Extension, ExtensionClass, Extensions};
pub use failure::{ErrorKind, Failure};
pub use features::{Features, Incompatibility};
pub use head::{Group, Head};
pub use history::History;
pub use inode::{FileKind, Inode, InodeFlags, Timestamp};
pub use key::{ItemKind, Key};
pub use mapping::{Encoding, Mapping, MappingRun, RUN_BLOCKS, run_key};
pub use node::{NodeHeader, NodePointer};
pub use superblock::{Label, Layout, LayoutError, Superblock};
use tolerance::Class;
pub use tolerance::{DecodeError, Tolerance};
pub use usage::{SegmentState, USAGE_PER_ITEM, UsageEntry, usage_key};

/// Format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 2;

/// Block of the superblock. The blocks before it stay zero, so that probers for other filesystems find nothing.
pub const SUPERBLOCK_ADDRESS: u64 = 4;

/// Block of the locator: a superblock of the volume, not always the newest, that tells where the backup is.
pub const LOCATOR_ADDRESS: u64 = 5;

/// Blocks of a checkpoint slot.
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

/// Blocks in the largest file: 16 TiB.
pub const FILE_BLOCKS_MAX: u64 = 1 << 32;

/// Largest number of open heads, the metadata head included.
pub const HEADS_MAX: usize = 9;

/// Bound of all counts from a device. No volume counts so far; a larger, forged count could make another overflow.
pub const COUNT_MAX: u64 = 1 << 62;

/// Bound of the counts in checkpoints and deltas. A mount that continues from such a count never reaches
/// [`COUNT_MAX`], which no program would read.
pub const COUNT_KEPT_MAX: u64 = COUNT_MAX / 2;
