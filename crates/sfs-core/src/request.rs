//! What callers of a volume say and get: arguments and answers of its operations.
//!
//! Owns: plain data.
//! Promises: nothing refers to FUSE.
//! Never: decides anything.

use std::time::Duration;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use crate::format::{FileKind, Inode, Remembered, Timestamp};
use crate::memory::{BlockBuf, Pool};

/// How a volume is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Never write to the device.
    pub read_only: bool,
    /// Budget of the write buffer, in bytes.
    pub write_buffer: usize,
    /// Budget of the caches, in bytes.
    pub cache: usize,
    /// Longest time that written data waits in memory.
    pub commit_interval: Duration,
    /// Longest time between checkpoints.
    pub checkpoint_interval: Duration,
    /// Discard segments that have become Clean.
    pub discard: bool,
    /// GroupingPolicy policy: one of [`crate::policy::GROUPING_POLICIES`].
    pub grouping: String,
    /// Groups of the grouping, where they can be chosen.
    pub groups: Option<u8>,
    /// Victim selection: one of [`crate::policy::VICTIM_POLICIES`]; `None` for the one that goes with the
    /// grouping.
    pub victim: Option<String>,
    /// What becomes of blocks that do not fill a segment of their group when they have to be
    /// written.
    pub remainder: Remainder,
    /// The background does not clean while requests are under way, unless it must.
    pub yield_cleaning: bool,
    /// When a segment that has been emptied may be written again.
    pub release: Release,
    /// What is done when something on the device turns out to be damaged.
    pub on_error: ErrorReaction,
}

/// What a volume that is mounted for writing does about damage, beside giving an error to whoever met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReaction {
    /// It goes on.
    Continue,
    /// It writes nothing any more, as if a write had failed.
    RemountReadOnly,
}

/// When a segment in which nothing lives any more becomes Clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// When nothing that a crash would bring back needs it: what drained it is durable, and it holds
    /// no part of the last checkpoint or of the deltas since.
    Durable,
    /// At once. A crash then loses data: this is for the tests that prove why the other is needed.
    AtOnce,
}

/// Where blocks go that have to be written though they do not fill a segment of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// To their group's open segment: one write request for each group.
    Pure,
    /// All to one group (SFS, section 3.3): one write request.
    Mixed,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            write_buffer: 64 << 20,
            cache: 128 << 20,
            commit_interval: Duration::from_secs(5),
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

/// Who asks, and when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
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
    /// What it is.
    pub kind: FileKind,
    /// Its name.
    pub name: &'a [u8],
    /// Where reading goes on after this entry. Stays valid while entries come and go.
    pub cookie: u64,
    /// Attributes, where they were asked for; a reference was taken as by `lookup` (never for "."
    /// and "..", which have none).
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
    /// Clear suid, sgid and `security.capability`, as a truncation by someone else than root does.
    pub kill_privileges: bool,
    /// The kernel's cache writes back: it keeps the times of a regular file itself, and those that
    /// are not given stay.
    pub keep_times: bool,
}

impl AttributeChanges {
    /// Whether they give an owner or a group, be it the one that the file has.
    pub fn give_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

/// How a write is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteMode {
    /// The kernel's cache writes back: it keeps the times itself.
    pub keep_times: bool,
    /// Clear suid, sgid and `security.capability`.
    pub kill_privileges: bool,
}

/// What `rename` does when the new name exists, and what it leaves at the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail with [`crate::Error::Exists`].
    NoReplace,
    /// Exchange the two; both have to exist.
    Exchange,
    /// Replace it, and leave a whiteout: a character device 0:0 without permissions. By one,
    /// overlayfs hides what a lower layer has under the name.
    Whiteout,
    /// As [`RenameMode::NoReplace`], and leave a whiteout.
    WhiteoutNoReplace,
}

impl RenameMode {
    /// It fails when the new name exists.
    pub fn keeps_what_exists(self) -> bool {
        matches!(self, Self::NoReplace | Self::WhiteoutNoReplace)
    }

    /// It leaves a whiteout at the old name.
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

/// What `set_xattr` does depending on whether the attribute exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next data.
    Data,
    /// The next hole; the end of the file is one.
    Hole,
}

/// Bytes of a file.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    /// `None` for no bytes.
    memory: Option<BlockBuf>,
    start: usize,
    len: usize,
}

impl ReadBuffer {
    /// A buffer for `len` bytes, at least one, at `offset` of a file.
    pub(crate) fn new(offset: u64, len: usize, pool: &Pool) -> Self {
        let start = (offset % BLOCK_SIZE as u64) as usize;
        let count = (start + len).div_ceil(BLOCK_SIZE);
        Self { memory: Some(BlockBuf::new(count, pool)), start, len }
    }

    /// The blocks that hold the bytes; what is in them at first is undefined.
    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        self.memory.as_mut().map_or(&mut [], BlockBuf::blocks_mut)
    }

    /// The bytes; fewer than asked for at the end of the file.
    pub fn as_bytes(&self) -> &[u8] {
        let blocks = self.memory.as_ref().map_or(&[][..], BlockBuf::blocks);
        &blocks.as_bytes()[self.start..self.start + self.len]
    }
}

/// How full the volume is, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Blocks that files and metadata can have in all.
    pub total_blocks: u64,
    /// Blocks that are still to be had.
    pub free_blocks: u64,
    /// Files that exist, roughly: inode numbers given out.
    pub files: u64,
}

impl Space {
    /// Bytes that are still to be had.
    pub fn free_bytes(&self) -> u64 {
        self.free_blocks.saturating_mul(BLOCK_SIZE as u64)
    }
}

/// What lives in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSums {
    /// Blocks, tree nodes included.
    pub live_blocks: u64,
    /// Sum of the write counts of data blocks.
    pub write_count_sum: u64,
    /// Sum of the modification times of data blocks, in ticks.
    pub modified_sum: u64,
}

/// A segment of which the usage table does not say what the tree does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discrepancy {
    /// The segment.
    pub segment: u32,
    /// What the usage table says.
    pub table: SegmentSums,
    /// What the tree says.
    pub counted: SegmentSums,
}

/// When background work is wanted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// There is more to do now.
    More,
    /// Nothing to do for so long, unless something is written.
    Idle(Duration),
}

/// What happened since the volume was opened. Bytes unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Written by users.
    pub user_bytes_written: u64,
    /// Written to the device, everything included.
    pub device_bytes_written: u64,
    /// File data written for users.
    pub data_bytes: u64,
    /// File data moved by the cleaner.
    pub cleaning_bytes: u64,
    /// Tree nodes and checkpoints.
    pub metadata_bytes: u64,
    /// Summaries and deltas.
    pub summary_bytes: u64,
    /// Commits: flushes that made something durable.
    pub commits: u64,
    /// Requests to make something durable; several may share one commit.
    pub syncs: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Times that a writer had to clean, or to wait for a checkpoint, because segments were short.
    pub stalls: u64,
    /// Tree nodes read from the device.
    pub nodes_read: u64,
}

/// A volume as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Name of the grouping policy.
    pub grouping: &'static str,
    /// Name of the policy that chooses victims.
    pub victim: &'static str,
    /// How full it is.
    pub space: Space,
    /// Blocks in a segment.
    pub segment_blocks: u32,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// The groups that have segments, by number.
    pub groups: Vec<GroupStatus>,
    /// What happened since it was opened.
    pub counters: Counters,
    /// What is done about damage.
    pub on_error: ErrorReaction,
    /// Nothing is written any more.
    pub has_failed: bool,
    /// The errors that were met, in this mount and before.
    pub remembered: Remembered,
}

/// Segments by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Hold nothing, may be opened.
    pub clean: u32,
    /// Are appended to.
    pub open: u32,
    /// Are not appended to any more.
    pub sealed: u32,
    /// Hold nothing that is live, but the last checkpoint refers to them.
    pub drained: u32,
    /// Must not be used.
    pub bad: u32,
    /// For data that is overwritten in place.
    pub in_place: u32,
}

/// What one head has written and still lives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupStatus {
    /// The group's number: its head's.
    pub group: u8,
    /// It holds tree nodes, not file data.
    pub holds_metadata: bool,
    /// Segments, Open or Sealed.
    pub segments: u32,
    /// Those of them that are Open.
    pub open_segments: u32,
    /// Blocks in them that live.
    pub live_blocks: u64,
    /// Where its centre is, if the grouping has centres (see [`crate::policy::GroupingPolicy::centres`]).
    pub centre: Option<f64>,
}

/// What happened to a volume in all its mounts, as far as its checkpoints say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeTotals {
    /// Times it was mounted for writing.
    pub mount_count: u64,
    /// Bytes that users wrote.
    pub user_bytes_written: u64,
    /// Bytes that SFS wrote to the device.
    pub device_bytes_written: u64,
}
