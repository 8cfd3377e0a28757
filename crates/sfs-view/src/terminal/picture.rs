//! A frame as text, as text with colours for a terminal, and as an SVG picture.

use std::fmt::Write;

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::{Color, Modifier};

use crate::escape::escape;

/// Width and height of a character in an SVG picture, in its units.
const CHARACTER: (f64, f64) = (8.4, 18.0);

/// Margin of an SVG picture.
const MARGIN: f64 = 12.0;

/// Colours of text and background in an SVG picture.
const FOREGROUND: &str = "#d8d8d8";
const BACKGROUND: &str = "#16181d";

/// Returns the cells of each row, without the spaces at its end.
fn rows(buffer: &Buffer) -> impl Iterator<Item = &[Cell]> {
    let width = usize::from(buffer.area.width).max(1);
    buffer.content.chunks(width).map(|row| {
        let is_blank =
            |cell: &Cell| cell.symbol() == " " && !cell.modifier.contains(Modifier::REVERSED);
        &row[..row.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1)]
    })
}

/// Returns the frame as lines of text, with escape sequences if `has_colours`.
pub(super) fn text(buffer: &Buffer, has_colours: bool) -> String {
    let mut text = String::new();
    for row in rows(buffer) {
        let mut last = String::new();
        for cell in row {
            let style = if has_colours { sequence(cell) } else { String::new() };
            if style != last {
                text.push_str("\u{1b}[0m");
                text.push_str(&style);
                last = style;
            }
            text.push_str(cell.symbol());
        }
        if !last.is_empty() {
            text.push_str("\u{1b}[0m");
        }
        text.push('\n');
    }
    text
}

/// Returns the escape sequence for the style of a cell; empty for ordinary text.
fn sequence(cell: &Cell) -> String {
    let mut codes = Vec::new();
    if cell.modifier.contains(Modifier::BOLD) {
        codes.push("1".to_owned());
    }
    if cell.modifier.contains(Modifier::REVERSED) {
        codes.push("7".to_owned());
    }
    match cell.fg {
        Color::Rgb(red, green, blue) => codes.push(format!("38;2;{red};{green};{blue}")),
        Color::Indexed(number) => codes.push(format!("38;5;{number}")),
        named => codes.extend(sixteen(named).map(|code| code.to_string())),
    }
    if codes.is_empty() { String::new() } else { format!("\u{1b}[{}m", codes.join(";")) }
}

/// Returns the code of one of the sixteen colours that frames use.
fn sixteen(color: Color) -> Option<u8> {
    Some(match color {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::Gray => 37,
        Color::LightYellow => 93,
        Color::White => 97,
        _ => return None,
    })
}

/// Returns the frame as an SVG picture.
pub(super) fn svg(buffer: &Buffer) -> String {
    let width = f64::from(buffer.area.width) * CHARACTER.0 + 2.0 * MARGIN;
    let height = f64::from(buffer.area.height) * CHARACTER.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for (y, row) in rows(buffer).enumerate() {
        let mut start = 0;
        for run in row.chunk_by(is_same_style) {
            write_run(&mut svg, run, (start, y));
            start += run.len();
        }
    }
    svg + "</svg>\n"
}

fn is_same_style(a: &Cell, b: &Cell) -> bool {
    (a.fg, a.modifier) == (b.fg, b.modifier)
}

/// Writes neighbouring cells of one style.
fn write_run(svg: &mut String, run: &[Cell], (column, row): (usize, usize)) {
    let (x, y) = (MARGIN + column as f64 * CHARACTER.0, MARGIN + row as f64 * CHARACTER.1);
    let len = run.len() as f64 * CHARACTER.0;
    let Some(first) = run.first() else { return };
    let color = match first.fg {
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        _ => FOREGROUND.to_owned(),
    };
    let is_reversed = first.modifier.contains(Modifier::REVERSED);
    if is_reversed {
        let height = CHARACTER.1;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{len:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>"
        );
    }
    let fill = if is_reversed { BACKGROUND } else { &color };
    let weight = if first.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let text: String = run.iter().map(Cell::symbol).collect();
    if text.trim().is_empty() {
        return;
    }
    let baseline = y + CHARACTER.1 * 0.76;
    let text = escape(&text);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{baseline:.1}\" fill=\"{fill}\"{weight} textLength=\"{len:.1}\" \
         lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    use super::*;

    #[test]
    fn frames_become_text_and_pictures() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 2));
        buffer.set_string(0, 0, "a<b", Style::new().fg(Color::Rgb(1, 2, 255)));
        buffer.set_string(
            4,
            1,
            "c",
            Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
        );
        assert_eq!(text(&buffer, false), "a<b\n    c\n");
        let coloured =
            "\u{1b}[0m\u{1b}[38;2;1;2;255ma<b\u{1b}[0m\n    \u{1b}[0m\u{1b}[1;7mc\u{1b}[0m\n";
        assert_eq!(text(&buffer, true), coloured);
        let svg = svg(&buffer);
        assert!(svg.contains("fill=\"#0102ff\"") && svg.contains(">a&lt;b</text>"), "{svg}");
        assert!(svg.contains("font-weight=\"bold\"") && !svg.contains("a<b"), "{svg}");
    }
}
