//! The numbers of a volume, as `sfs-ctl stat` prints them: [`VolumeReport`] as JSON, and a text for people.
//! docs/sfs-ctl.md lists them.

mod cleaning_report;
mod error_report;
mod health_report;
mod latency_report;
mod lock_report;
mod segments_report;
mod text;
mod volume_report;
mod wear_report;

pub use cleaning_report::CleaningReport;
pub(crate) use error_report::ErrorReport;
pub use health_report::{HealthFinding, HealthReport, HealthState};
pub use latency_report::LatencyReport;
pub use segments_report::{SegmentReport, SegmentsMessage, SegmentsReport, StateName};
pub use volume_report::VolumeReport;
pub(crate) use volume_report::{ActivityReport, GroupReport, Holds};
pub use wear_report::{DayReport, DeviceWearReport, EraseReport, MonthReport, WearReport};
