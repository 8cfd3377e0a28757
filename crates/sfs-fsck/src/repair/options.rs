//! Options that the caller of a repair chooses.

use sfs_core::format::Timestamp;

/// Options of a repair.
#[derive(Clone, Copy, Debug)]
pub struct RepairOptions {
    /// `true` if all data is read, and blocks that do not match their checksums are unmapped.
    pub data: bool,
    /// `true` if a repair is made only if the fixes of all findings are safe
    /// ([`crate::Finding::is_safe`]).
    pub preen: bool,
    /// Present time, for new inodes.
    pub now: Timestamp,
}
