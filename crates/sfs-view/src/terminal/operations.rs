//! The table of operations: how many requests, their share of the time, and their latencies.

use super::canvas::Canvas;
use super::controls::{Controls, SortBy};
use super::look::Look;
use crate::numbers::{micros, percent, short};
use crate::rates::{OperationRate, Rates};

/// Columns: heading and width.
const COLUMNS: [(&str, u16); 6] =
    [("Requests", 10), ("per s", 6), ("busy", 5), ("p50", 7), ("p99", 7), ("longest", 8)];

/// Width of the table.
pub(super) const WIDTH: u16 = 43;

/// Draws the table.
pub(super) fn draw(canvas: &mut Canvas<'_>, rates: &Rates, controls: &Controls, look: Look) {
    let headings = COLUMNS.map(|(heading, _)| heading.to_owned());
    draw_row(canvas, 0, &headings, |_| look.title());
    let mut operations = rates.operations.clone();
    sort(&mut operations, controls.sort);
    for (y, operation) in (1..canvas.height()).zip(&operations) {
        let name = match operation.name.as_str() {
            "copy_file_range" => "copy",
            "removexattr" => "rmxattr",
            name => name,
        };
        let share = match operation.busy_share {
            0.0 => "-".into(),
            share => percent(share).replace(' ', ""),
        };
        let cells = [
            crate::numbers::plain(name),
            short(operation.rate),
            share,
            micros(operation.p50_us),
            micros(operation.p99_us),
            micros(operation.longest_us),
        ];
        let is_idle = operation.rate == 0.0;
        draw_row(canvas, y, &cells, |_| if is_idle { look.faint() } else { look.plain() });
    }
    if operations.is_empty() {
        canvas.text(0, 1, "no request since the mount", look.faint());
    }
}

fn draw_row(
    canvas: &mut Canvas<'_>,
    y: u16,
    cells: &[String; 6],
    style: impl Fn(usize) -> ratatui_core::style::Style,
) {
    let mut end = 0;
    for (at, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate() {
        end += width;
        if at == 0 {
            canvas.part(0, y, width - 1, 1).text(0, 0, cell, style(at));
        } else {
            canvas.text_right(end, y, cell, style(at));
        }
    }
}

/// Sorts with the largest first, equal ones by the number of requests.
fn sort(operations: &mut [OperationRate], by: SortBy) {
    operations.sort_by(|a, b| {
        let order = match by {
            SortBy::Busy => b.busy_share.total_cmp(&a.busy_share),
            SortBy::Rate => b.rate.total_cmp(&a.rate),
            SortBy::P99 => b.p99_us.cmp(&a.p99_us),
            SortBy::Longest => b.longest_us.cmp(&a.longest_us),
            SortBy::Name => a.name.cmp(&b.name),
        };
        order.then(b.count.cmp(&a.count)).then(a.name.cmp(&b.name))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_sorted_by_the_chosen_column() {
        let operation = |name: &str, rate, busy_share, p99_us, longest_us| OperationRate {
            name: name.into(),
            rate,
            busy_share,
            p99_us,
            longest_us,
            ..OperationRate::default()
        };
        let all = [
            operation("write", 10.0, 0.5, 20, 900),
            operation("read", 30.0, 0.3, 10, 800),
            operation("fsync", 1.0, 0.2, 99, 700),
        ];
        let first_by = |by| {
            let mut operations = all.clone();
            sort(&mut operations, by);
            operations[0].name.clone()
        };
        let by = [SortBy::Busy, SortBy::Rate, SortBy::P99, SortBy::Longest, SortBy::Name];
        assert_eq!(by.map(first_by), ["write", "read", "fsync", "write", "fsync"]);
        assert_eq!(COLUMNS.map(|(_, width)| width).iter().sum::<u16>(), WIDTH);
    }
}
