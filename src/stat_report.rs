//! The numbers of a volume, as `sfs-ctl stat` prints them: [`VolumeReport`] as JSON, and a text for people.
//! docs/sfs-ctl.md lists them.

mod error_report;
mod lock_report;
mod text;
mod volume_report;

pub(crate) use text::plain;
pub(crate) use volume_report::SegmentsReport;
pub use volume_report::VolumeReport;
