//! Kinds of errors that a volume remembers, and the error that ended writing.

use sfs_device::{BLOCK_SIZE, DeviceError, Operation};

use super::{Corruption, Structure};

/// The kind of an error of a device or its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The device failed a write.
    Write,
    /// The device failed a read.
    Read,
    /// A data block does not have its checksum.
    Data,
    /// A node of the tree is damaged, or reading it failed several times in a row.
    Tree,
    /// A chunk or a delta of the log is damaged.
    Log,
    /// A superblock or checkpoint slot is damaged.
    Volume,
    /// An item of the tree is damaged.
    Item,
    /// An entry of the usage table is damaged.
    Usage,
    /// The device failed a flush.
    Flush,
    /// A read failed or returned wrong data, and succeeded when it was repeated.
    Retry,
    /// Writing has long taken much longer than when the device was new.
    SlowWrite,
    /// A block holds what was written to another one: the device has less capacity than it states, or confuses addresses.
    Misplaced,
    /// A kind that only a newer program knows, by its code.
    Unknown(u32),
}

impl ErrorKind {
    /// Returns the number of the kind on the device; never 0.
    pub fn code(self) -> u32 {
        match self {
            Self::Write => 1,
            Self::Read => 2,
            Self::Data => 3,
            Self::Tree => 4,
            Self::Log => 5,
            Self::Volume => 6,
            Self::Item => 7,
            Self::Usage => 8,
            Self::Flush => 9,
            Self::Retry => 10,
            Self::SlowWrite => 11,
            Self::Misplaced => 12,
            Self::Unknown(code) => code,
        }
    }

    /// Returns the kind with the number `code`, which is not 0.
    pub fn of_code(code: u32) -> Self {
        match code {
            1 => Self::Write,
            2 => Self::Read,
            3 => Self::Data,
            4 => Self::Tree,
            5 => Self::Log,
            6 => Self::Volume,
            7 => Self::Item,
            8 => Self::Usage,
            9 => Self::Flush,
            10 => Self::Retry,
            11 => Self::SlowWrite,
            12 => Self::Misplaced,
            other => Self::Unknown(other),
        }
    }

    /// Returns the kind of `corruption`.
    pub fn of_corruption(corruption: &Corruption) -> Self {
        match corruption.structure {
            Structure::Superblock | Structure::Checkpoint => Self::Volume,
            Structure::Chunk | Structure::Delta => Self::Log,
            Structure::Node => Self::Tree,
            Structure::Item => Self::Item,
            Structure::Data => Self::Data,
            Structure::Usage => Self::Usage,
        }
    }

    /// Returns the kind of a device's `error` and its block address, 0 for a flush; `None` for a discard, which is only
    /// a hint, and for a device that is late, which has lost nothing.
    pub fn of_device(error: &DeviceError) -> Option<(Self, u64)> {
        if error.is_late() {
            return None;
        }
        let kind = match error.operation {
            Operation::Open | Operation::Read => Self::Read,
            Operation::Write => Self::Write,
            Operation::Flush => Self::Flush,
            Operation::Discard => return None,
        };
        Some((kind, error.offset / BLOCK_SIZE as u64))
    }

    /// Returns whether the error means that the device returned other bytes than were written.
    pub fn is_corruption(self) -> bool {
        match self {
            Self::Data | Self::Tree | Self::Log | Self::Volume | Self::Item | Self::Usage => true,
            Self::Write | Self::Read | Self::Flush | Self::Retry | Self::SlowWrite => false,
            // The damage that showed it is counted, too.
            Self::Misplaced | Self::Unknown(_) => false,
        }
    }

    /// Returns whether only a check that reads all data can clear the error.
    pub fn concerns_data(self) -> bool {
        match self {
            Self::Data | Self::Read | Self::Retry => true,
            Self::SlowWrite | Self::Misplaced | Self::Unknown(_) => true,
            Self::Write | Self::Flush | Self::Tree | Self::Log => false,
            Self::Volume | Self::Item | Self::Usage => false,
        }
    }

    /// Returns the name of the kind in JSON; `None` if only a newer program knows the kind.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Data => "data",
            Self::Tree => "tree",
            Self::Log => "log",
            Self::Volume => "volume",
            Self::Item => "item",
            Self::Usage => "usage",
            Self::Flush => "flush",
            Self::Retry => "retry",
            Self::SlowWrite => "slow_write",
            Self::Misplaced => "misplaced",
            Self::Unknown(_) => return None,
        })
    }

    /// Returns the kind with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        (1..=12).map(Self::of_code).find(|kind| kind.name() == Some(name))
    }

    /// Returns a description of the kind for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Write => "write that the device failed",
            Self::Read => "read that the device failed",
            Self::Data => "wrong checksum of data",
            Self::Tree => "damaged tree node",
            Self::Log => "damaged chunk of the log",
            Self::Volume => "damaged superblock or checkpoint",
            Self::Item => "damaged tree item",
            Self::Usage => "damaged usage entry",
            Self::Flush => "flush that the device failed",
            Self::Retry => "read that succeeded only when repeated",
            Self::SlowWrite => "512 MiB that were written far slower than at first",
            Self::Misplaced => "block with the content of another one",
            Self::Unknown(_) => "error of a kind that a newer program knows",
        }
    }

    /// Returns the unit of the place of an error of this kind: block, inode or segment.
    pub fn place(self) -> &'static str {
        match self {
            Self::Item => "inode",
            Self::Usage => "segment",
            _ => "block",
        }
    }
}

/// The error that ended writing to the volume, or checkpoints of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Block, inode or segment, by the kind; 0 if no place is known.
    pub at: u64,
    /// Time, in seconds since 1970.
    pub secs: i64,
}
