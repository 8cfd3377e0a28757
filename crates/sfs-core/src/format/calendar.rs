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

/// A time in seconds since 1970, which is printed in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime(pub i64);

impl fmt::Display for UtcTime {
    /// Writes the time as `2026-11-26 13:05:59 UTC`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, of_day) = (self.0.div_euclid(SECS_PER_DAY), self.0.rem_euclid(SECS_PER_DAY));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
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
fn civil(days: i64) -> (i64, i64, i64) {
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
        for (secs, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_689_000, "2026-11-26 10:30:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
        ] {
            assert_eq!(UtcTime(secs).to_string(), expected);
        }
        assert!(!UtcTime(i64::MIN).to_string().is_empty(), "however it was forged");
        assert!(!day(i64::MAX).to_string().is_empty());
        assert!(!Day(u32::MAX).month().to_string().is_empty());
    }
}
