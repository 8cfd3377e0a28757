//! Arguments and results of the volume's operations: plain data without FUSE types.

use std::time::Duration;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use crate::format::{FileKind, Head, Inode, Remembered, Timestamp};
use crate::memory::{BlockBuf, Pool};

/// The options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// `true` if the volume never writes to the device.
    pub read_only: bool,
    /// Budget of the write buffer in bytes.
    pub write_buffer: usize,
    /// Budget of the caches, in bytes.
    pub cache: usize,
    /// Longest time that dirty data stays in memory.
    pub commit_interval: Duration,
    /// `true` if a pause of some tens of milliseconds in writing is followed by a commit, within limits: for a mount that
    /// sync(2) does not reach.
    pub commits_soon: bool,
    /// Longest time between checkpoints.
    pub checkpoint_interval: Duration,
    /// `true` if segments that become Clean are discarded.
    pub discard: bool,
    /// Grouping policy: one of [`crate::policy::GROUPING_POLICIES`].
    pub grouping: String,
    /// Number of groups, for policies that let the user choose it.
    pub groups: Option<u8>,
    /// Victim policy: one of [`crate::policy::VICTIM_POLICIES`]; `None` for the default of the grouping policy.
    pub victim: Option<String>,
    /// Place of the blocks that do not fill a segment of their group when they have to be written.
    pub remainder: Remainder,
    /// `true` if the background does not clean during requests unless segments are short.
    pub yield_cleaning: bool,
    /// Time at which a Drained segment becomes Clean.
    pub release: Release,
    /// Reaction to damage on the device.
    pub on_error: ErrorReaction,
}

/// Progress of opening a volume whose data is overwritten in place: a mount for writing reads every mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Blocks that have been found.
    pub found_blocks: u64,
    /// Blocks in all, by the usage table.
    pub total_blocks: u64,
}

/// The reaction of a volume that is mounted for writing to damage. The request that met the damage fails in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReaction {
    /// Continue.
    Continue,
    /// Stop writing, as after a failed write.
    RemountReadOnly,
}

/// The time at which a Drained segment becomes Clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// As soon as recovery does not need the segment: the deltas that drained it are durable, and it holds no part of
    /// the last checkpoint or of the deltas since.
    Durable,
    /// At once. A crash then loses data; tests use this to prove the need of [`Release::Durable`].
    AtOnce,
}

/// The place of blocks that have to be written although they do not fill a segment of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// The open segment of their group: one write request for each group.
    Pure,
    /// One group for all (SFS, section 3.3): one write request.
    Mixed,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            write_buffer: 64 << 20,
            cache: 128 << 20,
            commit_interval: Duration::from_secs(5),
            commits_soon: false,
            checkpoint_interval: Duration::from_secs(30),
            discard: true,
            grouping: "sfs".into(),
            groups: None,
            victim: None,
            remainder: Remainder::Pure,
            yield_cleaning: true,
            release: Release::Durable,
            on_error: ErrorReaction::Continue,
        }
    }
}

/// The credentials and time of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Time of the request.
    pub now: Timestamp,
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

/// Attributes to change; `None` leaves one as it is. `ctime` becomes the caller's time unless given.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChanges {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: truncation or extension.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Last change of attributes.
    pub ctime: Option<Timestamp>,
    /// Birth.
    pub btime: Option<Timestamp>,
    /// Clear suid, sgid and `security.capability`, as a truncation by a user other than root does.
    pub kill_privileges: bool,
    /// Leave times that are not given unchanged: the kernel's write-back cache keeps the times of a regular file.
    pub keep_times: bool,
}

impl AttributeChanges {
    /// Returns whether the changes set an owner or a group, even to the present one.
    pub fn give_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

/// The options of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteMode {
    /// Leave the times unchanged: the kernel's write-back cache keeps them.
    pub keep_times: bool,
    /// Clear suid, sgid and `security.capability`.
    pub kill_privileges: bool,
}

/// The effect of `rename` on an existing new name, and on the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace an existing file.
    Replace,
    /// Fail with [`crate::Error::Exists`] if the new name exists.
    NoReplace,
    /// Exchange the two files; both names have to exist.
    Exchange,
    /// Replace an existing file, and leave a whiteout at the old name: a character device 0:0 without permissions, with
    /// which overlayfs hides a file of a lower layer.
    Whiteout,
    /// As [`RenameMode::NoReplace`], and leave a whiteout at the old name.
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
    /// Create or replace the attribute.
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

/// The space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Blocks for files and metadata in total.
    pub total_blocks: u64,
    /// Free blocks, with those that only metadata gets.
    pub free_blocks: u64,
    /// Free blocks that data can have.
    pub available_blocks: u64,
    /// Number of files of all kinds, with those that wait to be deleted. A volume made by an older program states the
    /// number of files that it ever had.
    pub files: u64,
}

impl Space {
    /// Returns the bytes that data can still have.
    pub fn available_bytes(&self) -> u64 {
        self.available_blocks.saturating_mul(BLOCK_SIZE as u64)
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

/// Counts since the volume was opened, in the unit that the name ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that users wrote.
    pub user_bytes_written: u64,
    /// All bytes written to the device.
    pub device_bytes_written: u64,
    /// Bytes of file data written for users.
    pub data_bytes: u64,
    /// Bytes of file data that the cleaner moved.
    pub cleaning_bytes: u64,
    /// Bytes of tree nodes and checkpoints.
    pub metadata_bytes: u64,
    /// Bytes of summaries and deltas.
    pub summary_bytes: u64,
    /// Flushes that made something durable.
    pub commits: u64,
    /// Requests to make something durable; several may share one flush.
    pub syncs: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Times that a writer had to clean or to wait for a checkpoint for lack of segments.
    pub stalls: u64,
    /// Tree nodes read from the device.
    pub nodes_read: u64,
}

/// The state of a volume at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Name of the grouping policy.
    pub grouping: &'static str,
    /// Name of the victim policy.
    pub victim: &'static str,
    /// Space of the volume.
    pub space: Space,
    /// Blocks in a segment.
    pub segment_blocks: u32,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// Groups that have segments, by number.
    pub groups: Vec<GroupStatus>,
    /// Counts since the volume was opened.
    pub counters: Counters,
    /// Reaction to damage.
    pub on_error: ErrorReaction,
    /// `true` if the volume has stopped writing.
    pub has_failed: bool,
    /// Errors of this mount and earlier ones.
    pub remembered: Remembered,
}

/// Segments by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Clean segments: may be opened.
    pub clean: u32,
    /// Open segments: heads append to them.
    pub open: u32,
    /// Sealed segments: full or closed.
    pub sealed: u32,
    /// Drained segments: without live blocks, but not yet released.
    pub drained: u32,
    /// Bad segments: excluded from use.
    pub bad: u32,
    /// InPlace segments: data that is overwritten in place.
    pub in_place: u32,
}

/// The segments of one head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStatus {
    /// The head, which tells the group: tree nodes, or the data of a group.
    pub head: Head,
    /// Open and Sealed segments.
    pub segments: u32,
    /// Open segments.
    pub open_segments: u32,
    /// Live blocks in the segments.
    pub live_blocks: u64,
    /// Centre of the group, if the grouping policy has centres (see [`crate::policy::GroupingPolicy::centres`]).
    pub centre: Option<f64>,
}

/// Totals over all mounts of a volume, from its last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeTotals {
    /// Number of mounts for writing.
    pub mount_count: u64,
    /// Bytes that users wrote.
    pub user_bytes_written: u64,
    /// Bytes that SFS wrote to the device.
    pub device_bytes_written: u64,
}
