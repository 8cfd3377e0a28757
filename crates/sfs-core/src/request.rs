//! Arguments and results of the volume's operations: plain data without FUSE types.

mod inspection;
mod options;
mod status;

use std::time::Duration;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use crate::format::{FileKind, Inode, Timestamp};
use crate::memory::{BlockBuf, Pool};
use crate::mutant::{Mutant, mutated};

pub use inspection::{
    BlockRun, CleanedRound, DefragmentedPart, FileBlocks, HistoryStep, RunSegment,
    SCRUB_STEP_BLOCKS, ScrubCounts, ScrubDamage, ScrubStep, WriteHistory, WriteTime,
    WrittenCheckpoint,
};
pub use options::{
    AccessTimePolicy, ErrorReaction, OpenProgress, Release, Remainder, VolumeOptions,
};
pub use status::{
    Counters, Erases, GroupStatus, LifetimeTotals, SegmentCounts, SegmentStatus, SegmentsPart,
    Space, Status, Wear,
};

/// The credentials and time of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Time of the request.
    pub now: Timestamp,
    /// Permission bits that a new file does not get, unless its directory has a default access list, which decides then.
    /// `None` if new files inherit no lists, and the caller has applied the umask.
    pub umask: Option<u32>,
}

/// A file and its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Inode number.
    pub ino: u64,
    /// Attributes.
    pub inode: Inode,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// Inode number.
    pub ino: u64,
    /// Type of the file.
    pub kind: FileKind,
    /// Name of the entry.
    pub name: &'a [u8],
    /// Position after this entry, from which reading continues. Valid while other entries are added and removed.
    pub cookie: u64,
    /// Attributes, if the caller asked for them; the entry then holds a reference as from `lookup`. "." and ".." have
    /// neither.
    pub inode: Option<Inode>,
}

/// Attributes to change; `None` leaves an attribute as it is. `ctime` becomes the caller's time
/// unless given.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChanges {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes, to which the file is truncated or extended.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<Timestamp>,
    /// Time of the last change of content.
    pub mtime: Option<Timestamp>,
    /// Time of the last change of attributes.
    pub ctime: Option<Timestamp>,
    /// Time of birth.
    pub btime: Option<Timestamp>,
    /// `true` if suid, sgid and `security.capability` are cleared, as in a truncation by a user
    /// other than root.
    pub kill_privileges: bool,
    /// `true` if times that are not given stay unchanged: the kernel's write-back cache keeps the
    /// times of a regular file.
    pub keep_times: bool,
    /// `true` for a change through a descriptor that is open for writing. That the file is immutable does not
    /// concern such a descriptor.
    pub through_open: bool,
    /// `true` if a new size leaves `security.capability`, for a truncation that is repeated: what cleared it then is in the log.
    pub keep_capability: bool,
}

impl AttributeChanges {
    /// Returns whether the changes set an owner or a group, even to the present one.
    pub fn give_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Returns whether the changes set nothing but times.
    pub(crate) fn are_only_times(&self) -> bool {
        let has_size = self.size.is_some() && !mutated(Mutant::DataSyncSkipsSize);
        let has_more = self.mode.is_some() || self.give_owner() || self.kill_privileges;
        !has_size && !has_more
    }
}

/// How a file that is opened may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Anywhere.
    Write,
    /// At its end.
    Append,
}

/// Bytes of the device whose Clean segments are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// First byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
    /// Least length of the free ranges that are discarded, in bytes.
    pub least: u64,
}

/// The options of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteMode {
    /// `true` if the times stay unchanged: the kernel's write-back cache keeps them.
    pub keep_times: bool,
    /// `true` if suid, sgid and `security.capability` are cleared.
    pub kill_privileges: bool,
}

/// The effect of `allocate` on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Space is kept for all blocks of the range.
    Reserve,
    /// The range is a hole afterwards; whole blocks are freed.
    PunchHole,
    /// The range reads as zeros, and space is kept for all its blocks.
    ZeroRange,
}

/// The options of `allocate`.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// The effect.
    pub mode: AllocateMode,
    /// `true` if the file does not become longer. Punching a hole never makes it longer.
    pub keep_size: bool,
    /// `true` if the times stay unchanged: the kernel's write-back cache keeps them.
    pub keep_times: bool,
    /// `true` if suid, sgid and `security.capability` are cleared.
    pub kill_privileges: bool,
}

/// The effect of `rename` on an existing new name, and on the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces an existing file.
    Replace,
    /// Fails with [`crate::Error::Exists`] if the new name exists.
    NoReplace,
    /// Exchanges the two files; both names have to exist.
    Exchange,
    /// Replaces an existing file, and leaves a whiteout at the old name: a character device 0:0
    /// without permissions, with which overlayfs hides a file of a lower layer.
    Whiteout,
    /// Fails as [`RenameMode::NoReplace`] does; otherwise leaves a whiteout at the old name.
    WhiteoutNoReplace,
}

impl RenameMode {
    /// Returns whether the rename fails if the new name exists.
    pub fn keeps_what_exists(self) -> bool {
        matches!(self, Self::NoReplace | Self::WhiteoutNoReplace)
    }

    /// Returns whether the rename leaves a whiteout at the old name.
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

/// The condition on an existing attribute in `set_xattr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces the attribute.
    Any,
    /// The attribute must not exist.
    Create,
    /// The attribute must exist.
    Replace,
}

/// The target of `seek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next data.
    Data,
    /// The next hole; the end of the file is one.
    Hole,
}

/// Bytes read from a file.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    /// `None` for no bytes.
    memory: Option<BlockBuf>,
    start: usize,
    len: usize,
}

impl ReadBuffer {
    /// Returns a buffer for `len` bytes, at least one, at `offset` of a file; `None` if the system has no memory.
    pub(crate) fn new(offset: u64, len: usize, pool: &Pool) -> Option<Self> {
        let start = (offset % BLOCK_SIZE as u64) as usize;
        let count = (start + len).div_ceil(BLOCK_SIZE);
        Some(Self { memory: Some(BlockBuf::new(count, pool)?), start, len })
    }

    /// Returns the blocks that hold the bytes. Their initial content is undefined.
    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        self.memory.as_mut().map_or(&mut [], BlockBuf::blocks_mut)
    }

    /// Returns the bytes; at the end of the file fewer than requested.
    pub fn as_bytes(&self) -> &[u8] {
        let blocks = self.memory.as_ref().map_or(&[][..], BlockBuf::blocks);
        &blocks.as_bytes()[self.start..self.start + self.len]
    }
}

/// Sums over the live blocks of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSums {
    /// Number of live blocks, tree nodes included.
    pub live_blocks: u64,
    /// Sum of the write counts of data blocks.
    pub write_count_sum: u64,
    /// Sum of the modification times of data blocks, in ticks.
    pub modified_sum: u64,
}

/// A segment whose entry in the usage table disagrees with the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discrepancy {
    /// Number of the segment.
    pub segment: u32,
    /// Sums in the usage table.
    pub table: SegmentSums,
    /// Sums counted in the tree.
    pub counted: SegmentSums,
}

/// The time of the next background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// More work is due now.
    More,
    /// No work is due for this time unless something is written.
    Idle(Duration),
}
