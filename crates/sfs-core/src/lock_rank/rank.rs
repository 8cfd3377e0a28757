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
    /// `InodeState::data`. A commit holds the locks of many files at once, so equal ranks are
    /// allowed.
    FileData,
}

impl Rank {
    /// Every rank, ascending.
    #[cfg(any(debug_assertions, feature = "lock-times"))]
    pub(super) const ALL: [Self; 7] = [
        Self::Admission,
        Self::FileIo,
        Self::Cleaner,
        Self::Log,
        Self::Metadata,
        Self::InodeShard,
        Self::FileData,
    ];

    /// Returns the place in [`Rank::ALL`].
    #[cfg(any(debug_assertions, feature = "lock-times"))]
    pub(super) fn index(self) -> usize {
        self as usize - 1
    }

    /// Returns the name, as the table in `lock_rank.rs` has it.
    #[cfg(any(debug_assertions, feature = "lock-times"))]
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Admission => "Admission::lock",
            Self::FileIo => "InodeState::io",
            Self::Cleaner => "Cleaner::round",
            Self::Log => "LogWriter::state",
            Self::Metadata => "MetadataStore::metadata",
            Self::InodeShard => "InodeTable::shards",
            Self::FileData => "InodeState::data",
        }
    }
}
