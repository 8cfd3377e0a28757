//! Characters and colours that fit the terminal.
//!
//! The colours of groups are those of Okabe and Ito, which the colour-blind can tell apart. Without
//! colour (`NO_COLOR`, `TERM=dumb`, a file) the characters alone carry the content; without UTF-8 they are ASCII.

use ratatui_core::style::{Color, Modifier, Style};

use crate::sentences::Level;

/// Number of colours that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    None,
    Sixteen,
    Indexed,
    True,
}

/// Characters and colours of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    depth: Depth,
    has_unicode: bool,
}

/// A colour with the nearest ones of smaller palettes.
#[derive(Clone, Copy)]
struct Shade {
    rgb: (u8, u8, u8),
    indexed: u8,
    sixteen: Color,
}

const fn shade(rgb: (u8, u8, u8), indexed: u8, sixteen: Color) -> Shade {
    Shade { rgb, indexed, sixteen }
}

/// Colours of the groups by number; group 0 is metadata.
const GROUPS: [Shade; 9] = [
    shade((204, 204, 204), 252, Color::White),
    shade((213, 94, 0), 166, Color::Red),
    shade((230, 159, 0), 214, Color::Yellow),
    shade((240, 228, 66), 227, Color::LightYellow),
    shade((0, 158, 115), 36, Color::Green),
    shade((86, 180, 233), 74, Color::Cyan),
    shade((0, 114, 178), 31, Color::Blue),
    shade((204, 121, 167), 175, Color::Magenta),
    shade((136, 136, 136), 245, Color::Gray),
];

const FAINT: Shade = shade((136, 136, 136), 245, Color::Gray);
const GOOD: Shade = GROUPS[5];
const WARNING: Shade = GROUPS[2];
const BAD: Shade = GROUPS[1];

impl Look {
    /// Without colours and in ASCII.
    pub const PLAIN: Self = Self { depth: Depth::None, has_unicode: false };

    /// All colours, and Unicode.
    pub const FULL: Self = Self { depth: Depth::True, has_unicode: true };

    /// Returns the look for a terminal, or for a file unless `is_terminal`. `variable` reads the environment.
    pub fn of_environment(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(&set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase().replace('-', "");
        let is_dumb = is_terminal && (term.is_empty() || term == "dumb");
        let is_true =
            set("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit");
        let depth = match () {
            () if !is_terminal || is_dumb || set("NO_COLOR").is_some() => Depth::None,
            () if is_true => Depth::True,
            () if term.contains("256") => Depth::Indexed,
            () => Depth::Sixteen,
        };
        Self { depth, has_unicode: locale.contains("utf8") && !is_dumb }
    }

    /// Returns whether the frame has colours.
    pub(super) fn has_colours(self) -> bool {
        self.depth != Depth::None
    }

    fn color(self, shade: Shade) -> Option<Color> {
        match self.depth {
            Depth::None => None,
            Depth::Sixteen => Some(shade.sixteen),
            Depth::Indexed => Some(Color::Indexed(shade.indexed)),
            Depth::True => Some(Color::Rgb(shade.rgb.0, shade.rgb.1, shade.rgb.2)),
        }
    }

    fn style(self, shade: Shade) -> Style {
        self.color(shade).map_or(Style::new(), |color| Style::new().fg(color))
    }

    /// Returns the style of a group.
    pub(super) fn group(self, group: u8) -> Style {
        self.style(GROUPS[usize::from(group) % GROUPS.len()])
    }

    /// Returns the style of ordinary text.
    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    /// Returns the style of less important text.
    pub(super) fn faint(self) -> Style {
        self.style(FAINT)
    }

    /// Returns the style of the title of a part.
    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of a level.
    pub(super) fn level(self, level: Level) -> Style {
        let style = self.style(match level {
            Level::Good => GOOD,
            Level::Warning => WARNING,
            Level::Bad => BAD,
        });
        let style = style.add_modifier(Modifier::BOLD);
        if level == Level::Good { style } else { style.add_modifier(Modifier::REVERSED) }
    }

    /// Returns the character for a share (0 to 1) of live blocks; the four shades cover a quarter each.
    pub(super) fn shade(self, share: f64) -> &'static str {
        let shades =
            if self.has_unicode { ["░", "▒", "▓", "█"] } else { ["-", "=", "%", "#"] };
        shades[((share * 4.0).ceil() as usize).clamp(1, 4) - 1]
    }

    /// Returns the character of a free segment.
    pub(super) fn free(self) -> &'static str {
        if self.has_unicode { "·" } else { "." }
    }

    /// Returns the character for a column that is filled up to a share (0 to 1).
    pub(super) fn column(self, share: f64) -> &'static str {
        const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
        const HALVES: [&str; 5] = [" ", ".", ":", "+", "#"];
        let set: &[&str] = if self.has_unicode { &EIGHTHS } else { &HALVES };
        let last = set.len() - 1;
        let at = (share * last as f64).round() as usize;
        // The least share that is not nothing is visible.
        set[if share > 0.0 { at.clamp(1, last) } else { 0 }]
    }

    /// Returns the character of a horizontal line.
    pub(super) fn line(self) -> &'static str {
        if self.has_unicode { "─" } else { "-" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(is_terminal: bool, variables: &[(&str, &str)]) -> Look {
        Look::of_environment(is_terminal, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_look_fits_the_terminal() {
        let utf8 = ("LANG", "en_US.UTF-8");
        assert_eq!(look(true, &[utf8, ("TERM", "xterm"), ("COLORTERM", "truecolor")]), Look::FULL);
        let indexed = look(true, &[utf8, ("TERM", "xterm-256color")]);
        assert_eq!((indexed.depth, indexed.has_unicode), (Depth::Indexed, true));
        assert_eq!(look(true, &[utf8, ("TERM", "linux")]).depth, Depth::Sixteen);
        let without = look(true, &[utf8, ("TERM", "xterm-256color"), ("NO_COLOR", "1")]);
        assert_eq!((without.depth, without.has_unicode), (Depth::None, true));
        assert_eq!(look(true, &[utf8, ("TERM", "xterm"), ("NO_COLOR", "")]).depth, Depth::Sixteen);
        assert_eq!(look(true, &[utf8, ("TERM", "dumb")]), Look::PLAIN);
        assert_eq!(look(true, &[utf8]), Look::PLAIN);
        assert!(!look(true, &[("TERM", "xterm"), ("LANG", "C")]).has_unicode);
        assert!(!look(true, &[utf8, ("TERM", "xterm"), ("LC_ALL", "C")]).has_unicode);
        assert_eq!(look(false, &[utf8, ("TERM", "xterm")]).depth, Depth::None);
    }

    #[test]
    fn shades_and_columns_cover_the_whole_range() {
        assert_eq!(
            [0.01, 0.25, 0.26, 0.75, 0.76, 1.0].map(|u| Look::PLAIN.shade(u)),
            ["-", "-", "=", "%", "#", "#"]
        );
        assert_eq!([0.0, 0.001, 1.0].map(|share| Look::FULL.column(share)), [" ", "▁", "█"]);
    }
}
