//! The numbers of a volume, as `sfs-ctl stat` prints them: [`VolumeReport`] as JSON, and a text for people.
//! docs/sfs-ctl.md lists them.

mod device_wear;
mod error_report;
mod health_judgement;
mod health_report;
mod lock_report;
mod text;
mod volume_report;
mod wear_life;
mod wear_report;
mod wear_text;

pub use device_wear::DeviceWearReport;
pub use health_report::{HealthFinding, HealthReport, HealthState};
pub use volume_report::VolumeReport;
pub use wear_life::ENDURANCE_CYCLES_DEFAULT;
pub use wear_report::{DayReport, EraseReport, MonthReport, WearReport};
