//! The sections of the report, each as HTML.

use std::fmt::Write;

use super::charts::{Bar, BarChart, label_positions};
use super::map::group_name;
use crate::escape::escape;
use crate::hotness::HotnessHistogram;
use crate::model::{Cleaning, Heat, Latency, Numbers, Segments, State, Wear, Written};
use crate::numbers::{
    ago, byte_ticks, bytes, factor, grouped, micros, millis, percent, ticks, whole_ticks,
};
use crate::sentences;

/// Largest number of files in the table.
const FILES_MAX: usize = 10;

/// Number of cleaning rounds in their table.
const ROUNDS_MAX: usize = 10;

/// Number of bins of the utilization histogram.
const BINS: usize = 10;

/// Returns a section with its heading; nothing without content.
pub(super) fn section(title: &str, lead: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!(
        "<section>\n<h2>{}</h2>\n<p class=\"lead\">{lead}</p>\n{content}\n</section>\n",
        escape(title)
    )
}

/// Returns a table of a class: "numbers", whose cells do not break but for the first of a row, or "text".
fn table(class: &str, headings: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = String>| -> String {
        cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect()
    };
    let mut html = format!("<div class=\"scroll\"><table class=\"{class}\">\n<thead><tr>");
    html += &cells("th", &mut headings.iter().map(|heading| escape(heading)));
    html += "</tr></thead>\n<tbody>\n";
    for row in rows {
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", &mut row.iter().cloned()));
    }
    html + "</tbody></table></div>"
}

/// Returns the findings with their remedies.
pub(super) fn findings(numbers: &Numbers) -> String {
    let rows: Vec<Vec<String>> = sentences::findings(numbers)
        .iter()
        .map(|finding| {
            vec![escape(&finding.sentence), grouped(finding.count), escape(&finding.remedy)]
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        table("text", &["Finding", "Times", "What to do"], &rows)
    }
}

/// Returns the files that were written most.
pub(super) fn files(heat: &Heat) -> String {
    let all = heat.written_bytes.max(1) as f64;
    let row = |file: &crate::model::HotFile| {
        vec![
            format!("<code>{}</code>", escape(&file.name())),
            bytes(file.written_bytes as f64),
            percent(file.written_bytes as f64 / all),
            bytes(file.size_bytes as f64),
        ]
    };
    let rows: Vec<_> = heat.most_written_files.iter().take(FILES_MAX).map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => {
            table("numbers", &["File", "Written", "Share of all writes to files", "Size"], &rows)
        }
    }
}

/// Returns the histogram of the segments by utilization.
pub(super) fn utilization(segments: &Segments) -> String {
    let is_used = |state| matches!(state, State::Open | State::Sealed | State::Placed);
    let mut counts = [0_u64; BINS];
    for segment in segments.segments.iter().filter(|segment| is_used(segment.state)) {
        let bin = (segments.utilization(segment) * BINS as f64).ceil().max(1.0) as usize - 1;
        counts[bin.min(BINS - 1)] += 1;
    }
    let most = counts.into_iter().max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let label = |tick: f64| grouped(tick as u64);
    let bar = |(at, count): (usize, u64)| Bar {
        parts: vec![(count as f64, "main".into())],
        title: format!(
            "{} segments are {} to {} % live",
            grouped(count),
            at * 100 / BINS,
            (at + 1) * 100 / BINS
        ),
    };
    BarChart {
        description: "Number of used segments by the share of their blocks that is live.",
        x_name: "live blocks of a segment, in percent",
        y_name: "segments",
        y_ticks: whole_ticks(most).into_iter().map(|tick| (tick, label(tick))).collect(),
        bars: counts.into_iter().enumerate().map(bar).collect(),
        x_labels: (0..=BINS)
            .step_by(2)
            .map(|at| (at as f64, format!("{} %", at * 100 / BINS)))
            .collect(),
        pins: Vec::new(),
    }
    .svg()
}

/// Returns the hotness histogram, with the groups' centres.
pub(super) fn hotness(histogram: &HotnessHistogram) -> String {
    let len = histogram.bins.len();
    if len == 0 {
        return String::new();
    }
    let bar = |(at, bin): (usize, &crate::hotness::Bin)| Bar {
        parts: (0..16).map(|group| (bin.groups[group] as f64, format!("g{group}"))).collect(),
        title: format!(
            "{} segments: overwritten after {} to {}",
            grouped(bin.segments),
            bytes(histogram.bytes_at(at)),
            bytes(histogram.bytes_at(at + 1))
        ),
    };
    let label = |at: usize| (at as f64, bytes(histogram.bytes_at(at)));
    BarChart {
        description: "Number of segments by the number of bytes of writing after which their data is overwritten.",
        x_name: "data is overwritten after so much writing to the volume (hot to cold)",
        y_name: "segments",
        y_ticks: whole_ticks(histogram.most()).into_iter().map(|tick| (tick, grouped(tick as u64))).collect(),
        bars: histogram.bins.iter().enumerate().map(bar).collect(),
        x_labels: label_positions(len + 1, 7).map(label).collect(),
        pins: histogram
            .centres
            .iter()
            .map(|(group, position)| {
                let name = if *group == 0 { "m".into() } else { group.to_string() };
                (*position, name, format!("g{group}"))
            })
            .collect(),
    }
    .svg()
}

/// Returns the table of the groups.
pub(super) fn groups(numbers: &Numbers) -> String {
    let segment_blocks = numbers.segments.blocks.max(1);
    let row = |group: &crate::model::Group| {
        let live = group.live_blocks as f64 / (group.segments.max(1) * segment_blocks) as f64;
        vec![
            format!(
                "<i class=\"swatch g{}\"></i> {}",
                group.group,
                escape(&group_name(group.group))
            ),
            grouped(group.segments),
            grouped(group.open_segments),
            bytes(group.live_blocks as f64 * numbers.space.block_bytes as f64),
            percent(live),
        ]
    };
    let rows: Vec<_> = numbers.groups.iter().map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => table("numbers", &["Group", "Segments", "Open", "Live data", "Live"], &rows),
    }
}

/// Returns the charts of the bytes written over time, and of the write amplification.
pub(super) fn over_time(wear: &Wear) -> String {
    if wear.days.is_empty() && wear.months.is_empty() {
        return String::new();
    }
    let legend = "<p class=\"legend\"><span><i class=\"users\"></i> data of users</span> <span><i class=\"moved\"></i> \
                  moved by cleaning</span> <span><i class=\"meta\"></i> metadata</span></p>";
    let days = charts_of(&wear.days, "day");
    format!("{legend}\n{days}\n{}", charts_of(&wear.months, "month"))
}

/// Returns the two charts of the spans of one `kind`; nothing without spans.
fn charts_of(spans: &[Written], kind: &str) -> String {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return String::new() };
    let all = |span: &Written| span.parts().iter().map(|bytes| *bytes as f64).sum::<f64>();
    let most = spans.iter().map(all).fold(0.0, f64::max);
    // Labels without the year, which the name of the axis states.
    let label = |at: usize| {
        let text = &spans[at].day;
        let short = text.get(5..).filter(|short| !short.is_empty() && text.len() <= 10);
        (at as f64 + 0.5, short.unwrap_or(text).to_owned())
    };
    let x_labels: Vec<(f64, String)> = label_positions(spans.len(), 6).map(label).collect();
    let x_name = format!("{kind} (UTC), {} to {}", first.day, last.day);
    let stacked = |span: &Written| {
        let [users, moved, metadata] = span.parts();
        let parts = [(users, "users"), (moved, "moved"), (metadata, "meta")];
        Bar {
            parts: parts.map(|(bytes, class)| (bytes as f64, class.into())).into(),
            title: format!(
                "{}: {} of users, {} moved by cleaning, {} of metadata",
                span.day,
                bytes(users as f64),
                bytes(moved as f64),
                bytes(metadata as f64)
            ),
        }
    };
    let written = BarChart {
        description: &format!("Bytes written to the device in each {kind}, by origin."),
        x_name: &x_name,
        y_name: "written",
        y_ticks: byte_ticks(most).into_iter().map(|tick| (tick, bytes(tick))).collect(),
        bars: spans.iter().map(stacked).collect(),
        x_labels: x_labels.clone(),
        pins: Vec::new(),
    };
    let highest = spans.iter().filter_map(Written::amplification).fold(0.0, f64::max);
    let factor_of = |span: &Written| {
        let value = span.amplification();
        let shown = value.map_or("nothing written by users".into(), factor);
        let title = format!("{}: {shown}", span.day);
        Bar { parts: vec![(value.unwrap_or(0.0), "main".into())], title }
    };
    let amplification = BarChart {
        description: &format!("Write amplification in each {kind}."),
        x_name: &x_name,
        y_name: "amplification",
        y_ticks: ticks(highest).into_iter().map(|tick| (tick, factor(tick))).collect(),
        bars: spans.iter().map(factor_of).collect(),
        x_labels,
        pins: Vec::new(),
    };
    format!("{}\n{}", written.svg(), amplification.svg())
}

/// Returns the histogram of the segments by their number of erases; nothing if none are counted.
pub(super) fn erases(segments: &Segments) -> String {
    let Some(most) =
        segments.segments.iter().map(|segment| segment.erases).max().filter(|most| *most > 0)
    else {
        return String::new();
    };
    let width = (u64::from(most) + 1).div_ceil(30);
    let mut counts = vec![0_u64; (u64::from(most) / width) as usize + 1];
    for segment in &segments.segments {
        counts[(u64::from(segment.erases) / width) as usize] += 1;
    }
    let largest = counts.iter().copied().max().unwrap_or(0);
    let bar = |(at, count): (usize, &u64)| {
        let first = at as u64 * width;
        Bar {
            parts: vec![(*count as f64, "main".into())],
            title: format!("{} segments: {first} to {} erases", grouped(*count), first + width - 1),
        }
    };
    BarChart {
        description: "Number of segments by their number of erases.",
        x_name: "erases of a segment",
        y_name: "segments",
        y_ticks: whole_ticks(largest)
            .into_iter()
            .map(|tick| (tick, grouped(tick as u64)))
            .collect(),
        bars: counts.iter().enumerate().map(bar).collect(),
        x_labels: label_positions(counts.len(), 8)
            .map(|at| (at as f64 + 0.5, grouped(at as u64 * width)))
            .collect(),
        pins: Vec::new(),
    }
    .svg()
}

/// Returns the table of the bytes by origin, and what the kernel knows about the device.
pub(super) fn wear(wear: &Wear) -> String {
    let row = |name: &str, value: String| vec![escape(name), value];
    let mut rows = vec![
        row("data of users", bytes(wear.user_bytes as f64)),
        row("moved by cleaning", bytes(wear.cleaning_bytes as f64)),
        row("metadata", bytes(wear.metadata_bytes as f64)),
        row("all bytes written to the device", bytes(wear.device_bytes as f64)),
    ];
    if wear.erases.max > 0 {
        rows.push(row("erases of a segment, on average", format!("{:.1}", wear.erases.mean)));
        let most = format!("{} (segment {})", grouped(wear.erases.max), wear.erases.max_segment);
        rows.push(row("erases of the most used segment", most));
    }
    if let Some(device) = &wear.device {
        if let Some(used) = device.life_used_percent {
            let text = format!("{used} % ({})", escape(&device.source));
            rows.push(row("life used, as the device states it", text));
        }
        if let Some(state) = &device.pre_eol {
            rows.push(row("reserve blocks, as the device states it", escape(state)));
        }
    }
    table("text", &["Wear", "Since the volume was made"], &rows)
}

/// Returns the table of latencies, the operations with most time first.
pub(super) fn latencies(latencies: &[Latency]) -> String {
    let mut sorted: Vec<&Latency> = latencies.iter().collect();
    sorted.sort_by_key(|latency| std::cmp::Reverse(latency.total_us));
    let longest = sorted.iter().map(|latency| latency.longest_us).max().unwrap_or(1);
    // A logarithmic scale from 1 microsecond to the longest latency.
    let position = |us: u64| 100.0 * (us.max(1) as f64).log10() / (longest.max(10) as f64).log10();
    let row = |latency: &&Latency| {
        let at = [latency.p50_us, latency.p99_us, latency.longest_us].map(position);
        let bar = format!(
            "<svg class=\"range\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
             <rect class=\"grid\" x=\"0\" y=\"4.5\" width=\"100\" height=\"1\"/>\
             <rect class=\"main\" x=\"{0:.1}\" y=\"2\" width=\"{1:.1}\" height=\"6\"/>\
             <rect class=\"tail\" x=\"{2:.1}\" y=\"4\" width=\"{3:.1}\" height=\"2\"/></svg>",
            at[0],
            (at[1] - at[0]).max(0.8),
            at[1],
            (at[2] - at[1]).max(0.4)
        );
        vec![
            format!("<code>{}</code>", escape(&latency.operation)),
            grouped(latency.count),
            micros(latency.p50_us),
            micros(latency.p99_us),
            micros(latency.longest_us),
            bar,
        ]
    };
    let rows: Vec<_> = sorted.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let range = format!("p50 to p99 to longest, 1 us to {}", micros(longest.max(10)));
    table("numbers", &["Operation", "Requests", "p50", "p99", "Longest", &range], &rows)
}

/// Returns the table of the last cleanings.
pub(super) fn cleanings(cleanings: &[Cleaning]) -> String {
    let row = |cleaning: &Cleaning| {
        vec![
            match cleaning.secs_ago {
                0..=1 => "just now".into(),
                secs => format!("{} ago", ago(secs)),
            },
            grouped(cleaning.victims),
            bytes(cleaning.moved_bytes as f64),
            bytes(cleaning.freed_bytes as f64),
            millis(cleaning.millis),
        ]
    };
    let rows: Vec<_> = cleanings.iter().take(ROUNDS_MAX).map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => table("numbers", &["Cleaned", "Segments", "Moved", "Freed", "Took"], &rows),
    }
}

/// Returns the facts about the volume.
pub(super) fn facts(numbers: &Numbers, segments: &Segments) -> String {
    let row = |name: &str, value: String| vec![escape(name), escape(&value)];
    let size = |blocks: u64| bytes(blocks as f64 * numbers.space.block_bytes as f64);
    let mut rows = vec![
        row("device", numbers.device.clone()),
        row("mount point", numbers.mount_point.clone().unwrap_or("not mounted".into())),
        row("UUID", numbers.uuid.clone()),
        row(
            "size",
            format!(
                "{}, {} available",
                size(numbers.space.total_blocks),
                size(numbers.space.available_blocks)
            ),
        ),
        row("files", grouped(numbers.space.files)),
        row(
            "segments",
            format!(
                "{} of {}",
                grouped(numbers.segments.count()),
                size(segments.segment_blocks.into())
            ),
        ),
        row("mounts for writing", grouped(numbers.life.counter("mounts"))),
        row("written by programs", bytes(numbers.life.user_bytes() as f64)),
        row("written to the device", bytes(numbers.life.device_bytes() as f64)),
    ];
    if let Some(transport) = &numbers.transport {
        rows.push(row("transport", transport.name.clone()));
    }
    if let Some(policies) = &numbers.policies {
        rows.push(row(
            "policies",
            format!("{} for groups, {} for victims", policies.grouping, policies.victims),
        ));
    }
    table("text", &["Volume", ""], &rows)
}
