//! Deliberate bugs, each of which exploring all interleavings must find (`tests/interleavings.rs`).
//! `sfs-mutant` has the switch.

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
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// All mutants.
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
}

sfs_mutant::switch!(Mutant);
