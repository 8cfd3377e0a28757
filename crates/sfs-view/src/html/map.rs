//! The map of the segments: one cell for each of them, filled as far as the segment is live, in the colour of its group.

use std::fmt::Write;

use crate::escape::escape;
use crate::model::{Segment, Segments, State};
use crate::numbers::{grouped, percent};

/// Largest number of segments whose cells have a text that a pointer shows. Beyond it the page would be too large.
const TITLES_MAX: usize = 16 << 10;

/// Number of steps of a cell's filling.
const STEPS: f64 = 10.0;

/// Returns the map with its legend; `hot_to_cold` are the groups of data in this order.
pub(super) fn map(segments: &Segments, hot_to_cold: &[u8]) -> String {
    let has_titles = segments.segments.len() <= TITLES_MAX;
    let size = match segments.segments.len() {
        0..=400 => "large",
        401..=4_000 => "middle",
        4_001..=20_000 => "small",
        _ => "tiny",
    };
    let mut html = legend(segments, hot_to_cold);
    let _ = writeln!(html, "<div class=\"map {size}\" id=\"segment-map\">");
    for segment in &segments.segments {
        let _ = write!(html, "<i class=\"{}\"", class(segment, segments));
        if has_titles {
            let _ = write!(html, " title=\"{}\"", escape(&title(segment, segments)));
        }
        html.push_str("></i>");
    }
    html + "\n</div>\n"
}

fn class(segment: &Segment, segments: &Segments) -> String {
    let filled = (segments.utilization(segment) * STEPS).ceil().clamp(0.0, STEPS);
    match (segment.state, segment.group) {
        (State::Bad, _) => "bad".into(),
        (State::Drained, _) => "drained".into(),
        (State::Open, Some(group)) => format!("g{group} u{filled} open"),
        (_, Some(group)) => format!("g{group} u{filled}"),
        (_, None) => "free".into(),
    }
}

fn title(segment: &Segment, segments: &Segments) -> String {
    let mut text = format!("segment {}: {}", segment.segment, segment.state.name());
    if let Some(group) = segment.group {
        let live = percent(segments.utilization(segment));
        let _ = write!(text, ", {}, {live} live", group_name(group));
    }
    if segment.erases > 0 {
        let _ = write!(text, ", {} erases", grouped(segment.erases.into()));
    }
    text
}

/// Returns the name of a group.
pub(super) fn group_name(group: u8) -> String {
    if group == 0 { "metadata".into() } else { format!("group {group}") }
}

/// Returns the states and groups that the map has, each with its number of segments; hot groups come first, and those whose
/// hotness is unknown after the others.
fn legend(segments: &Segments, hot_to_cold: &[u8]) -> String {
    let all = &segments.segments;
    let mut html = String::from("<p class=\"legend\">");
    let mut add = |class: &str, name: &str, count: usize| {
        if count > 0 {
            let count = grouped(count as u64);
            let _ =
                write!(html, "<span><i class=\"{class}\"></i> {}: {count}</span> ", escape(name));
        }
    };
    let of_group = |group| all.iter().filter(|segment| segment.group == Some(group)).count();
    let others = (1..16).chain([0]).filter(|group| !hot_to_cold.contains(group));
    for group in hot_to_cold.iter().copied().chain(others) {
        let name = group_name(group);
        add(&format!("g{group} u6"), &name, of_group(group));
    }
    let in_state = |state| all.iter().filter(|segment| segment.state == state).count();
    add("g0 u3 open", "open: written now", in_state(State::Open));
    let free = all.iter().filter(|segment| class(segment, segments) == "free").count();
    add("free", "free", free);
    add("drained", "drained: free soon", in_state(State::Drained));
    add("bad", "bad", in_state(State::Bad));
    html + "</p>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read;

    #[test]
    fn every_segment_has_its_cell() {
        let text = r#"{"block_bytes":4096,"segment_blocks":100,"segments":[
            {"segment":0,"state":"sealed","group":1,"live_blocks":61,"erases":3},
            {"segment":1,"state":"open","group":0,"live_blocks":1},
            {"segment":2,"state":"clean","group":null,"live_blocks":0},
            {"segment":3,"state":"drained","group":null,"live_blocks":0},
            {"segment":4,"state":"bad","group":null,"live_blocks":0}]}"#;
        let segments: Segments = read(text).expect("JSON");
        let map = map(&segments, &[1]);
        let cells =
            map.split("id=\"segment-map\">").nth(1).expect("the map").matches("<i ").count();
        assert_eq!(cells, 5);
        let cell =
            "<i class=\"g1 u7\" title=\"segment 0: sealed, group 1, 61 % live, 3 erases\"></i>";
        assert!(map.contains(cell), "{map}");
        assert!(
            map.contains("<i class=\"g0 u1 open\" title=\"segment 1: open, metadata, 1 % live\">"),
            "{map}"
        );
    }
}
