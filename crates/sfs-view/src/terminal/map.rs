//! The map of the segments: a cell for one segment, or for several neighbours if there are more segments than cells.

use ratatui_core::style::Style;

use super::canvas::Canvas;
use super::controls::{Controls, MapOf};
use super::look::Look;
use crate::model::{Segment, Segments, State};
use crate::numbers::grouped;

/// Content of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    /// `true` if some segment of the cell is not used any more.
    is_bad: bool,
    has_open: bool,
    has_drained: bool,
    /// Share of live blocks, 0 to 1.
    live: f64,
    /// Group with most live blocks; `None` if no segment holds data.
    group: Option<u8>,
    /// Largest number of erases.
    erases: u32,
}

impl Cell {
    fn of(segments: &[Segment], blocks: u32) -> Self {
        let is_any = |state| segments.iter().any(|segment| segment.state == state);
        let live: f64 = segments.iter().map(|segment| f64::from(segment.live_blocks)).sum();
        let mut groups = [0_u64; 16];
        let mut main = None;
        for segment in segments {
            if let Some(group) = segment.group {
                let sum = &mut groups[usize::from(group).min(15)];
                *sum += u64::from(segment.live_blocks) + 1;
                if main.is_none_or(|(_, most)| *sum > most) {
                    main = Some((group, *sum));
                }
            }
        }
        Self {
            is_bad: is_any(State::Bad),
            has_open: is_any(State::Open),
            has_drained: is_any(State::Drained),
            live: live / (f64::from(blocks.max(1)) * segments.len().max(1) as f64),
            group: main.map(|(group, _)| group),
            erases: segments.iter().map(|segment| segment.erases).max().unwrap_or(0),
        }
    }

    /// Returns the character of the cell; `erases_max` is the largest number of erases in the volume.
    fn symbol(&self, map: MapOf, erases_max: u32, look: Look) -> String {
        match (map, self.group) {
            _ if self.is_bad => "X".into(),
            (MapOf::Erases, _) if self.erases > 0 => {
                let tenths = u64::from(self.erases) * 9 / u64::from(erases_max.max(1));
                tenths.to_string()
            }
            (MapOf::Erases, _) => look.free().into(),
            (MapOf::Group, Some(0)) => "m".into(),
            (MapOf::Group, Some(group)) => group.to_string(),
            (MapOf::Live, Some(_)) if self.has_open => "o".into(),
            (MapOf::Live, Some(_)) => look.shade(self.live).into(),
            (_, None) if self.has_drained => "'".into(),
            (_, None) => look.free().into(),
        }
    }

    fn style(&self, look: Look) -> Style {
        match self.group {
            _ if self.is_bad => look.level(crate::sentences::Level::Bad),
            Some(group) => look.group(group),
            None => look.faint(),
        }
    }
}

/// Largest number of columns for one segment, where there is room.
const ACROSS_MAX: usize = 3;

/// Draws the map with its title and legend; `hot_to_cold` are the groups of data in this order.
pub(super) fn draw(
    canvas: &mut Canvas<'_>,
    segments: &Segments,
    hot_to_cold: &[u8],
    controls: &Controls,
    look: Look,
) {
    let (width, rows) = (canvas.width(), canvas.height().saturating_sub(3));
    let count = segments.segments.len();
    let title = format!("Map of {} segments: {}", grouped(count as u64), controls.map.name());
    canvas.text(0, 0, &title, look.title());
    let characters = usize::from(width) * usize::from(rows);
    if count == 0 || characters == 0 {
        return;
    }
    let across = (characters / count).clamp(1, ACROSS_MAX);
    let (row_cells, rows_len) = ((usize::from(width) / across).max(1), usize::from(rows));
    let cells = row_cells * rows_len;
    let each = (count.div_ceil(cells) >> controls.zoom.min(63)).max(1);
    let row_segments = each * row_cells;
    let row = controls.row.min(count.div_ceil(row_segments).saturating_sub(rows_len));
    let first = row * row_segments;
    let erases_max = segments.segments.iter().map(|segment| segment.erases).max().unwrap_or(0);
    for (at, members) in segments.segments[first..].chunks(each).take(cells).enumerate() {
        let cell = Cell::of(members, segments.segment_blocks);
        let symbol = cell.symbol(controls.map, erases_max, look).repeat(across);
        let (x, y) = ((at % row_cells * across) as u16, (at / row_cells) as u16);
        canvas.text(x, y + 1, &symbol, cell.style(look));
    }
    draw_legend(canvas, rows + 1, (controls.map, erases_max), look);
    let last = (first + each * cells).min(count).saturating_sub(1);
    let [each, first, last] = [each, first, last].map(|number| grouped(number as u64));
    let range = format!("{each} a cell, {first} to {last}");
    canvas.text_right(width, rows + 2, &range, look.faint());
    let room = width.saturating_sub(range.len() as u16 + 1);
    draw_groups(&mut canvas.part(0, rows + 2, room, 1), hot_to_cold, look);
}

fn draw_legend(canvas: &mut Canvas<'_>, y: u16, (map, erases_max): (MapOf, u32), look: Look) {
    let free = look.free();
    let text = match map {
        MapOf::Live => {
            let shades = [0.1, 0.4, 0.6, 0.9].map(|share| look.shade(share)).concat();
            format!("{free} free ' soon {shades} live o open")
        }
        MapOf::Group => format!("{free} free 1-8 groups m metadata"),
        MapOf::Erases if erases_max == 0 => "no erases are counted".into(),
        MapOf::Erases => format!("{free} none 0-9 up to {} erases", grouped(erases_max.into())),
    };
    canvas.text(0, y, &text, look.faint());
}

/// Draws the numbers of the groups from hot to cold, in their colours, if there is room for them.
fn draw_groups(canvas: &mut Canvas<'_>, hot_to_cold: &[u8], look: Look) {
    if hot_to_cold.is_empty() || usize::from(canvas.width()) < hot_to_cold.len() + "hot  cold".len()
    {
        return;
    }
    let mut x = canvas.text(0, 0, "hot ", look.faint());
    for group in hot_to_cold {
        x = canvas.text(x, 0, &group.to_string(), look.group(*group));
    }
    canvas.text(x, 0, " cold", look.faint());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(state: State, group: Option<u8>, live_blocks: u32) -> Segment {
        Segment { segment: 0, state, group, live_blocks, hotness: None, erases: live_blocks }
    }

    #[test]
    fn a_cell_shows_its_main_group_and_mean_utilization() {
        let members = [
            segment(State::Sealed, Some(1), 100),
            segment(State::Sealed, Some(2), 40),
            segment(State::Sealed, Some(2), 80),
            segment(State::Clean, None, 0),
        ];
        let cell = Cell::of(&members, 100);
        assert_eq!((cell.group, cell.live, cell.erases), (Some(2), 0.55, 100));
        let symbol = |map| cell.symbol(map, 200, Look::PLAIN);
        assert_eq!([MapOf::Live, MapOf::Group, MapOf::Erases].map(symbol), ["%", "2", "4"]);
        let lone = |state, group| Cell::of(&[segment(state, group, 0)], 100);
        let live = |cell: Cell| cell.symbol(MapOf::Live, 0, Look::PLAIN);
        assert_eq!(live(lone(State::Clean, None)), ".");
        assert_eq!(live(lone(State::Drained, None)), "'");
        assert_eq!(live(lone(State::Open, Some(3))), "o");
        assert_eq!(live(lone(State::Bad, None)), "X");
        assert_eq!(lone(State::Open, Some(0)).symbol(MapOf::Group, 0, Look::PLAIN), "m");
    }
}
