//! The numbers of a volume, as `sfs-ctl stat` prints them: [`VolumeReport`] as JSON, and a text for people.
//! docs/sfs-ctl.md lists them.

mod cleaning_report;
mod error_report;
mod latency_report;
mod lock_report;
mod segments_report;
mod text;
mod volume_report;

pub use cleaning_report::CleaningReport;
pub use latency_report::LatencyReport;
pub use segments_report::{SegmentReport, SegmentsMessage, SegmentsReport, StateName};
pub(crate) use text::plain;
pub(crate) use volume_report::SegmentCountsReport;
pub use volume_report::VolumeReport;
