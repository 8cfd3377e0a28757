//! Errors that a volume remembers: their kinds, and the one that ended writing.

/// What went wrong with a device or its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The device failed a write or a flush.
    Write,
    /// The device failed a read.
    Read,
    /// A data block does not have its checksum.
    Data,
    /// A node or an item of the tree is damaged.
    Tree,
    /// A chunk or a delta of the log is damaged.
    Log,
    /// A superblock, checkpoint or usage entry is damaged.
    Volume,
    /// A kind that only a newer program knows; its code.
    Unknown(u32),
}

impl ErrorKind {
    /// Returns the number that stands for it on the device; never 0.
    pub fn code(self) -> u32 {
        match self {
            Self::Write => 1,
            Self::Read => 2,
            Self::Data => 3,
            Self::Tree => 4,
            Self::Log => 5,
            Self::Volume => 6,
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
            other => Self::Unknown(other),
        }
    }
}

/// The error after which nothing was written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub kind: ErrorKind,
    /// Block address on the device, 0 if none is known.
    pub at: u64,
    /// When, in seconds since 1970.
    pub secs: i64,
}
