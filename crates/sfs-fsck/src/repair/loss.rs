//! Losses of a repair, as typed values with a message each.
//!
//! A file is unchanged if no loss names the file or a directory on its path.

use std::fmt;

use serde::Serialize;

/// Content that is lost, or may be older than it was. Ranges are in bytes and include both ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "loss")]
#[expect(missing_docs, reason = "each field is named after its content")]
pub enum Loss {
    /// Changes that were synced after the damaged batch of the log at this block.
    Log { address: u64 },
    /// Part of the inode was restored from older nodes, deltas and summaries.
    Restored { ino: u64 },
    /// Owner, permissions and times are guessed.
    Attributes { ino: u64 },
    /// Lost bytes of the file, which now read as zeros.
    Bytes { ino: u64, first: u64, last: u64 },
    /// Number of lost blocks of the file, within a range of bytes. The lost blocks now read as zeros.
    Blocks { ino: u64, count: u64, first: u64, last: u64 },
    /// Another file refers to a block of the file, at this address. The block holds the data of one
    /// of the two.
    Shared { ino: u64, address: u64 },
    /// Lost bytes at the end of the file, which is shorter now.
    Tail { ino: u64, first: u64, last: u64 },
    /// A whole file is lost: its inode number, and its name in directory `ino`.
    File { ino: u64, target: u64, name: String },
    /// A symbolic link is lost with its target.
    Target { ino: u64 },
    /// An extended attribute is lost.
    Xattr { ino: u64 },
    /// Number of lost names in a directory.
    Names { ino: u64, count: u64 },
    /// An item of no use to any file was removed.
    Item { ino: u64, kind: u8 },
    /// The inode had no name, or an invalid one, and is in `/lost+found`.
    Nameless { ino: u64 },
}

impl Loss {
    /// Returns the inode concerned; for a lost file, the inode of its directory.
    pub fn ino(&self) -> Option<u64> {
        match *self {
            Self::Log { .. } => None,
            Self::Restored { ino }
            | Self::Attributes { ino }
            | Self::Bytes { ino, .. }
            | Self::Blocks { ino, .. }
            | Self::Shared { ino, .. }
            | Self::Tail { ino, .. }
            | Self::File { ino, .. }
            | Self::Target { ino }
            | Self::Xattr { ino }
            | Self::Names { ino, .. }
            | Self::Item { ino, .. }
            | Self::Nameless { ino } => Some(ino),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log { address } => {
                write!(
                    f,
                    "the log is damaged at block {address}: changes that were synced later are lost"
                )
            }
            Self::Restored { ino } => {
                write!(f, "inode {ino}: restored in part, and may be older than before")
            }
            Self::Attributes { ino } => write!(f, "inode {ino}: owner, permissions and times lost"),
            Self::Bytes { ino, first, last } => {
                write!(f, "inode {ino}: bytes {first} to {last} lost, now zeros")
            }
            Self::Blocks { ino, count, first, last } => write!(
                f,
                "inode {ino}: {count} blocks lost among bytes {first} to {last}, now zeros"
            ),
            Self::Shared { ino, address } => {
                write!(
                    f,
                    "inode {ino}: another file has block {address}, too: the content may be of either file"
                )
            }
            Self::Tail { ino, first, last } => {
                write!(f, "inode {ino}: bytes {first} to {last} lost: the file is shorter now")
            }
            Self::File { ino, target, name } => {
                write!(f, "inode {target}: lost: \"{name}\" in inode {ino}")
            }
            Self::Target { ino } => write!(f, "inode {ino}: symbolic link lost"),
            Self::Xattr { ino } => write!(f, "inode {ino}: an extended attribute lost"),
            Self::Names { ino, count } => write!(f, "inode {ino}: {count} names lost"),
            Self::Item { ino, kind } => {
                write!(f, "inode {ino}: an unused item of kind {kind} was removed")
            }
            Self::Nameless { ino } => write!(f, "inode {ino}: name lost: now in /lost+found"),
        }
    }
}
