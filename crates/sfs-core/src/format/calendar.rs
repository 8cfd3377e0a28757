//! Days and months of the Gregorian calendar, in UTC.

use std::fmt;

use super::Timestamp;

const SECS_PER_DAY: i64 = 86_400;

/// A day: a number of days after 1970-01-01. Earlier days count as that day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub u32);

/// A month: the number of months after January of the year 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(pub u32);

impl Day {
    /// Returns the day of `time`.
    pub fn of(time: Timestamp) -> Self {
        let days = time.secs.div_euclid(SECS_PER_DAY);
        Self(u32::try_from(days.max(0)).unwrap_or(u32::MAX))
    }

    /// Returns the month of this day.
    pub fn month(self) -> Month {
        let (year, month, _) = civil(self.0.into());
        Month(year as u32 * 12 + month as u32 - 1)
    }
}

impl fmt::Display for Day {
    /// Writes the day as `2026-11-26`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0.into());
        write!(f, "{year}-{month:02}-{day:02}")
    }
}

impl fmt::Display for Month {
    /// Writes the month as `2026-11`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:02}", self.0 / 12, self.0 % 12 + 1)
    }
}

/// Returns the Gregorian year, month and day of a number of days after 1970-01-01: `civil_from_days` of
/// "chrono-Compatible Low-Level Date Algorithms" (Hinnant).
pub(super) fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin on March 1, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_months_are_printed_for_people() {
        let day = |secs| Day::of(Timestamp { secs, nanos: 0 });
        for (secs, expected, month) in [
            (0, "1970-01-01", "1970-01"),
            (-1, "1970-01-01", "1970-01"),
            (951_782_400, "2000-02-29", "2000-02"),
            (951_868_799, "2000-02-29", "2000-02"),
            (951_868_800, "2000-03-01", "2000-03"),
            (1_798_761_599, "2026-12-31", "2026-12"),
        ] {
            assert_eq!(day(secs).to_string(), expected);
            assert_eq!(day(secs).month().to_string(), month);
        }
        assert!(!day(i64::MAX).to_string().is_empty());
        assert!(!Day(u32::MAX).month().to_string().is_empty());
    }
}
