//! Deliberate bugs, each of which the crash simulator must find (`crates/sfs-sim/tests/mutants.rs`).
//! `sfs-mutant` has the switch.

/// A deliberate bug.
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
    /// Drained segments are discarded before the checkpoint that releases them.
    DiscardFirst,
    /// A Drained segment is Clean at once.
    DrainedReused,
    /// Removing the last name of a file leaves no orphan item.
    OrphanForgotten,
    /// Every delta repeats the unmaps of earlier ones.
    UnmapRepeated,
    /// No delta contains the unmaps.
    UnmapForgotten,
    /// No delta contains the next inode number.
    NextInoUnsaid,
    /// A torn summary is accepted.
    TornSummary,
    /// A chunk whose blocks are torn is accepted.
    TornData,
    /// A batch takes effect chunk by chunk.
    EndIgnored,
    /// A chunk need not repeat the checksum of the one before it.
    ChainIgnored,
    /// A length is recorded before all of its data is written.
    LengthAhead,
    /// A rename over a file is durable before the data of the new file.
    RenameUnordered,
    /// A truncation is durable before the data that is written afterwards.
    TruncationUnordered,
    /// A sync of a file that has no dirty blocks does nothing.
    CleanFileUnsynced,
    /// The older of two checkpoints is taken.
    OldCheckpoint,
    /// Every checkpoint goes to the same slot.
    SameSlot,
    /// An overwritten block still counts as live.
    DeathUncounted,
    /// Growing a file exposes old bytes beyond its former end.
    TailKept,
    /// The cleaner moves a block that has been overwritten meanwhile.
    StaleMove,
    /// A block is reused before its free is durable.
    FreedReused,
    /// New blocks are not flushed before the delta that maps them.
    PlacedUnflushed,
    /// The epoch of a mount is written after its first checkpoint. Only the tests of two devices find it.
    EpochLate,
    /// A mount leaves the epoch of the superblock. Only the tests of two devices find it.
    EpochKept,
    /// The backup of the superblock is written before the first copy is flushed.
    SuperblocksAtOnce,
    /// A changed superblock has the generation of the one before.
    GenerationKept,
    /// A volume of version 1 is upgraded after the first checkpoint of the mount.
    UpgradeLate,
    /// The superblock of an upgrade is not flushed before the first checkpoint.
    UpgradeUnflushed,
    /// A flag of a file is stored before the feature that it needs.
    FlagBeforeFeature,
    /// fdatasync(2) takes a change of the size for a change of times.
    DataSyncSkipsSize,
    /// A change of the label is written to one copy of the superblock, without a new generation.
    LabelInOneCopy,
    /// An unmount does not write the times of access that wait.
    AccessTimesUnwritten,
    /// A change of the mode changes the access list in a later transaction.
    ListBehindMode,
    /// A new file inherits its access lists in a later transaction.
    ListInheritedLate,
    /// The first access list is durable before the superblock declares it.
    ListUndeclared,
    /// A mount forgets the totals of the reservations.
    ReservationForgotten,
    /// Blocks that are written stay reserved.
    ReservationKept,
    /// No delta contains the unmaps of a punched hole or a zeroed range.
    PunchUnsaid,
    /// Roll-forward makes a file as long as its reservation.
    ReservationExposed,
    /// A truncation leaves the reservations beyond the new end.
    CutReservationKept,
    /// Dirty blocks in a punched hole are written afterwards.
    PunchedWritten,
    /// The first copy of the superblock of a resized volume is written before its new backup and slot are flushed.
    ResizeUnflushed,
    /// New segments are used before the superblock has them.
    ResizeEarly,
    /// The checkpoint of a resize does not say how many segments its usage table has.
    ResizeUnsaid,
    /// The slot behind the segments stays where it was.
    ResizeSlotForgotten,
    /// A volume is shrunk before what was behind its new end is durable elsewhere.
    ShrinkUnsettled,
    /// A mount takes the checkpoint of a shrink that a crash has interrupted, and the segments that were to go as new ones.
    ShrinkForgets,
    /// A mount forgets the wear ledger.
    LedgerForgotten,
    /// Roll-forward does not count the segments that the log has opened.
    EraseUnreplayed,
    /// Roll-forward loses the count of a segment that a delta releases.
    EraseLostByRelease,
    /// A repair forgets all counts of erase cycles.
    EraseForgottenByRepair,
    /// A repair forgets the wear ledger.
    LedgerForgottenByRepair,
    /// Defragmentation moves a block that has been overwritten meanwhile.
    StaleDefragmentation,
    /// Blocks that are put in order lose the history of their writes.
    DefragmentedAsNew,
    /// The segments of blocks that were put in order are Clean before the new copies are durable.
    DefragmentedReused,
    /// A sync of everything takes the data that was written back before it in parts for all of the data.
    PartsForSync,
    /// A sync that was announced counts as served.
    AnnouncedForServed,
}

impl Mutant {
    /// All mutants that the tests of one device find.
    pub const ALL: [Self; 58] = [
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
        Self::FlagBeforeFeature,
        Self::DataSyncSkipsSize,
        Self::LabelInOneCopy,
        Self::AccessTimesUnwritten,
        Self::ListBehindMode,
        Self::ListInheritedLate,
        Self::ListUndeclared,
        Self::ReservationForgotten,
        Self::ReservationKept,
        Self::PunchUnsaid,
        Self::ReservationExposed,
        Self::CutReservationKept,
        Self::PunchedWritten,
        Self::ResizeUnflushed,
        Self::ResizeEarly,
        Self::ResizeUnsaid,
        Self::ResizeSlotForgotten,
        Self::ShrinkUnsettled,
        Self::ShrinkForgets,
        Self::LedgerForgotten,
        Self::EraseUnreplayed,
        Self::EraseLostByRelease,
        Self::EraseForgottenByRepair,
        Self::LedgerForgottenByRepair,
        Self::StaleDefragmentation,
        Self::DefragmentedAsNew,
        Self::DefragmentedReused,
        Self::PartsForSync,
        Self::AnnouncedForServed,
    ];
}

sfs_mutant::switch!(Mutant);
