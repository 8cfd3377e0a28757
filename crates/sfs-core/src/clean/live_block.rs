//! Live blocks that are to be moved.

/// Number of blocks that one step reads, in one request where possible: 1 MiB.
pub(super) const STEP_BLOCKS: u64 = 256;

/// A live block.
pub(super) struct LiveBlock {
    /// Inode number and block number in the summary.
    pub(super) named: (u64, u32),
    pub(super) address: u64,
    /// Checksum in the mappings of all owners.
    pub(super) checksum: Option<u32>,
}
