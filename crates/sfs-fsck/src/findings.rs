//! What can be found: typed values with a severity.
//!
//! Owns: [`Finding`], and the bound on how many are kept.
//! Promises: no text inside a value; whatever is found is counted, kept or not.
//! Never: knows paths; the report does.

mod words;

use serde::{Serialize, Serializer};
use sfs_core::format::{Corruption, Key, SegmentState};

/// Findings that are kept; further ones are only counted.
const FINDINGS_MAX: usize = 1 << 20;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; a crash leaves such things behind.
    Note,
    /// The volume is damaged.
    Error,
}

/// One of the two superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Copy {
    /// The one near the start.
    First,
    /// The last block of the volume.
    Backup,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding")]
#[expect(missing_docs, reason = "the fields are named for what they hold, in the format's words")]
pub enum Finding {
    /// A superblock does not decode, as after a crash while it was written; the other one was used.
    SuperblockDamaged {
        copy: Copy,
        #[serde(serialize_with = "show_corruption")]
        corruption: Corruption,
    },
    /// A superblock is older than the other, as after a crash between the two.
    SuperblockOlder { copy: Copy },
    /// Both superblocks are sound, of the same generation or of two volumes, and not the same.
    SuperblocksDiffer,
    /// A checkpoint slot holds no checkpoint, as after a crash while it was written.
    SlotInvalid {
        slot: u8,
        #[serde(serialize_with = "show_corruption")]
        corruption: Corruption,
    },
    /// Neither slot holds a checkpoint.
    CheckpointsLost,
    /// A checkpoint that was durable, as the log goes on after it, is in neither slot.
    CheckpointLost { number: u64 },
    /// The checkpoint in this slot has a number that belongs into the other.
    CheckpointNumber { slot: u8, number: u64 },
    /// A count in the checkpoint in this slot is so high, or so low, that it cannot be.
    CheckpointCounts { slot: u8 },
    /// A head of the checkpoint is twice there, not in a segment, or before what lives in it.
    HeadInvalid { head: u8 },
    /// The device did not give a block.
    Unreadable { address: u64 },

    /// A node, or what is in it, does not decode.
    NodeDamaged {
        #[serde(serialize_with = "show_corruption")]
        corruption: Corruption,
    },
    /// A pointer to a node leads out of the segments.
    NodeOutside { address: u64 },
    /// A node has another level than its parent implies.
    NodeLevel { address: u64, level: u8, expected: u8 },
    /// Two pointers lead to one node.
    NodeShared { address: u64 },
    /// A key in a node is outside the range that its parent gives it.
    NodeRange { address: u64 },
    /// The summary of its segment does not know the node.
    NodeUnknown { address: u64 },
    /// The tree could not be read whole, so what it says was not checked.
    TreeIncomplete,

    /// An item of a kind that does not exist, or where it cannot be.
    ItemMisplaced {
        #[serde(serialize_with = "show_key")]
        key: Key,
    },
    /// An item does not decode.
    ItemDamaged {
        #[serde(serialize_with = "show_key")]
        key: Key,
    },
    /// Items of an inode that does not exist.
    InodeMissing { ino: u64 },
    /// An inode number that was not given out yet, or is reserved.
    InodeNumber { ino: u64 },

    /// The delta of a whole batch does not decode.
    DeltaDamaged {
        #[serde(serialize_with = "show_corruption")]
        corruption: Corruption,
    },
    /// A delta changes an item that deltas do not change.
    DeltaKey {
        address: u64,
        #[serde(serialize_with = "show_key")]
        key: Key,
    },

    /// There is no root directory.
    RootMissing,
    /// A directory entry has a name that cannot be.
    EntryName { ino: u64, cookie: u64 },
    /// A directory entry is not where the hash of its name puts it.
    EntryHash { ino: u64, cookie: u64 },
    /// A name is twice in a directory.
    EntryTwice { ino: u64, cookie: u64 },
    /// A directory entry leads to an inode that does not exist.
    EntryDangling { ino: u64, cookie: u64, target: u64 },
    /// A directory entry and its inode are of two kinds.
    EntryKind { ino: u64, cookie: u64, target: u64 },
    /// A file that is no directory has directory entries.
    EntryOwner { ino: u64 },
    /// The number of links is not the number of names.
    LinkCount { ino: u64, links: u32, counted: u64 },
    /// A directory's size is not the number of its entries.
    DirectorySize { ino: u64, size: u64, counted: u64 },
    /// A directory, or anything else, names a parent that does not hold it.
    ParentWrong { ino: u64, parent: u64, expected: u64 },
    /// A directory has more than one name.
    DirectoryTwice { ino: u64 },
    /// An inode that no name leads to, and that is not to be deleted either.
    Unreachable { ino: u64 },
    /// An inode without names that nothing will delete.
    OrphanMissing { ino: u64 },
    /// Work is noted for an inode for which there is none.
    OrphanWrong { ino: u64 },

    /// The inline parts of a file are not contiguous, too long, or where none may be.
    InlineParts { ino: u64 },
    /// Inline parts and the file's size disagree.
    InlineSize { ino: u64, size: u64, counted: u64 },
    /// The size of a symbolic link is out of range.
    SymlinkSize { ino: u64, size: u64 },
    /// The parts of an extended attribute do not make a value.
    XattrParts { ino: u64, offset: u64 },
    /// An extended attribute is not where the hash of its name puts it.
    XattrHash { ino: u64, offset: u64 },
    /// An extended attribute is twice there.
    XattrTwice { ino: u64, offset: u64 },
    /// The inode's flag and its extended attributes disagree.
    XattrFlag { ino: u64 },

    /// The inode's number of mapped blocks is not that of its mappings.
    BlockCount { ino: u64, blocks: u64, counted: u64 },
    /// A file that has no blocks by its kind or flags has a mapping.
    MappingOwner { ino: u64 },
    /// A block behind the end of the file is mapped, and no truncation is under way.
    MappingBeyondEnd { ino: u64, block: u32 },
    /// A mapping leads out of the segments.
    MappingOutside { ino: u64, block: u32, address: u64 },
    /// A block belongs to two mappings.
    MappingShared { ino: u64, block: u32, address: u64, other: u64 },
    /// The summary of its segment does not know the block, or as another's.
    MappingUnknown { ino: u64, block: u32, address: u64 },
    /// A data block is not what was written.
    DataDamaged { ino: u64, block: u32, address: u64 },

    /// The usage table has no sound entries for the item that begins with this segment.
    UsageMissing { segment: u32 },
    /// The usage table has entries for segments that do not exist.
    UsageExcess { segment: u32 },
    /// A segment's live blocks are not as many as the usage table says.
    UsageLive { segment: u32, recorded: u32, counted: u64 },
    /// A segment's sums of write counts or modification times are not those of its live blocks.
    UsageSums { segment: u32 },
    /// A segment's state contradicts its content or the heads.
    UsageState {
        segment: u32,
        #[serde(serialize_with = "show_state")]
        state: SegmentState,
    },
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::SuperblockDamaged { .. }
            | Self::SuperblockOlder { .. }
            | Self::SlotInvalid { .. }
            | Self::TreeIncomplete => Severity::Note,
            _ => Severity::Error,
        }
    }

    /// Whether it is more than a note.
    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }

    /// Whether what makes it go away loses nothing and needs nobody's judgment: what `-p` repairs.
    pub fn is_safe(&self) -> bool {
        match *self {
            Self::CheckpointNumber { .. }
            | Self::HeadInvalid { .. }
            | Self::NodeUnknown { .. }
            | Self::LinkCount { .. }
            | Self::ParentWrong { .. }
            | Self::OrphanMissing { .. }
            | Self::OrphanWrong { .. }
            | Self::UsageMissing { .. }
            | Self::UsageExcess { .. }
            | Self::UsageLive { .. }
            | Self::UsageSums { .. }
            | Self::UsageState { .. } => true,
            Self::DirectorySize { size, counted, .. } => counted > size,
            Self::BlockCount { blocks, counted, .. } => counted > blocks,
            _ => self.severity() == Severity::Note,
        }
    }

    /// Whether it is about the copies of the superblock: a repair mends what a crash leaves of them, too.
    pub(crate) fn is_of_superblock(&self) -> bool {
        matches!(
            self,
            Self::SuperblockDamaged { .. } | Self::SuperblockOlder { .. } | Self::SuperblocksDiffer
        )
    }

    /// The inode concerned.
    pub fn ino(&self) -> Option<u64> {
        match *self {
            Self::InodeMissing { ino }
            | Self::InodeNumber { ino }
            | Self::EntryName { ino, .. }
            | Self::EntryHash { ino, .. }
            | Self::EntryTwice { ino, .. }
            | Self::EntryDangling { ino, .. }
            | Self::EntryKind { ino, .. }
            | Self::EntryOwner { ino }
            | Self::LinkCount { ino, .. }
            | Self::DirectorySize { ino, .. }
            | Self::ParentWrong { ino, .. }
            | Self::DirectoryTwice { ino }
            | Self::Unreachable { ino }
            | Self::OrphanMissing { ino }
            | Self::OrphanWrong { ino }
            | Self::InlineParts { ino }
            | Self::InlineSize { ino, .. }
            | Self::SymlinkSize { ino, .. }
            | Self::XattrParts { ino, .. }
            | Self::XattrHash { ino, .. }
            | Self::XattrTwice { ino, .. }
            | Self::XattrFlag { ino }
            | Self::BlockCount { ino, .. }
            | Self::MappingOwner { ino }
            | Self::MappingBeyondEnd { ino, .. }
            | Self::MappingOutside { ino, .. }
            | Self::MappingShared { ino, .. }
            | Self::MappingUnknown { ino, .. }
            | Self::DataDamaged { ino, .. } => Some(ino),
            Self::ItemMisplaced { key } | Self::ItemDamaged { key } => Some(key.ino),
            _ => None,
        }
    }
}

fn show_corruption<S: Serializer>(value: &Corruption, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn show_key<S: Serializer>(value: &Key, serializer: S) -> Result<S::Ok, S::Error> {
    (value.ino, value.kind, value.offset).serialize(serializer)
}

fn show_state<S: Serializer>(value: &SegmentState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// What was found: the first of them, and the number of all.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    errors: u64,
    notes: u64,
}

impl Findings {
    /// Counts `finding`, and keeps it if there is room.
    pub(crate) fn push(&mut self, finding: Finding) {
        match finding.severity() {
            Severity::Error => self.errors += 1,
            Severity::Note => self.notes += 1,
        }
        if self.kept.len() < FINDINGS_MAX {
            self.kept.push(finding);
        }
    }

    /// Adds all of `others`.
    pub(crate) fn extend(&mut self, others: &Self) {
        let room = FINDINGS_MAX.saturating_sub(self.kept.len());
        self.kept.extend(others.kept.iter().take(room).cloned());
        self.errors += others.errors;
        self.notes += others.notes;
    }

    /// Those that were kept, in the order in which they were found; at most a million.
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// Errors, kept or not.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Notes, kept or not.
    pub fn notes(&self) -> u64 {
        self.notes
    }
}
