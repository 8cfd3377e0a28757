//! What a repair could not save.
//!
//! Owns: [`Loss`], and the line for each.
//! Promises: a file that no loss names, and no path through a directory that one names, is as it was.
//! Never: says how bad it is.

use std::fmt;

use serde::Serialize;

/// Something that is gone, or may be older than it was. Ranges are in bytes, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "loss")]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum Loss {
    /// What was synced after a damaged place of the log.
    Log { address: u64 },
    /// Part of it was restored from what older nodes and summaries say.
    Restored { ino: u64 },
    /// Owner, permissions and times.
    Attributes { ino: u64 },
    /// These bytes read as zeros now.
    Bytes { ino: u64, first: u64, last: u64 },
    /// So many blocks, of those in these bytes that read as zeros now.
    Blocks { ino: u64, count: u64, first: u64, last: u64 },
    /// Another file claims a block of it, too, in which one of the two has written last.
    Shared { ino: u64, address: u64 },
    /// The file is shorter.
    Tail { ino: u64, first: u64, last: u64 },
    /// A file that nothing is left of: its number and its name in `ino`.
    File { ino: u64, target: u64, name: String },
    /// A symbolic link, whose target is gone.
    Target { ino: u64 },
    /// An extended attribute.
    Xattr { ino: u64 },
    /// So many names in a directory.
    Names { ino: u64, count: u64 },
    /// An item that means nothing.
    Item { ino: u64, kind: u8 },
    /// It had no name any more, or one that cannot be, and is in `/lost+found`.
    Nameless { ino: u64 },
}

impl Loss {
    /// The inode concerned; for a file that is gone, its directory.
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
                write!(f, "the log is damaged at block {address}: what was synced later is lost")
            }
            Self::Restored { ino } => {
                write!(f, "inode {ino}: restored in part; it may be older than it was")
            }
            Self::Attributes { ino } => write!(f, "inode {ino}: owner, permissions and times lost"),
            Self::Bytes { ino, first, last } => {
                write!(f, "inode {ino}: bytes {first} to {last} lost; they read as zeros")
            }
            Self::Blocks { ino, count, first, last } => write!(
                f,
                "inode {ino}: {count} blocks lost among bytes {first} to {last}; they read as zeros"
            ),
            Self::Shared { ino, address } => {
                write!(
                    f,
                    "inode {ino}: block {address} was another's, too; it may hold either's data"
                )
            }
            Self::Tail { ino, first, last } => {
                write!(f, "inode {ino}: bytes {first} to {last} lost; it is shorter now")
            }
            Self::File { ino, target, name } => {
                write!(f, "inode {target}: lost; it was \"{name}\" in inode {ino}")
            }
            Self::Target { ino } => write!(f, "inode {ino}: symbolic link lost"),
            Self::Xattr { ino } => write!(f, "inode {ino}: an extended attribute lost"),
            Self::Names { ino, count } => write!(f, "inode {ino}: {count} names lost"),
            Self::Item { ino, kind } => {
                write!(f, "inode {ino}: an item of kind {kind} that means nothing was removed")
            }
            Self::Nameless { ino } => write!(f, "inode {ino}: name lost; it is in /lost+found"),
        }
    }
}
