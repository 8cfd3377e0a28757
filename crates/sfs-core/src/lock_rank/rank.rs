//! Ranks.

/// Rank of a lock: see the table in `lock_rank.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    /// `Admission::lock`.
    Admission = 1,
    /// `InodeState::io`. A thread may hold the lock of one file only.
    FileIo,
    /// `Cleaner::round`.
    Cleaner,
    /// `LogWriter::state`.
    Log,
    /// `MetadataStore::metadata`.
    Metadata,
    /// `InodeTable::shards`.
    InodeShard,
    /// `InodeState::data`. A commit holds those of many files at once, hence no check among equals.
    FileData,
}
