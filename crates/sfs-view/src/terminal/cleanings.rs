//! The last cleaning rounds with their cost.

use super::canvas::Canvas;
use super::look::Look;
use crate::model::Cleaning;
use crate::numbers::{ago, bytes, millis, plain};

/// Draws the table.
pub(super) fn draw(canvas: &mut Canvas<'_>, cleanings: &[Cleaning], look: Look) {
    let ends = [9, 18, 27, 36, 43];
    let title = ["cleaned", "segments", "moved", "freed", "took"];
    for (end, heading) in ends.into_iter().zip(title) {
        canvas.text_right(end, 0, heading, look.title());
    }
    canvas.text(0, 0, "Cleaned  ", look.title());
    for (y, cleaning) in (1..canvas.height()).zip(cleanings) {
        let since = match cleaning.secs_ago {
            0..=1 => "just now".to_owned(),
            secs => format!("{} ago", ago(secs)),
        };
        canvas.text(0, y, &plain(&since), look.plain());
        let cells = [
            cleaning.victims.to_string(),
            bytes(cleaning.moved_bytes as f64),
            bytes(cleaning.freed_bytes as f64),
            millis(cleaning.millis),
        ];
        for (end, cell) in ends[1..].iter().zip(cells) {
            canvas.text_right(*end, y, &cell, look.plain());
        }
    }
    if cleanings.is_empty() {
        canvas.text(0, 1, "nothing was cleaned since the mount", look.faint());
    }
}
