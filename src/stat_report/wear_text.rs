//! The wear of a device in words.

use std::fmt::Write;

use super::device_wear::DeviceWearReport;
use super::wear_report::WearReport;

/// Years from which on no number is printed.
const YEARS_MANY: f64 = 100.0;

const MONTHS_PER_YEAR: f64 = 12.0;

/// Returns the wear of `report` in words, with the assumptions.
pub(super) fn sentence(report: &WearReport) -> String {
    let WearReport { erases, times_written, .. } = report;
    let mut text = format!(
        "This device has been written {times_written:.1} times over. The most used segment {}, a segment on average {:.1} \
         times. ",
        times(erases.max),
        erases.mean
    );
    let cycles = thousands(report.endurance_cycles);
    let assumed = "if the device spreads its writes evenly and adds none of its own";
    match report.years_left {
        Some(years) => {
            let _ = write!(
                text,
                "At the rate of the last 30 days, {cycles} cycles last {}, {assumed}.",
                duration(years)
            );
        }
        None if report.bytes_per_day.is_some() => {
            text.push_str("Nothing was written in the last 30 days.");
        }
        None => text.push_str("How long it will last shows after a day of use."),
    }
    if let Some(DeviceWearReport { life_used_percent: Some(percent), .. }) = report.device {
        let _ = match percent {
            0..=100 => write!(
                text,
                " The device itself states that at most {percent}% of its life is used."
            ),
            _ => write!(text, " The device itself states that its life is over."),
        };
    }
    if report.recovered_chunks > 0 {
        let _ = write!(
            text,
            " After crashes, {} chunks were counted from the log.",
            report.recovered_chunks
        );
    }
    text
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn duration(years: f64) -> String {
    if years >= YEARS_MANY {
        format!("more than {YEARS_MANY:.0} years")
    } else if years >= 10.0 {
        format!("{years:.0} years")
    } else if years >= 1.0 {
        format!("{years:.1} years")
    } else {
        format!("{:.1} months", years * MONTHS_PER_YEAR)
    }
}

fn thousands(number: u32) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wear_report::EraseReport;
    use super::*;

    fn report() -> WearReport {
        WearReport {
            device_bytes: 31 << 30,
            volume_bytes: 10 << 30,
            times_written: 3.1,
            bytes_per_day: Some((10u64 << 30) as f64 * 2996.9 / 14.0 / 365.25),
            erases: EraseReport { total: 24, mean: 2.4, max: 9, max_segment: 7 },
            ..WearReport::default()
        }
    }

    #[test]
    fn the_promise_names_its_assumptions() {
        let text = report().assuming(3000).sentence;
        let expected = "This device has been written 3.1 times over. The most used segment 9 times, a segment on average 2.4 \
                        times. At the rate of the last 30 days, 3,000 cycles last 14 years, if the device spreads its \
                        writes evenly and adds none of its own.";
        assert_eq!(text, expected);
        let few = report().assuming(300);
        assert!(few.sentence.contains("300 cycles last 1.4 years"), "{}", few.sentence);
        assert!(report().assuming(1).sentence.contains("1 cycles last 0.0 months"));
        assert!(report().assuming(1_000_000).sentence.contains("1,000,000 cycles last more than"));
    }

    #[test]
    fn what_the_device_states_and_crashes_are_named() {
        let young = WearReport { bytes_per_day: None, recovered_chunks: 12, ..report() };
        let text = young.assuming(3000).sentence;
        assert!(text.contains("shows after a day") && text.contains("12 chunks"), "{text}");
        let device = |percent| {
            Some(DeviceWearReport { life_used_percent: Some(percent), ..Default::default() })
        };
        let text = WearReport { device: device(30), ..report() }.assuming(3000).sentence;
        assert!(text.contains("at most 30% of its life"), "{text}");
        let text = WearReport { device: device(110), ..report() }.assuming(3000).sentence;
        assert!(text.contains("its life is over"), "{text}");
    }
}
