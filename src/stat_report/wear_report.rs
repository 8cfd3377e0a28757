//! The wear of a device: bytes by day and by origin, and erase cycles, as JSON. `docs/sfs-ctl.md` states names and units.

use serde::{Deserialize, Serialize};
use sfs_core::format::{Day, WearBytes};
use sfs_core::request::Erases;

use super::device_wear::DeviceWearReport;

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
    /// Bytes of file data that defragmentation moved.
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
    /// Bytes of the volume.
    #[serde(default)]
    pub volume_bytes: u64,
    /// `device_bytes` over `volume_bytes`.
    pub times_written: f64,
    /// Bytes written a day, as the mean of the last 30 days, or of the days since the ledger began; `None` if the ledger is
    /// younger than a day.
    #[serde(default)]
    pub bytes_per_day: Option<f64>,
    /// Cycles that the cells of the device endure, by assumption.
    pub endurance_cycles: u32,
    /// Years until every cell has had `endurance_cycles` at the rate `bytes_per_day`; `None` if the rate is unknown or 0.
    pub years_left: Option<f64>,
    /// Wear of the device as the kernel knows it; `None` if it knows nothing.
    pub device: Option<DeviceWearReport>,
    /// The wear in words, with the assumptions.
    pub sentence: String,
}

impl DayReport {
    pub(super) fn new(day: Day, bytes: WearBytes) -> Self {
        let MonthReport {
            user_bytes, cleaning_bytes, metadata_bytes, defragmentation_bytes, ..
        } = MonthReport::new(String::new(), bytes);
        let day = day.to_string();
        Self { day, user_bytes, cleaning_bytes, metadata_bytes, defragmentation_bytes }
    }
}

impl MonthReport {
    pub(super) fn new(month: String, bytes: WearBytes) -> Self {
        Self {
            month,
            user_bytes: bytes.user,
            cleaning_bytes: bytes.cleaning,
            metadata_bytes: bytes.metadata,
            defragmentation_bytes: bytes.defragmentation,
        }
    }
}

impl From<&Erases> for EraseReport {
    fn from(erases: &Erases) -> Self {
        let Erases { segments, total, max, max_segment } = *erases;
        let mean = total as f64 / f64::from(segments.max(1));
        Self { total, mean, max: max.into(), max_segment }
    }
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
