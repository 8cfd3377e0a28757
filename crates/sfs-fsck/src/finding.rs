//! Findings: typed values with a severity, without text and paths.
//!
//! Each kind of damage has one variant. The message of a finding is its `Display`, in `finding/message.rs`;
//! a report adds the path.

mod message;

use serde::{Serialize, Serializer};
use sfs_core::format::{Corruption, Head, Key, SegmentState};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A crash can leave this state; the volume is not damaged.
    Note,
    /// The volume is damaged.
    Error,
}

/// One of the two superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SuperblockCopy {
    /// The copy near the start of the device.
    First,
    /// The copy in the last block of the volume.
    Backup,
}

/// One violation of the format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding")]
#[expect(
    missing_docs,
    reason = "each field is named after its content, in the terms of the format"
)]
pub enum Finding {
    /// A superblock does not decode, as after a crash during its write. The check used the other copy.
    SuperblockDamaged {
        copy: SuperblockCopy,
        #[serde(serialize_with = "serialize_corruption")]
        corruption: Corruption,
    },
    /// A superblock is older than the other, as after a crash between the two.
    SuperblockOlder { copy: SuperblockCopy },
    /// Both superblocks are sound but differ, with the same generation or the UUIDs of two volumes.
    SuperblocksDiffer,
    /// A checkpoint slot holds no checkpoint, as after a crash during its write.
    SlotInvalid {
        slot: u8,
        #[serde(serialize_with = "serialize_corruption")]
        corruption: Corruption,
    },
    /// Neither slot holds a checkpoint.
    CheckpointsLost,
    /// A durable checkpoint is in neither slot. Segments hold its nodes, and the log continues after it.
    CheckpointLost { number: u64 },
    /// The number of the checkpoint in this slot belongs to the other slot.
    CheckpointNumber { slot: u8, number: u64 },
    /// A count in the checkpoint in this slot is out of range.
    CheckpointCounts { slot: u8 },
    /// A head of the checkpoint occurs twice, is not in a segment, or is before a live block of its segment.
    HeadInvalid {
        #[serde(serialize_with = "serialize_head")]
        head: Head,
    },
    /// The device failed to read a block.
    Unreadable { address: u64 },

    /// A node, or its content, does not decode.
    NodeDamaged {
        #[serde(serialize_with = "serialize_corruption")]
        corruption: Corruption,
    },
    /// A pointer to a node is outside all segments.
    NodeOutside { address: u64 },
    /// A node has another level than its parent implies.
    NodeLevel { address: u64, level: u8, expected: u8 },
    /// Two pointers lead to one node.
    NodeShared { address: u64 },
    /// A key in a node is outside the range that its parent gives it.
    NodeRange { address: u64 },
    /// No summary of its segment describes the node.
    NodeUnknown { address: u64 },
    /// Part of the tree is unreadable, so its items were not checked.
    TreeIncomplete,

    /// An item has an unknown kind, or a key that its kind cannot have.
    ItemMisplaced {
        #[serde(serialize_with = "serialize_key")]
        key: Key,
    },
    /// An item does not decode.
    ItemDamaged {
        #[serde(serialize_with = "serialize_key")]
        key: Key,
    },
    /// An inode has items but no attributes.
    InodeMissing { ino: u64 },
    /// An inode number was never allocated, or is reserved.
    InodeNumber { ino: u64 },

    /// The delta of a whole batch does not decode.
    DeltaDamaged {
        #[serde(serialize_with = "serialize_corruption")]
        corruption: Corruption,
    },
    /// A delta changes an item of a kind that no delta changes.
    DeltaKey {
        address: u64,
        #[serde(serialize_with = "serialize_key")]
        key: Key,
    },

    /// The root directory does not exist.
    RootMissing,
    /// A directory entry has an invalid name.
    EntryName { ino: u64, cookie: u64 },
    /// The cookie of a directory entry does not match the hash of its name.
    EntryHash { ino: u64, cookie: u64 },
    /// A directory has two entries of one name.
    EntryTwice { ino: u64, cookie: u64 },
    /// A directory entry refers to an inode that does not exist.
    EntryDangling { ino: u64, cookie: u64, target: u64 },
    /// A directory entry and its inode differ in kind.
    EntryKind { ino: u64, cookie: u64, target: u64 },
    /// An inode that is not a directory has directory entries.
    EntryOwner { ino: u64 },
    /// The link count differs from the number of names.
    LinkCount { ino: u64, links: u32, counted: u64 },
    /// The size of a directory differs from the number of its entries.
    DirectorySize { ino: u64, size: u64, counted: u64 },
    /// The parent of an inode is not the directory that holds its entry.
    ParentWrong { ino: u64, parent: u64, expected: u64 },
    /// A directory has more than one entry.
    DirectoryTwice { ino: u64 },
    /// An inode with links that no path from the root reaches.
    Unreachable { ino: u64 },
    /// A directory with links whose only entry is in the directory itself, so no path from the root reaches it.
    OwnParent { ino: u64 },
    /// An inode without links has no orphan item, so no mount deletes it.
    OrphanMissing { ino: u64 },
    /// An orphan item refers to an inode that is not an orphan and is not being truncated.
    OrphanWrong { ino: u64 },

    /// The inline parts of a file have gaps, are too long, or belong to a file that may have none.
    InlineParts { ino: u64 },
    /// Inline parts and the file's size disagree.
    InlineSize { ino: u64, size: u64, counted: u64 },
    /// The size of a symbolic link is out of range.
    SymlinkSize { ino: u64, size: u64 },
    /// Parts of an extended attribute are missing or wrong.
    XattrParts { ino: u64, offset: u64 },
    /// The key of an extended attribute does not match the hash of its name.
    XattrHash { ino: u64, offset: u64 },
    /// An inode has two extended attributes of one name.
    XattrTwice { ino: u64, offset: u64 },
    /// The inode's flag for extended attributes is wrong.
    XattrFlag { ino: u64 },
    /// The inode has a flag whose feature the superblock does not have.
    FlagFeature { ino: u64 },
    /// An access list is not sound, or its file can have none.
    AccessListInvalid { ino: u64, offset: u64 },
    /// The permission bits of the mode differ from those that the access list shows.
    AccessListMode { ino: u64, offset: u64, mode: u32, shown: u32 },
    /// Files have access lists, but the superblock does not declare that, so a program that does not know them may write.
    AccessListsUndeclared,

    /// The block count of the inode differs from the number of its mappings.
    BlockCount { ino: u64, blocks: u64, counted: u64 },
    /// A file that has no blocks, by its kind or flags, has a mapping.
    MappingOwner { ino: u64 },
    /// A block past the end of the file is mapped, and no truncation is in progress.
    MappingBeyondEnd { ino: u64, block: u32 },
    /// A file that is not regular has a reservation.
    ReservationOwner { ino: u64 },
    /// A file has a reservation, but not the flag for reservations.
    ReservationFlag { ino: u64 },
    /// The reservation that begins with this block contains a mapped block, or a block of another reservation.
    ReservationOverlap { ino: u64, first: u32 },
    /// A mapping refers to a block outside all segments.
    MappingOutside { ino: u64, block: u32, address: u64 },
    /// Two mappings refer to one block.
    MappingShared { ino: u64, block: u32, address: u64, other: u64 },
    /// No summary of its segment describes the block, or the summary describes a block of another
    /// file.
    MappingUnknown { ino: u64, block: u32, address: u64 },
    /// A data block is unreadable or does not match its checksum.
    DataDamaged { ino: u64, block: u32, address: u64 },

    /// The usage item that begins with this segment is missing or does not decode.
    UsageMissing { segment: u32 },
    /// The usage table has entries for segments that do not exist.
    UsageExcess { segment: u32 },
    /// The number of live blocks of a segment differs from its usage entry.
    UsageLive { segment: u32, recorded: u32, counted: u64 },
    /// The sums of write counts or modification times of a segment differ from those of its live blocks.
    UsageSums { segment: u32 },
    /// The state of a segment contradicts its content or the heads.
    UsageState {
        segment: u32,
        #[serde(serialize_with = "serialize_state")]
        state: SegmentState,
    },

    /// The number of files in the checkpoint differs from the number of inodes in its tree.
    FileCount { recorded: u64, counted: u64 },
    /// The totals of reserved blocks and ranges in the checkpoint differ from those counted in its tree.
    ReservationTotals { blocks: u64, ranges: u64 },
    /// The wear ledger in the checkpoint is malformed.
    WearLedgerDamaged,
}

impl Finding {
    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        match self {
            Self::SuperblockDamaged { .. }
            | Self::SuperblockOlder { .. }
            | Self::SlotInvalid { .. }
            | Self::TreeIncomplete => Severity::Note,
            _ => Severity::Error,
        }
    }

    /// Returns whether the severity is [`Severity::Error`].
    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }

    /// Returns whether `-p` repairs the finding: the fix loses nothing and needs no decision by the
    /// user.
    pub fn is_safe(&self) -> bool {
        match *self {
            Self::CheckpointNumber { .. }
            | Self::HeadInvalid { .. }
            | Self::NodeUnknown { .. }
            | Self::LinkCount { .. }
            | Self::ParentWrong { .. }
            | Self::OrphanMissing { .. }
            | Self::OrphanWrong { .. }
            | Self::FlagFeature { .. }
            | Self::AccessListMode { .. }
            | Self::AccessListsUndeclared
            | Self::UsageMissing { .. }
            | Self::UsageExcess { .. }
            | Self::UsageLive { .. }
            | Self::UsageSums { .. }
            | Self::UsageState { .. }
            | Self::ReservationFlag { .. }
            | Self::ReservationTotals { .. }
            | Self::FileCount { .. }
            | Self::WearLedgerDamaged => true,
            Self::DirectorySize { size, counted, .. } => counted > size,
            Self::BlockCount { blocks, counted, .. } => counted > blocks,
            _ => self.severity() == Severity::Note,
        }
    }

    /// Returns whether the finding concerns the copies of the superblock. A repair rewrites them
    /// even for a note.
    pub(crate) fn is_of_superblock(&self) -> bool {
        matches!(
            self,
            Self::SuperblockDamaged { .. }
                | Self::SuperblockOlder { .. }
                | Self::SuperblocksDiffer
                | Self::AccessListsUndeclared
        )
    }

    /// Returns the inode concerned, if there is one.
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
            | Self::OwnParent { ino }
            | Self::OrphanMissing { ino }
            | Self::OrphanWrong { ino }
            | Self::InlineParts { ino }
            | Self::InlineSize { ino, .. }
            | Self::SymlinkSize { ino, .. }
            | Self::XattrParts { ino, .. }
            | Self::XattrHash { ino, .. }
            | Self::XattrTwice { ino, .. }
            | Self::XattrFlag { ino }
            | Self::FlagFeature { ino }
            | Self::AccessListInvalid { ino, .. }
            | Self::AccessListMode { ino, .. }
            | Self::BlockCount { ino, .. }
            | Self::MappingOwner { ino }
            | Self::MappingBeyondEnd { ino, .. }
            | Self::ReservationOwner { ino }
            | Self::ReservationFlag { ino }
            | Self::ReservationOverlap { ino, .. }
            | Self::MappingOutside { ino, .. }
            | Self::MappingShared { ino, .. }
            | Self::MappingUnknown { ino, .. }
            | Self::DataDamaged { ino, .. } => Some(ino),
            Self::ItemMisplaced { key } | Self::ItemDamaged { key } => Some(key.ino),
            _ => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn serialize_head<S: Serializer>(head: &Head, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(head.0)
}

fn serialize_corruption<S: Serializer>(
    value: &Corruption,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn serialize_key<S: Serializer>(value: &Key, serializer: S) -> Result<S::Ok, S::Error> {
    (value.ino, value.kind, value.offset).serialize(serializer)
}

fn serialize_state<S: Serializer>(value: &SegmentState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:?}"))
}
