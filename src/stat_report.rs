//! The numbers of a volume, as `sfs-ctl stat` prints them: [`VolumeReport`] as JSON, and a text for people.
//! docs/sfs-ctl.md lists them.

mod cleaning_report;
mod device_wear;
mod error_report;
mod health_judgement;
mod health_report;
mod latency_report;
mod lock_report;
mod reads_report;
mod sandbox_report;
mod segments_report;
mod store_price;
mod store_report;
mod text;
mod volume_report;
mod wear_life;
mod wear_report;
mod wear_text;

pub use cleaning_report::CleaningReport;
pub use device_wear::DeviceWearReport;
pub(crate) use device_wear::files_of as device_wear_files;
pub(crate) use error_report::ErrorReport;
pub use health_report::{HealthFinding, HealthReport, HealthState};
pub use latency_report::LatencyReport;
pub use reads_report::ReadsReport;
pub use sandbox_report::SandboxReport;
pub use segments_report::{SegmentReport, SegmentsMessage, SegmentsReport, StateName};
pub use store_price::{StorePrice, StorePrices};
pub use store_report::StoreReport;
pub(crate) use text::plain;
pub(crate) use volume_report::SegmentCountsReport;
pub use volume_report::VolumeReport;
pub(crate) use volume_report::{ActivityReport, GroupReport, Holds};
pub(crate) use wear_life::DAYS_PER_YEAR;
pub use wear_life::ENDURANCE_CYCLES_DEFAULT;
pub use wear_report::{DayReport, EraseReport, MonthReport, WearReport};
