//! Numbers as people read them: bytes, counts, times, shares, and the round ticks of an axis.

/// Replaces control characters and those that change the direction of text: names come from volumes, which may be
/// forged.
pub(crate) fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if is_hidden(c) { '?' } else { c }).collect()
}

/// Writes a number of bytes with a binary unit and up to three digits: `8 MiB`, `2.9 GiB`.
pub(crate) fn bytes(count: f64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = if count.is_finite() { count.max(0.0) } else { 0.0 };
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 9.95 && value.fract() != 0.0);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Writes a count with a comma after each three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a count in at most five characters: `7`, `0.4`, `1234`, `12.3k`.
pub(crate) fn short(count: f64) -> String {
    match count {
        0.0 => "0".into(),
        c if c < 9.95 && c.fract().abs() > 0.05 => format!("{c:.1}"),
        c if c < 9_999.5 => format!("{c:.0}"),
        c if c < 99_950.0 => format!("{:.1}k", c / 1e3),
        c if c < 999_500.0 => format!("{:.0}k", c / 1e3),
        c if c < 99_950_000.0 => format!("{:.1}M", c / 1e6),
        c => format!("{:.0}M", c / 1e6),
    }
}

/// Writes a time in microseconds with two or three digits: `34 us`, `1.2 ms`, `20 s`.
pub(crate) fn micros(us: u64) -> String {
    let us = us as f64;
    let (value, unit) = match us {
        us if us < 999.5 => return format!("{us:.0} us"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// Writes a time in whole milliseconds: `<1 ms`, `34 ms`, `2.5 s`.
pub(crate) fn millis(ms: u64) -> String {
    if ms == 0 { "<1 ms".into() } else { micros(ms.saturating_mul(1000)) }
}

/// Writes a time that has passed: `now`, `12 s`, `3 min`, `2 h`, `5 d`.
pub(crate) fn ago(secs: u64) -> String {
    match secs {
        0..=1 => "now".into(),
        2..=119 => format!("{secs} s"),
        120..=7_199 => format!("{} min", secs / 60),
        7_200..=172_799 => format!("{} h", secs / 3_600),
        _ => format!("{} d", secs / 86_400),
    }
}

/// Writes a share (0 to 1) in percent.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.95 { "<1 %".into() } else { format!("{percent:.0} %") }
}

/// Returns a factor as text: `1.27`, `12.3`.
pub(crate) fn factor(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Returns ticks of an axis from 0 to at least `max`: at most six, each a round number (1, 2 or 5 times a power of ten).
pub(crate) fn ticks(max: f64) -> Vec<f64> {
    ticks_by(max, |least| {
        let power = 10_f64.powf(least.log10().floor());
        let round =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= least * 0.999_999);
        power * round.unwrap_or(10.0)
    })
}

/// Returns ticks of an axis of whole numbers: as [`ticks`], at least 1 apart.
pub(crate) fn whole_ticks(max: u64) -> Vec<f64> {
    if max <= 1 { vec![0.0, 1.0] } else { ticks((max as f64).max(5.0)) }
}

/// Returns ticks of an axis of bytes: as [`ticks`], with steps of 1, 2 or 5 times 1, 10 or 100 of a binary unit.
pub(crate) fn byte_ticks(max: f64) -> Vec<f64> {
    ticks_by(max, |least| {
        let unit = 1024_f64.powf(least.max(1.0).log(1024.0).floor());
        let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1024.0];
        unit * steps.into_iter().find(|step| step * unit >= least * 0.999_999).unwrap_or(1024.0)
    })
}

fn ticks_by(max: f64, round_up: impl Fn(f64) -> f64) -> Vec<f64> {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let step = round_up(max / 5.0);
    let count = (max / step - 1e-6).ceil().clamp(1.0, 10.0) as usize;
    (0..=count).map(|at| at as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        let shown: Vec<String> =
            [0.0, 999.0, 1000.0, 8.0 * 1048576.0, 1e12, f64::NAN].map(bytes).into();
        assert_eq!(shown, ["0 bytes", "999 bytes", "1.0 KiB", "8 MiB", "931 GiB", "0 bytes"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let counts = [0.0, 0.42, 7.0, 9_999.0, 10_000.0, 99_949.0, 250_000.0, 1e6, 2e8];
        let shown = counts.map(short);
        assert_eq!(shown, ["0", "0.4", "7", "9999", "10.0k", "99.9k", "250k", "1.0M", "200M"]);
        assert!(shown.iter().all(|text| text.len() <= 5));
        let times = [7, 999, 1_000, 12_345, 999_499, 999_500, 60_000_000].map(micros);
        assert_eq!(times, ["7 us", "999 us", "1.0 ms", "12 ms", "999 ms", "1.0 s", "60 s"]);
        assert_eq!([0, 34, 2_500].map(millis), ["<1 ms", "34 ms", "2.5 s"]);
        assert_eq!([0, 59, 120, 7_200, 172_800].map(ago), ["now", "59 s", "2 min", "2 h", "2 d"]);
        assert_eq!([0.0, 0.001, 0.5, 1.0].map(percent), ["0 %", "<1 %", "50 %", "100 %"]);
    }

    #[test]
    fn ticks_are_round_and_reach_the_largest_value() {
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(7.3), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(whole_ticks(0), [0.0, 1.0]);
        assert_eq!(whole_ticks(3), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let mib = 1_048_576.0;
        assert_eq!(byte_ticks(180.0 * mib), [0.0, 50.0, 100.0, 150.0, 200.0].map(|n| n * mib));
        for max in (1..4000).map(|step| f64::from(step) * 17.3) {
            for ticks in [ticks(max), byte_ticks(max)] {
                let last = ticks[ticks.len() - 1];
                assert!(last >= max * 0.999 && ticks.len() <= 7, "{max}: {ticks:?}");
            }
        }
    }

    #[test]
    fn no_name_can_control_the_terminal_or_the_direction_of_text() {
        assert_eq!(plain("a\u{1b}[2Jb\n\u{9b}\u{202e}c"), "a?[2Jb???c");
    }
}
