//! A rectangle of a frame, and text in it. Text that does not fit is cut; nothing is drawn outside.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

/// A part of a frame.
pub(super) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl<'a> Canvas<'a> {
    pub(super) fn new(buffer: &'a mut Buffer) -> Self {
        let area = buffer.area;
        Self { buffer, area }
    }

    /// Returns the part at column `x` and row `y`, as much of `width` and `height` as this part has.
    pub(super) fn part(&mut self, x: u16, y: u16, width: u16, height: u16) -> Canvas<'_> {
        let at = |start: u16, offset: u16| start.saturating_add(offset);
        let wanted = Rect::new(at(self.area.x, x), at(self.area.y, y), width, height);
        Canvas { area: wanted.intersection(self.area), buffer: self.buffer }
    }

    pub(super) fn width(&self) -> u16 {
        self.area.width
    }

    pub(super) fn height(&self) -> u16 {
        self.area.height
    }

    /// Draws `text` from column `x` of row `y` on; returns the column after it.
    pub(super) fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let (column, row) = (self.area.x + x, self.area.y + y);
        let (end, _) = self.buffer.set_stringn(column, row, text, room, style);
        end - self.area.x
    }

    /// Draws `text` so that it ends before column `end`.
    pub(super) fn text_right(&mut self, end: u16, y: u16, text: &str, style: Style) {
        let len = text.chars().count() as u16;
        self.text(end.saturating_sub(len), y, text, style);
    }

    /// Draws `text` from column `x` of row `y` on, in lines that break at spaces, at most `rows`; what does not fit ends
    /// in "...". Returns the number of rows that were used.
    pub(super) fn paragraph(&mut self, x: u16, y: u16, rows: u16, text: &str, style: Style) -> u16 {
        let lines = wrap(text, usize::from(self.area.width.saturating_sub(x)), usize::from(rows));
        for (row, line) in (y..).zip(&lines) {
            self.text(x, row, line, style);
        }
        lines.len() as u16
    }
}

/// Breaks `text` at spaces into at most `rows` lines of at most `width` characters; what does not fit ends in "...".
pub(super) fn wrap(text: &str, width: usize, rows: usize) -> Vec<String> {
    const MORE: &str = "...";
    let mut lines: Vec<String> = Vec::new();
    if width < MORE.len() || rows == 0 {
        return lines;
    }
    let mut count = 0;
    let cut = |line: &str, len: usize| line.chars().take(len).collect::<String>();
    for word in text.split_whitespace() {
        let len = word.chars().count();
        let room = lines.last().map(|line| line.chars().count() + 1 + len <= width);
        match (room, lines.last_mut()) {
            (Some(true), Some(line)) => {
                line.push(' ');
                line.push_str(word);
            }
            (_, Some(line)) if count == rows => {
                *line = cut(line, width - MORE.len()) + MORE;
                break;
            }
            _ => {
                lines.push(cut(word, width));
                count += 1;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_at_spaces_and_ends_in_dots() {
        assert_eq!(wrap("one two three", 7, 3), ["one two", "three"]);
        assert_eq!(wrap("one two three", 7, 1), ["one ..."]);
        assert_eq!(wrap("incomprehensible", 5, 2), ["incom"]);
        assert!(wrap("", 5, 2).is_empty() && wrap("a", 0, 2).is_empty());
    }

    #[test]
    fn nothing_is_drawn_outside_of_a_part() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 2));
        let mut canvas = Canvas::new(&mut buffer);
        let mut part = canvas.part(2, 1, 3, 9);
        assert_eq!((part.width(), part.height()), (3, 1));
        part.text(1, 0, "abcdef", Style::new());
        part.text(0, 1, "below", Style::new());
        part.text(7, 0, "right", Style::new());
        canvas.part(9, 9, 3, 3).text(0, 0, "x", Style::new());
        assert_eq!(buffer, Buffer::with_lines(["      ", "   ab "]));
    }
}
