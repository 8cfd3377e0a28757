//! The wear of a device: bytes by day and by origin, and erase cycles, as JSON. `docs/sfs-ctl.md` states names and units.

use serde::{Deserialize, Serialize};

/// Wear of the device since the volume was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WearReport {
    /// First day of the ledger, as `2026-11-26` (UTC).
    pub since: String,
    /// Bytes of file data that were written for users.
    pub user_bytes: u64,
    /// Bytes of file data that cleaning moved.
    pub cleaning_bytes: u64,
    /// Bytes of tree nodes, checkpoints, summaries and deltas.
    pub metadata_bytes: u64,
    /// Bytes of file data that defragmentation moved; 0 as long as there is no defragmentation.
    pub defragmentation_bytes: u64,
    /// Bytes written to the device; more than the sum of the parts if a program without a ledger has written, too.
    pub device_bytes: u64,
    /// Chunks that mounts have found behind the last checkpoint after a crash, and counted.
    pub recovered_chunks: u64,
    /// Days on which anything was written, ascending.
    pub days: Vec<DayReport>,
    /// Months before the first of `days`, ascending.
    pub months: Vec<MonthReport>,
    /// Erase cycles of the segments.
    pub erases: EraseReport,
    /// `device_bytes` over the size of the volume.
    pub times_written: f64,
    /// Cycles that the cells of the device endure, by assumption.
    pub endurance_cycles: u32,
    /// Years until every cell has had `endurance_cycles` at the rate of the last 30 days; `None` if the ledger is younger than
    /// a day, or nothing was written.
    pub years_left: Option<f64>,
    /// What the kernel knows about the wear of the device; `None` if it knows nothing.
    pub device: Option<DeviceWearReport>,
    /// The wear in words, with the assumptions.
    pub sentence: String,
}

/// Bytes written on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayReport {
    /// The day, as `2026-11-26` (UTC).
    pub day: String,
    /// Bytes of file data that were written for users.
    pub user_bytes: u64,
    /// Bytes of file data that cleaning moved.
    pub cleaning_bytes: u64,
    /// Bytes of tree nodes, checkpoints, summaries and deltas.
    pub metadata_bytes: u64,
    /// Bytes of file data that defragmentation moved.
    pub defragmentation_bytes: u64,
}

/// Bytes written in one month.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonthReport {
    /// The month, as `2026-11` (UTC).
    pub month: String,
    /// Bytes of file data that were written for users.
    pub user_bytes: u64,
    /// Bytes of file data that cleaning moved.
    pub cleaning_bytes: u64,
    /// Bytes of tree nodes, checkpoints, summaries and deltas.
    pub metadata_bytes: u64,
    /// Bytes of file data that defragmentation moved.
    pub defragmentation_bytes: u64,
}

/// Erase cycles: how often segments were taken into use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EraseReport {
    /// Sum over all segments.
    pub total: u64,
    /// Mean over all segments.
    pub mean: f64,
    /// Count of the most used segment.
    pub max: u32,
    /// Number of the most used segment.
    pub max_segment: u32,
}

/// Wear of the device as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceWearReport {
    /// The file in sysfs.
    pub source: String,
    /// Used part of the device's life in percent, an upper bound; above 100 if the life is exceeded. `None` if it is not
    /// stated.
    pub life_used_percent: Option<u32>,
    /// State of the reserved blocks: `"normal"`, `"warning"` or `"urgent"`; `None` if it is not stated.
    pub pre_eol: Option<String>,
}
