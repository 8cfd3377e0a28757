//! The picture in the README: SFS beside ext4, two bars a program, for speed and for the flash that is written.
//!
//! It is drawn from the lines that `--csv` writes, so that it can be drawn again without measuring.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{super::table::median, load::Program};

/// Figures of the two bars: units of work a second, and flash pages for each.
const SPEED: &str = "units a second";
const PAGES: &str = "flash pages a unit";

/// Each bar ends at this factor, or its inverse.
const FACTOR_MAX: f64 = 64.0;

const NAME_WIDTH: f64 = 96.0;
const HALF_WIDTH: f64 = 112.0;
const PANEL_WIDTH: f64 = NAME_WIDTH + 2.0 * HALF_WIDTH + 40.0;
const ROW_HEIGHT: f64 = 34.0;
const TOP: f64 = 74.0;

/// Factors of SFS, where ext4 is 1, by device and program.
type Factors = BTreeMap<String, Vec<(&'static str, f64, f64)>>;

/// Returns the picture of the most used state in these lines, or `None` if no program ran on both filesystems.
pub(super) fn draw(csv: &str) -> Option<String> {
    let rows = csv.lines().skip(1).filter_map(Line::of).collect::<Vec<_>>();
    let state = rows.iter().map(|row| row.state).max_by_key(|state| percent(state))?;
    let factors = factors(&rows, state);
    if factors.is_empty() {
        return None;
    }
    let programs = factors.values().map(Vec::len).max()?;
    let width = PANEL_WIDTH * factors.len() as f64;
    let height = TOP + ROW_HEIGHT * programs as f64 + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\">\n<title>SFS beside ext4</title>\n{STYLE}\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (place, (device, programs)) in factors.iter().enumerate() {
        let state = match percent(state) {
            0 => "new".to_owned(),
            percent => format!("used, {percent} % full"),
        };
        panel(&mut svg, place as f64 * PANEL_WIDTH, &format!("{device}, {state}"), programs);
    }
    Some(svg + "</svg>\n")
}

const STYLE: &str = "<style>
.paper{fill:#fff}text{fill:#222}.faint{fill:#666;font-size:10px}.title{font-size:14px;font-weight:bold}
.speed{fill:#0072b2}.flash{fill:#d55e00}line{stroke:#888}.grid{stroke:#ddd}
@media(prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6edf3}.faint{fill:#9aa4af}.speed{fill:#56b4e9}.flash{fill:#e69f00}.grid{stroke:#30363d}}
</style>";

/// One line of the CSV file, of a program that ran alone.
struct Line<'a> {
    device: &'a str,
    state: &'a str,
    program: &'a str,
    filesystem: &'a str,
    figure: &'a str,
    value: f64,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let columns = line.split(',').collect::<Vec<_>>();
        let [device, state, program, "", filesystem, _, figure, value] = columns[..] else {
            return None;
        };
        Some(Self { device, state, program, filesystem, figure, value: value.parse().ok()? })
    }
}

/// Returns how full volumes are in a state: 0 for new ones.
fn percent(state: &str) -> u32 {
    state.strip_prefix("used-").and_then(|percent| percent.parse().ok()).unwrap_or(0)
}

fn factors(rows: &[Line<'_>], state: &str) -> Factors {
    let mut factors = Factors::new();
    for row in rows.iter().filter(|row| row.state == state) {
        factors.entry(row.device.to_owned()).or_default();
    }
    for (device, of_device) in &mut factors {
        for program in Program::SINGLE.map(Program::name) {
            let factor = |figure: &str| {
                let of = |filesystem: &str| {
                    let is_cell = |row: &&Line<'_>| {
                        (row.device, row.state, row.program) == (device, state, program)
                            && (row.filesystem, row.figure) == (filesystem, figure)
                    };
                    median(rows.iter().filter(is_cell).map(|row| row.value))
                };
                Some(of("SFS")? / of("ext4")?)
            };
            if let Some((speed, pages)) = factor(SPEED).zip(factor(PAGES)) {
                of_device.push((program, speed, pages));
            }
        }
    }
    factors.retain(|_, programs| !programs.is_empty());
    factors
}

/// Draws one device.
fn panel(svg: &mut String, left: f64, title: &str, programs: &[(&str, f64, f64)]) {
    let middle = left + NAME_WIDTH + HALF_WIDTH;
    let bottom = TOP + ROW_HEIGHT * programs.len() as f64;
    let mut text = |x: f64, y: f64, class: &str, anchor: &str, content: &str| {
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{content}</text>"
        );
    };
    text(left + 12.0, 22.0, "title", "start", title);
    text(middle, 44.0, "faint", "middle", "ext4 = 1");
    text(middle - 34.0, 44.0, "faint", "end", "◀ slower, less flash");
    text(middle + 34.0, 44.0, "faint", "start", "faster, more flash ▶");
    for factor in [1.0 / 32.0, 1.0 / 8.0, 8.0, 32.0] {
        text(middle + offset(factor), 60.0, "faint", "middle", &times(factor));
    }
    for (row, (name, speed, pages)) in programs.iter().enumerate() {
        let y = TOP + ROW_HEIGHT * row as f64;
        text(left + 12.0, y + 17.0, "", "start", name);
        for (factor, dy) in [(speed, 10.0), (pages, 23.0)] {
            let (at, anchor) = if *factor >= 1.0 { (4.0, "start") } else { (-4.0, "end") };
            text(middle + offset(*factor) + at, y + dy, "faint", anchor, &times(*factor));
        }
    }
    for factor in [1.0 / 32.0, 1.0 / 8.0, 1.0, 8.0, 32.0] {
        let x = middle + offset(factor);
        let class = if factor == 1.0 { "axis" } else { "grid" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>",
            TOP - 8.0
        );
    }
    for (row, (_, speed, pages)) in programs.iter().enumerate() {
        let y = TOP + ROW_HEIGHT * row as f64;
        bar(svg, middle, y + 1.0, "speed", *speed);
        bar(svg, middle, y + 14.0, "flash", *pages);
    }
    let _ = writeln!(
        svg,
        "<rect class=\"speed\" x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/><text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">work a second</text>\
         <rect class=\"flash\" x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/><text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">flash written for the same work</text>",
        left + 12.0,
        bottom + 8.0,
        left + 26.0,
        bottom + 17.0,
        left + 124.0,
        bottom + 8.0,
        left + 138.0,
        bottom + 17.0,
    );
}

fn bar(svg: &mut String, middle: f64, y: f64, class: &str, factor: f64) {
    let end = middle + offset(factor);
    let (x, width) = (middle.min(end), (end - middle).abs().max(1.0));
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"11\"/>"
    );
}

/// Returns the distance of a factor from the middle, on a logarithmic axis.
fn offset(factor: f64) -> f64 {
    HALF_WIDTH * (factor.ln() / FACTOR_MAX.ln()).clamp(-1.0, 1.0)
}

/// Formats a factor: `12×`, `1.3×`, `1/24`.
fn times(factor: f64) -> String {
    let short = |number: f64| match number {
        9.95.. => format!("{number:.0}"),
        _ => format!("{number:.1}").trim_end_matches(".0").to_owned(),
    };
    if factor >= 0.7 {
        format!("{}×", short(factor))
    } else {
        format!("1/{}", short(1.0 / factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "device,state,program,part,filesystem,run,figure,value
SD card,new,git,,SFS,0,units a second,1
SD card,used-90,git,,SFS,0,units a second,30
SD card,used-90,git,,SFS,1,units a second,34
SD card,used-90,git,,ext4,0,units a second,2
SD card,used-90,git,,SFS,0,flash pages a unit,5
SD card,used-90,git,,ext4,0,flash pages a unit,100
SD card,used-90,camera,,ext4,0,flash pages a unit,100
";

    #[test]
    fn programs_on_both_filesystems_get_two_bars() {
        let svg = draw(CSV).expect("a picture");
        for text in ["SD card, used, 90 % full", ">git<", ">16×<", ">1/20<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("camera"), "it ran on ext4 alone");
        assert_eq!(draw("device,state\n"), None);
    }

    #[test]
    fn equal_filesystems_have_no_bar_and_large_factors_end_at_the_edge() {
        assert_eq!((offset(1.0), offset(1e9), offset(1e-9)), (0.0, HALF_WIDTH, -HALF_WIDTH));
        assert_eq!([1.0, 0.5, 0.05, 25.2].map(times), ["1×", "1/2", "1/20", "25×"]);
    }
}
