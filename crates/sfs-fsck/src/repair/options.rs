//! Options of a repair.

use sfs_core::format::Timestamp;

/// Extent of a repair.
#[derive(Clone, Copy, Debug)]
pub struct RepairOptions {
    /// Read all data, and unmap blocks that do not match their checksums.
    pub data: bool,
    /// Repair only if the fixes of all findings are safe ([`crate::Finding::is_safe`]).
    pub preen: bool,
    /// Present time, for new inodes.
    pub now: Timestamp,
}
