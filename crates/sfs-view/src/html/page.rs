//! The page: its head, the sentences for a reader in a hurry, and the sections in their order.

use std::fmt::Write;

use super::{map, sections};
use crate::escape::escape;
use crate::hotness::HotnessHistogram;
use crate::model::{Heat, Numbers, Segments, read};
use crate::numbers::{bytes, factor, percent};
use crate::sentences::{self, Level};

/// Style of the page.
const STYLE: &str = include_str!("style.css");

/// Returns the report about a volume as an HTML page. `numbers` is the JSON of `sfs-ctl stat`, `segments` that of `sfs-ctl
/// segments`, `heat` that of `sfs-ctl hot` if there is one; `made` says when the report was made.
///
/// # Errors
///
/// The text of the error if a JSON is not understood.
pub fn report_page(
    numbers: &str,
    segments: &str,
    heat: Option<&str>,
    made: &str,
) -> Result<String, String> {
    let numbers: Numbers = read(numbers)?;
    let segments: Segments = read(segments)?;
    let heat: Heat = heat.map(read).transpose()?.unwrap_or_default();
    let name = match numbers.label.as_str() {
        "" => numbers.device.clone(),
        label => format!("{label} ({})", numbers.device),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>SFS report: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(&name)
    );
    let state = match &numbers.mount_point {
        Some(dir) => format!("mounted on {}", escape(dir)),
        None => "not mounted".into(),
    };
    let _ = writeln!(
        page,
        "<header><h1>SFS report: {}</h1><p class=\"lead\">{state}; made {}</p></header>",
        escape(&name),
        escape(made)
    );
    page += &summary(&numbers, &heat);
    page += &all_sections(&numbers, &segments, &heat);
    page += "</main>\n</body>\n</html>\n";
    Ok(page)
}

/// Returns the sentences for a reader in a hurry.
fn summary(numbers: &Numbers, heat: &Heat) -> String {
    let (level, health) = sentences::health(numbers);
    let class = match level {
        Level::Good => "good",
        Level::Warning => "warning",
        Level::Bad => "failing",
    };
    let mut html = format!(
        "<section class=\"summary\">\n<p class=\"{class}\"><strong>Health: {}.</strong> {}</p>\n",
        level.word().to_lowercase(),
        escape(&health)
    );
    let mut add = |name: &str, sentence: &str| {
        let _ = writeln!(html, "<p><strong>{name}:</strong> {}</p>", escape(sentence));
    };
    add("Wear", &sentences::wear(numbers));
    if let Some(files) = sentences::files(heat, 3) {
        add("Files that wear it most", &files);
    }
    if let Some(amplification) = sentences::amplification(numbers) {
        add("Write amplification", &amplification);
    }
    let space = &numbers.space;
    let used = space.total_blocks.saturating_sub(space.available_blocks);
    let size = |blocks: u64| bytes(blocks as f64 * space.block_bytes as f64);
    add(
        "Space",
        &format!(
            "{} of {} are used ({}).",
            size(used),
            size(space.total_blocks),
            percent(used as f64 / space.total_blocks.max(1) as f64)
        ),
    );
    if let Some(busiest) = numbers.latencies.iter().max_by_key(|latency| latency.total_us) {
        let all: u64 = numbers.latencies.iter().map(|latency| latency.total_us).sum();
        let share = percent(busiest.total_us as f64 / all.max(1) as f64);
        add(
            "Busy with",
            &format!(
                "{share} of the time of all requests since the mount went to '{}'.",
                busiest.operation
            ),
        );
    }
    html + "</section>\n"
}

fn all_sections(numbers: &Numbers, segments: &Segments, heat: &Heat) -> String {
    let segment_bytes = f64::from(segments.segment_blocks) * segments.block_bytes as f64;
    let map_lead = format!(
        "Each cell is a segment of {}, the unit in which SFS writes and cleans. A cell is filled as far as the segment \
         holds live data; its colour is the group of the data. Groups are listed from hot (overwritten soon) to cold.",
        bytes(segment_bytes)
    );
    let histogram = HotnessHistogram::new(segments, &numbers.groups);
    let centres = if histogram.has_policy_centres {
        "as the grouping policy computes them"
    } else {
        "the means of their segments"
    };
    let hotness_lead = format!(
        "Data that is overwritten soon is hot. Grouping works if each group, in its own colour, stands apart from the \
         others. The numbered marks are the centres of the groups, {centres}."
    );
    let life = numbers.life.log_write_amplification.map_or(String::new(), |life| {
        format!(" Over the life of the volume the amplification is {}.", factor(life))
    });
    let over_time_lead = format!(
        "Write amplification is the number of bytes written to the device for each byte of users; 1 would be ideal.{life}"
    );
    let (over_time, wear) = match &numbers.wear {
        Some(wear) => {
            (sections::over_time(wear), sections::wear(wear) + &sections::erases(segments))
        }
        None => (String::new(), sections::erases(segments)),
    };
    let mut html = sections::section(
        "Findings",
        "What was found, and what to do about it.",
        &sections::findings(numbers),
    );
    html +=
        &sections::section("Segment map", &map_lead, &map::map(segments, &histogram.hot_to_cold()));
    html += &sections::section(
        "Utilization",
        "Used segments by the share of live data in them. Cleaning is cheap if segments are nearly full or nearly empty.",
        &sections::utilization(segments),
    );
    html += &sections::section(
        "Groups",
        "Data that is expected to be overwritten at similar times shares segments.",
        &sections::groups(numbers),
    );
    html += &sections::section("Hotness", &hotness_lead, &sections::hotness(&histogram));
    html += &sections::section(
        "Files that were written most",
        "Bytes that were written to each file since it was made, without what cleaning moved.",
        &sections::files(heat),
    );
    html += &sections::section("Written over time", &over_time_lead, &over_time);
    html += &sections::section("Wear", &escape(&sentences::wear(numbers)), &wear);
    html += &sections::section(
        "Latency",
        "Time of the daemon for a request, since the mount. Half of the requests took no longer than p50, 99 % no longer than p99.",
        &sections::latencies(&numbers.latencies),
    );
    html += &sections::section(
        "Last cleanings",
        "Cleaning moves live data out of a segment, so that the segment can be written again.",
        &sections::cleanings(&numbers.cleanings),
    );
    html += &sections::section(
        "Volume",
        "Facts about the volume.",
        &sections::facts(numbers, segments),
    );
    html
}
