//! Deliberate bugs of the cache, each of which the tests of two devices must find (`crates/sfs-sim/tests/two_devices.rs`).
//! `sfs-mutant` has the switch.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A cache of another epoch counts as the cache of the last mount.
    StaleEpochTrusted,
    /// A copy is returned without a comparison of its checksum.
    ChecksumNotCompared,
    /// The bytes of a node that its checksum leaves out are compared with nothing.
    HeadNotCompared,
    /// A segment is written again while a reader reads from it.
    EvictionInFlight,
    /// A write leaves the old copies in the cache.
    WriteKeepsCopy,
    /// A discard leaves the old copies in the cache.
    DiscardKeepsCopy,
    /// Content that was read before a write is kept after it.
    OfferAfterWrite,
    /// The header says that the cache was closed before the map of live blocks is written.
    ClosedBeforeMap,
    /// An error of the cache reaches the reader of the volume as wrong content.
    ErrorServed,
    /// Copies are used after the cache has returned wrong data.
    LieForgiven,
    /// Copies of a mount that was cut off are taken.
    UncleanTaken,
    /// The older of two headers is taken.
    OlderHeader,
    /// A cache of another volume is taken.
    OtherVolume,
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 13] = [
        Self::StaleEpochTrusted,
        Self::ChecksumNotCompared,
        Self::HeadNotCompared,
        Self::EvictionInFlight,
        Self::WriteKeepsCopy,
        Self::DiscardKeepsCopy,
        Self::OfferAfterWrite,
        Self::ClosedBeforeMap,
        Self::ErrorServed,
        Self::LieForgiven,
        Self::UncleanTaken,
        Self::OlderHeader,
        Self::OtherVolume,
    ];
}

sfs_mutant::switch!(Mutant);
