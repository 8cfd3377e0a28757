//! The hotness histogram: segments by the bytes of writing after which their data is overwritten, with the groups' centres.

use super::canvas::Canvas;
use super::look::Look;
use crate::hotness::HotnessHistogram;
use crate::numbers::{bytes, grouped};

/// Number of columns of the labels left of the bars.
const LABELS: u16 = 7;

/// Draws the histogram.
pub(super) fn draw(canvas: &mut Canvas<'_>, histogram: &HotnessHistogram, look: Look) {
    canvas.text(0, 0, "Hotness: data is overwritten after", look.title());
    let (width, height) = (canvas.width(), canvas.height());
    let len = histogram.bins.len() as u16;
    if len == 0 {
        canvas.text(0, 1, "no data is in sealed segments yet", look.faint());
        return;
    }
    let columns = (width.saturating_sub(LABELS) / len).clamp(1, 6);
    // A row for the centres, and one for the ticks.
    let rows = height.saturating_sub(3);
    let most = histogram.most().max(1);
    canvas.text_right(LABELS - 1, 1, &grouped(most), look.faint());
    if rows > 1 {
        canvas.text(0, 2, "segm.", look.faint());
    }
    for (at, bin) in (0..).zip(&histogram.bins) {
        let filled = bin.segments as f64 / most as f64 * f64::from(rows);
        for row in 0..rows {
            let share = (filled - f64::from(rows - 1 - row)).clamp(0.0, 1.0);
            let symbol = look.column(share).repeat(usize::from(columns.max(2) - 1));
            canvas.text(LABELS + at * columns, row + 1, &symbol, look.group(bin.main_group()));
        }
    }
    draw_centres(canvas, rows + 1, (histogram, columns), look);
    let mut free_from = 0;
    for at in 0..len {
        let label = bytes(histogram.bytes_at(usize::from(at)));
        let x = LABELS + at * columns;
        let label_width = label.chars().count() as u16;
        if x >= free_from && x + label_width <= width {
            canvas.text(x, rows + 2, &label, look.faint());
            free_from = x + label_width + 2;
        }
    }
}

/// Draws a line with the number of each group at its centre.
fn draw_centres(
    canvas: &mut Canvas<'_>,
    y: u16,
    (histogram, columns): (&HotnessHistogram, u16),
    look: Look,
) {
    canvas.text(0, y, "group", look.faint());
    let len = histogram.bins.len() as u16 * columns;
    canvas.text(LABELS, y, &look.line().repeat(usize::from(len)), look.faint());
    let last = LABELS + len.saturating_sub(1);
    let mut taken = Vec::new();
    for (group, position) in &histogram.centres {
        let mut x = (LABELS + (position * f64::from(columns)) as u16).min(last);
        while taken.contains(&x) && x < last {
            x += 1;
        }
        taken.push(x);
        let name = if *group == 0 { "m".to_owned() } else { group.to_string() };
        canvas.text(x, y, &name, look.group(*group));
    }
}
