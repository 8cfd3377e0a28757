//! A whole frame: how the screen is divided among its parts.

use ratatui_core::buffer::Buffer;

use super::canvas::Canvas;
use super::controls::{Controls, HELP};
use super::look::Look;
use super::{cleanings, head, hotness, map, operations};
use crate::hotness::HotnessHistogram;
use crate::rates::History;

/// Least size of a frame.
const WIDTH_MIN: u16 = 40;
const HEIGHT_MIN: u16 = 10;

/// Least width for two parts beside each other.
const TWO_COLUMNS: u16 = operations::WIDTH + 1 + 30;

/// Draws a frame.
pub(super) fn draw(buffer: &mut Buffer, history: &History, controls: &Controls, look: Look) {
    let mut canvas = Canvas::new(buffer);
    let (width, height) = (canvas.width(), canvas.height());
    if width < WIDTH_MIN || height < HEIGHT_MIN {
        let text = format!(
            "The terminal is too small: {WIDTH_MIN} columns and {HEIGHT_MIN} lines are needed."
        );
        canvas.paragraph(0, 0, height, &text, look.plain());
        return;
    }
    if controls.shows_help {
        canvas.text(0, 0, "sfs-ctl top: keys", look.title());
        let mut y = 2;
        for line in HELP {
            y += canvas.paragraph(2, y, 2, line, look.plain()).max(1);
        }
        return;
    }
    let mut y = head::draw(&mut canvas.part(0, 0, width, height - 1), history, controls, look);
    draw_footer(&mut canvas, height - 1, controls, look);
    // An empty row after each part, if there is room.
    let gap = u16::from(height >= 26);
    y += gap;
    let rest = (height - 1).saturating_sub(y);
    let bottom = if rest >= 12 { (rest * 2 / 5).clamp(5, 10) } else { 0 };
    let upper = rest - bottom;
    let below = y + upper;
    let histogram = HotnessHistogram::new(&history.segments, &history.last.numbers.groups);
    let order = histogram.hot_to_cold();
    let rounds = &history.last.numbers.cleanings;
    if width < TWO_COLUMNS {
        let table = (upper / 2).min(history.now().operations.len() as u16 + 1);
        operations::draw(&mut canvas.part(0, y, width, table), &history.now(), controls, look);
        map::draw(
            &mut canvas.part(0, y + table, width, upper - table),
            &history.segments,
            &order,
            controls,
            look,
        );
        hotness::draw(&mut canvas.part(0, below, width, bottom), &histogram, look);
        return;
    }
    let left = width - operations::WIDTH - 1;
    let upper = upper.saturating_sub(gap);
    map::draw(&mut canvas.part(0, y, left - 1, upper), &history.segments, &order, controls, look);
    let right = (left + 1, operations::WIDTH);
    operations::draw(&mut canvas.part(right.0, y, right.1, upper), &history.now(), controls, look);
    hotness::draw(&mut canvas.part(0, below, left - 1, bottom), &histogram, look);
    cleanings::draw(&mut canvas.part(right.0, below, right.1, bottom), rounds, look);
}

fn draw_footer(canvas: &mut Canvas<'_>, y: u16, controls: &Controls, look: Look) {
    let text = format!(
        "q quit  h help  p pause  s sort: {}  m map: {}  + - zoom  arrows move",
        controls.sort.name(),
        controls.map.name()
    );
    canvas.text(0, y, &text, look.faint());
}
