//! Messages of findings: one line each, without a path and without advice.

use std::fmt;

use sfs_core::format::Key;

use super::{Finding, SuperblockCopy};

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SuperblockDamaged { corruption, .. } => corruption.fmt(f),
            Self::SuperblockOlder { copy: SuperblockCopy::First } => {
                f.write_str("the first superblock is older than its backup")
            }
            Self::SuperblockOlder { copy: SuperblockCopy::Backup } => {
                f.write_str("the backup of the superblock is older than the first")
            }
            Self::SuperblocksDiffer => f.write_str("the two superblocks differ"),
            Self::SlotInvalid { slot, corruption } => {
                write!(f, "checkpoint slot {slot} holds no checkpoint: {corruption}")
            }
            Self::CheckpointsLost => f.write_str("neither checkpoint slot holds a checkpoint"),
            Self::CheckpointLost { number } => {
                write!(f, "checkpoint {number} is lost, but the log continues after it")
            }
            Self::CheckpointNumber { slot, number } => {
                write!(f, "checkpoint {number} is in the wrong slot, {slot}")
            }
            Self::CheckpointCounts { slot } => {
                write!(f, "checkpoint slot {slot}: a count is out of range")
            }
            Self::HeadInvalid { head } => {
                write!(f, "head {}: its segment or its next block is invalid", head.0)
            }
            Self::Unreadable { address } => write!(f, "block {address}: cannot be read"),
            Self::NodeDamaged { corruption } => corruption.fmt(f),
            Self::NodeOutside { address } => {
                write!(f, "tree node at block {address}: not in a segment")
            }
            Self::NodeLevel { address, level, expected } => {
                write!(f, "tree node at block {address}: level {level}, should be {expected}")
            }
            Self::NodeShared { address } => {
                write!(f, "tree node at block {address}: has two parents")
            }
            Self::NodeRange { address } => {
                write!(f, "tree node at block {address}: keys outside its parent's range")
            }
            Self::NodeUnknown { address } => {
                write!(
                    f,
                    "tree node at block {address}: its segment's summary does not describe it"
                )
            }
            Self::TreeIncomplete => {
                f.write_str("the tree is incomplete; files and usage were not checked")
            }
            Self::ItemMisplaced { key } => {
                write!(f, "{}: no item can have this key", ShownKey(key))
            }
            Self::ItemDamaged { key } => write!(f, "{}: does not decode", ShownKey(key)),
            Self::InodeMissing { ino } => write!(f, "inode {ino}: has items, but no attributes"),
            Self::InodeNumber { ino } => write!(f, "inode {ino}: number was never allocated"),
            Self::DeltaDamaged { corruption } => corruption.fmt(f),
            Self::DeltaKey { address, key } => {
                write!(f, "delta at block {address}: may not change the {}", ShownKey(key))
            }
            Self::RootMissing => f.write_str("there is no root directory"),
            Self::EntryName { ino, cookie } => {
                write!(f, "inode {ino}: entry {cookie:#x} has an invalid name")
            }
            Self::EntryHash { ino, cookie } => {
                write!(f, "inode {ino}: entry {cookie:#x} does not match the hash of its name")
            }
            Self::EntryTwice { ino, cookie } => {
                write!(f, "inode {ino}: entry {cookie:#x} has the name of an earlier entry")
            }
            Self::EntryDangling { ino, cookie, target } => {
                write!(
                    f,
                    "inode {ino}: entry {cookie:#x} leads to inode {target}, which does not exist"
                )
            }
            Self::EntryKind { ino, cookie, target } => {
                write!(f, "inode {ino}: entry {cookie:#x} is of another kind than inode {target}")
            }
            Self::EntryOwner { ino } => {
                write!(f, "inode {ino}: has entries, but is not a directory")
            }
            Self::LinkCount { ino, links, counted } => {
                write!(f, "inode {ino}: {links} links, should be {counted}")
            }
            Self::DirectorySize { ino, size, counted } => {
                write!(f, "inode {ino}: directory of size {size} has {counted} entries")
            }
            Self::ParentWrong { ino, parent, expected } if ino == parent && *expected != 0 => {
                write!(f, "inode {ino}: parent is the directory itself, but should be {expected}")
            }
            Self::ParentWrong { ino, parent, expected } => {
                write!(f, "inode {ino}: parent is {parent}, but should be {expected}")
            }
            Self::DirectoryTwice { ino } => write!(f, "inode {ino}: directory with two names"),
            Self::Unreachable { ino } => {
                write!(f, "inode {ino}: no path from the root leads to the file")
            }
            Self::OwnParent { ino } => {
                write!(f, "inode {ino}: directory whose only name is in the directory itself")
            }
            Self::OrphanMissing { ino } => {
                write!(f, "inode {ino}: has neither links nor an orphan item")
            }
            Self::OrphanWrong { ino } => write!(f, "inode {ino}: its orphan item is wrong"),
            Self::InlineParts { ino } => write!(f, "inode {ino}: wrong inline parts"),
            Self::InlineSize { ino, size, counted } => {
                write!(f, "inode {ino}: size {size}, but {counted} inline bytes")
            }
            Self::SymlinkSize { ino, size } => {
                write!(f, "inode {ino}: symbolic link of size {size}")
            }
            Self::XattrParts { ino, offset } => {
                write!(f, "inode {ino}: extended attribute {offset:#x} is incomplete")
            }
            Self::XattrHash { ino, offset } => {
                write!(
                    f,
                    "inode {ino}: extended attribute {offset:#x} does not match the hash of its name"
                )
            }
            Self::XattrTwice { ino, offset } => {
                write!(
                    f,
                    "inode {ino}: extended attribute {offset:#x} has the name of an earlier one"
                )
            }
            Self::XattrFlag { ino } => {
                write!(f, "inode {ino}: the flag for extended attributes is wrong")
            }
            Self::FlagFeature { ino } => {
                write!(f, "inode {ino}: has a flag whose feature the superblock does not have")
            }
            Self::AccessListInvalid { ino, offset } => {
                write!(f, "inode {ino}: access list {offset:#x} is invalid")
            }
            Self::AccessListMode { ino, mode, shown, .. } => {
                write!(f, "inode {ino}: mode {mode:03o}, but its access list shows {shown:03o}")
            }
            Self::AccessListsUndeclared => {
                f.write_str("the superblock does not declare that files have access lists")
            }
            Self::BlockCount { ino, blocks, counted } => {
                write!(f, "inode {ino}: {blocks} blocks, but {counted} are mapped or reserved")
            }
            Self::MappingOwner { ino } => {
                write!(f, "inode {ino}: has a mapping, but can have no blocks")
            }
            Self::MappingBeyondEnd { ino, block } => {
                write!(f, "inode {ino}: block {block} is mapped past the end")
            }
            Self::ReservationOwner { ino } => {
                write!(f, "inode {ino}: has a reservation, but can have no blocks")
            }
            Self::ReservationFlag { ino } => {
                write!(f, "inode {ino}: has a reservation, but not the flag for reservations")
            }
            Self::ReservationOverlap { ino, first } => {
                write!(
                    f,
                    "inode {ino}: the reservation from block {first} on overlaps mapped or reserved blocks"
                )
            }
            Self::MappingOutside { ino, block, address } => {
                write!(f, "inode {ino}: block {block} is at {address}, not in a segment")
            }
            Self::MappingShared { ino, block, address, other } => {
                write!(
                    f,
                    "inode {ino}: block {block} is at {address}, like a block of inode {other}"
                )
            }
            Self::MappingUnknown { ino, block, address } => {
                write!(f, "inode {ino}: block {block} is at {address}; no summary confirms it")
            }
            Self::DataDamaged { ino, block, address } => {
                write!(f, "inode {ino}: block {block} at {address}: checksum mismatch")
            }
            Self::UsageMissing { segment } => {
                write!(f, "usage table: no sound entries from segment {segment} on")
            }
            Self::UsageExcess { segment } => {
                write!(f, "usage table: entry for segment {segment}, which does not exist")
            }
            Self::UsageLive { segment, recorded, counted } => {
                write!(
                    f,
                    "segment {segment}: {recorded} live blocks recorded, but {counted} counted"
                )
            }
            Self::UsageSums { segment } => {
                write!(f, "segment {segment}: sums differ from those of its live blocks")
            }
            Self::UsageState { segment, state } => {
                write!(f, "segment {segment}: state {state:?} is impossible")
            }
            Self::FileCount { recorded, counted } => {
                write!(f, "the checkpoint counts {recorded} files, but there are {counted}")
            }
            Self::ReservationTotals { blocks, ranges } => {
                write!(
                    f,
                    "the checkpoint has other totals of reservations than {blocks} blocks in {ranges} ranges"
                )
            }
            Self::WearLedgerDamaged => {
                f.write_str("the wear ledger is damaged; a repair begins a new one")
            }
        }
    }
}

/// A key, shown as `item of inode 7, kind 2, offset 0x1f00`.
struct ShownKey<'a>(&'a Key);

impl fmt::Display for ShownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { ino, kind, offset } = self.0;
        write!(f, "item of inode {ino}, kind {kind}, offset {offset:#x}")
    }
}
