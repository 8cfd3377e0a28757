//! Deliberate bugs: the crash simulator must find each (`crates/sfs-sim/tests/mutants.rs`).
//!
//! Owns: their names, and which one is alive in this thread.
//! Promises: without the feature `mutants` none ever is, and nothing is left of this.
//! Never: is enabled in a program that mounts.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A sync does not flush the device.
    SkippedFlush,
    /// A checkpoint's record is written before its nodes are flushed.
    SkippedNodeFlush,
    /// Segments become Clean before the checkpoint's record is flushed.
    SkippedRecordFlush,
    /// A checkpoint's record is durable before its nodes are written.
    RecordFirst,
    /// Drained segments are discarded before the checkpoint that lets them go.
    DiscardFirst,
    /// A Drained segment is Clean at once.
    DrainedReused,
    /// The last name of a file goes, and no orphan item is left.
    OrphanForgotten,
    /// Every delta says again what earlier ones unmapped.
    UnmapRepeated,
    /// No delta says what was unmapped.
    UnmapForgotten,
    /// No delta says which inode numbers have been given out.
    NextInoUnsaid,
    /// A torn summary is accepted.
    TornSummary,
    /// A chunk whose blocks are torn is accepted.
    TornData,
    /// A batch takes effect chunk by chunk.
    EndIgnored,
    /// A chunk need not repeat the checksum of the one before it.
    ChainIgnored,
    /// A length is said before all of its data is written.
    LengthAhead,
    /// A rename over a file does not take the data of the new one along.
    RenameUnordered,
    /// A truncation does not take along what is written afterwards.
    TruncationUnordered,
    /// A sync of a file that has no dirty blocks does nothing.
    CleanFileUnsynced,
    /// The older of two checkpoints is taken.
    OldCheckpoint,
    /// Every checkpoint goes to the same slot.
    SameSlot,
    /// An overwritten block counts as live.
    DeathUncounted,
    /// Growing a file shows what was beyond its old end.
    TailKept,
    /// The cleaner moves a block that has been overwritten meanwhile.
    StaleMove,
    /// A block is used again before its freeing is durable.
    FreedReused,
    /// New blocks are not flushed before the delta that maps them.
    PlacedUnflushed,
    /// The backup of the superblock is written before the first copy is flushed.
    SuperblocksAtOnce,
    /// A changed superblock has the generation of the one before.
    GenerationKept,
    /// A volume of version 1 is upgraded after the first checkpoint of the mount.
    UpgradeLate,
    /// The superblock of an upgrade is not flushed before the first checkpoint.
    UpgradeUnflushed,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::SkippedFlush,
        Self::SkippedNodeFlush,
        Self::SkippedRecordFlush,
        Self::RecordFirst,
        Self::DiscardFirst,
        Self::DrainedReused,
        Self::OrphanForgotten,
        Self::UnmapRepeated,
        Self::UnmapForgotten,
        Self::NextInoUnsaid,
        Self::TornSummary,
        Self::TornData,
        Self::EndIgnored,
        Self::ChainIgnored,
        Self::LengthAhead,
        Self::RenameUnordered,
        Self::TruncationUnordered,
        Self::CleanFileUnsynced,
        Self::OldCheckpoint,
        Self::SameSlot,
        Self::DeathUncounted,
        Self::TailKept,
        Self::StaleMove,
        Self::FreedReused,
        Self::PlacedUnflushed,
        Self::SuperblocksAtOnce,
        Self::GenerationKept,
        Self::UpgradeLate,
        Self::UpgradeUnflushed,
    ];
}

#[cfg(feature = "mutants")]
thread_local! {
    static ALIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// From now on `mutant`, and no other, is alive in this thread.
#[cfg(feature = "mutants")]
pub fn release(mutant: Option<Mutant>) {
    ALIVE.set(mutant);
}

/// Whether `mutant` is alive.
#[cfg(feature = "mutants")]
pub(crate) fn mutated(mutant: Mutant) -> bool {
    ALIVE.get() == Some(mutant)
}

/// Never.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn mutated(_: Mutant) -> bool {
    false
}
