//! Deliberate bugs, by which the tests are tested: those of the protocol have to be found by `tests/interleavings.rs`, those of the
//! device by `tests/device_crashes.rs`, and those of snapshots by `tests/snapshots.rs`. `sfs-mutant` has the switch.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A PUT without a reply counts as stored.
    UnknownIsStored,
    /// A name that is taken counts as ours.
    TakenIsOurs,
    /// Log objects are acknowledged though one before them is not ours.
    AcknowledgedOutOfOrder,
    /// The log is sealed before the manifests.
    LogSealedFirst,
    /// The manifests of the epoch before are not sealed.
    ManifestsUnsealed,
    /// The log of the epoch before is read up to the first missing number, and not sealed.
    LogUnsealed,
    /// A seal counts though its number may have been deleted.
    SealUnchecked,
    /// A reader does not look whether its manifest is still the newest.
    ReaderUnchecked,
    /// The newest manifest is taken without a last look at numbers of higher ranks.
    NewestUnchecked,
    /// A sealer goes on behind the seal of another.
    SealPassed,
    /// Every manifest but the newest is deleted.
    RanksIgnored,
    /// A claim that is taken counts as ours.
    ClaimShared,
    /// Epochs without a manifest are not sealed.
    UnfinishedUnsealed,
    /// A flush that waits for the store does not.
    FlushedBeforeUpload,
    /// Blocks of a region that is being uploaded are not saved before a later write.
    OldBlocksUnsaved,
    /// A region is written before the local cache says durably that it may be ahead of the store.
    AheadUnwritten,
    /// A region is written though the image does not have it whole.
    AheadUnfilled,
    /// A region is evicted though the store has it in pieces.
    UnjoinedEvicted,
    /// Log objects are deleted that no manifest contains.
    DeletedUnpublished,
    /// A log object is sent while data objects that it names are under way.
    LogBeforeData,
    /// Log objects of earlier epochs overwrite regions that are ahead of the store.
    OldPiecesWin,
    /// A cache is used though another writer has had the volume since.
    StaleCacheUsed,
    /// A region may be evicted before the local cache says durably that it is not ahead any more.
    ClearedUnflushed,
    /// The cache evicts after a close.
    ClosedEvicted,
    /// Discarded blocks of the local cache count as zero.
    HolesTrusted,
    /// A snapshot does not look whether its manifest is still the newest after it has read the log.
    SnapshotUnchecked,
    /// Pieces of a region outlive a data object that holds all of it.
    PiecesOutlived,
    /// A snapshot goes on from the log of the one before though there is a newer manifest.
    ManifestPassed,
    /// The content of a log object is cached under the name of a data object.
    PagesConfused,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// Mutants of the protocol.
    pub const ALL: [Self; 13] = [
        Self::UnknownIsStored,
        Self::TakenIsOurs,
        Self::AcknowledgedOutOfOrder,
        Self::LogSealedFirst,
        Self::ManifestsUnsealed,
        Self::LogUnsealed,
        Self::SealUnchecked,
        Self::ReaderUnchecked,
        Self::NewestUnchecked,
        Self::SealPassed,
        Self::RanksIgnored,
        Self::ClaimShared,
        Self::UnfinishedUnsealed,
    ];

    /// Mutants of snapshots (`tests/snapshots.rs`).
    pub const OF_SNAPSHOTS: [Self; 4] =
        [Self::SnapshotUnchecked, Self::PiecesOutlived, Self::ManifestPassed, Self::PagesConfused];

    /// Mutants of the device (`tests/device_crashes.rs`).
    pub const OF_DEVICE: [Self; 12] = [
        Self::FlushedBeforeUpload,
        Self::OldBlocksUnsaved,
        Self::AheadUnwritten,
        Self::AheadUnfilled,
        Self::UnjoinedEvicted,
        Self::DeletedUnpublished,
        Self::LogBeforeData,
        Self::OldPiecesWin,
        Self::StaleCacheUsed,
        Self::ClearedUnflushed,
        Self::ClosedEvicted,
        Self::HolesTrusted,
    ];
}

sfs_mutant::switch!(Mutant);
