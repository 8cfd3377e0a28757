//! The wear of a device, and how long it will last by an assumed endurance.

use std::path::Path;

use sfs_core::format::{Day, WearBytes, WearLedger};
use sfs_core::request::Wear;

use super::device_wear;
use super::wear_report::{DayReport, MonthReport, WearReport};
use super::wear_text;

/// Cycles that cells are assumed to endure: those of TLC flash, as most cards have it.
pub const ENDURANCE_CYCLES_DEFAULT: u32 = 3000;

/// Number of days whose writes are the rate of wear.
const RATE_DAYS: u32 = 30;

pub(crate) const DAYS_PER_YEAR: f64 = 365.25;

impl WearReport {
    /// Makes the report of `wear` on day `today`, for the device at `path`.
    pub(crate) fn new(wear: &Wear, today: Day, path: &Path) -> Self {
        let Wear { ledger, device_bytes, volume_bytes, erases } = wear;
        let WearBytes { user, cleaning, metadata, defragmentation } = ledger.totals;
        let report = Self {
            since: ledger.since.to_string(),
            user_bytes: user,
            cleaning_bytes: cleaning,
            metadata_bytes: metadata,
            defragmentation_bytes: defragmentation,
            device_bytes: *device_bytes,
            recovered_chunks: ledger.recovered_chunks,
            days: ledger.days().map(|(day, bytes)| DayReport::new(day, bytes)).collect(),
            months: ledger
                .months()
                .map(|(month, bytes)| MonthReport::new(month.to_string(), bytes))
                .collect(),
            erases: erases.into(),
            volume_bytes: *volume_bytes,
            times_written: *device_bytes as f64 / (*volume_bytes).max(1) as f64,
            bytes_per_day: bytes_per_day(ledger, today),
            device: device_wear::of_path(path),
            ..Self::default()
        };
        report.assuming(ENDURANCE_CYCLES_DEFAULT)
    }

    /// Returns the report under the assumption that cells endure `cycles` cycles.
    #[must_use]
    pub fn assuming(mut self, cycles: u32) -> Self {
        self.endurance_cycles = cycles;
        let left = f64::from(cycles) * self.volume_bytes as f64 - self.device_bytes as f64;
        let rate = self.bytes_per_day.filter(|rate| *rate > 0.0);
        self.years_left = rate.map(|rate| left.max(0.0) / rate / DAYS_PER_YEAR);
        self.sentence = wear_text::sentence(&self);
        self
    }
}

/// Returns the mean of the bytes that were written on each of the last days up to `today`.
fn bytes_per_day(ledger: &WearLedger, today: Day) -> Option<f64> {
    let first = Day(today.0.saturating_sub(RATE_DAYS - 1)).max(ledger.since);
    if ledger.since >= today {
        return None;
    }
    let recent = ledger.days().filter(|(day, _)| (first..=today).contains(day));
    let bytes: u64 = recent.map(|(_, bytes)| bytes.sum()).sum();
    Some(bytes as f64 / f64::from(today.0 - first.0 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(days: &[(u32, u64)]) -> WearLedger {
        let mut ledger = WearLedger::new(Day(days[0].0));
        for (day, user) in days {
            ledger.add(Day(*day), WearBytes { user: *user, ..WearBytes::default() });
        }
        ledger
    }

    #[test]
    fn the_rate_is_that_of_the_last_thirty_days_of_the_ledger() {
        assert_eq!(bytes_per_day(&ledger(&[(100, 5)]), Day(100)), None, "the first day");
        assert_eq!(bytes_per_day(&ledger(&[(100, 5), (101, 7)]), Day(101)), Some(6.0));
        assert_eq!(
            bytes_per_day(&ledger(&[(100, 40)]), Day(103)),
            Some(10.0),
            "days without writes"
        );
        let old = ledger(&[(100, 900), (171, 300), (200, 300)]);
        assert_eq!(bytes_per_day(&old, Day(200)), Some(20.0));
        assert_eq!(bytes_per_day(&old, Day(99)), None, "the clock was set back");
    }

    #[test]
    fn life_ends_when_every_cell_has_had_its_cycles() {
        let report = |bytes_per_day| WearReport {
            device_bytes: 1000,
            volume_bytes: 100,
            bytes_per_day,
            ..WearReport::default()
        };
        let years = |cycles| report(Some(2.0)).assuming(cycles).years_left;
        assert_eq!(years(20), Some(500.0 / DAYS_PER_YEAR));
        assert_eq!(years(10), Some(0.0));
        assert_eq!(years(3), Some(0.0), "the cells have had more");
        assert_eq!(report(None).assuming(20).years_left, None);
        assert_eq!(report(Some(0.0)).assuming(20).years_left, None);
    }
}
