//! Choices that the user makes with keys: order of the operations, content and zoom of the map, pause, help.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Order of the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortBy {
    #[default]
    Busy,
    Rate,
    P99,
    Longest,
    Name,
}

impl SortBy {
    const ALL: [Self; 5] = [Self::Busy, Self::Rate, Self::P99, Self::Longest, Self::Name];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Rate => "per s",
            Self::P99 => "p99",
            Self::Longest => "longest",
            Self::Name => "name",
        }
    }
}

/// Content of the cells of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MapOf {
    #[default]
    Live,
    Group,
    Erases,
}

impl MapOf {
    const ALL: [Self; 3] = [Self::Live, Self::Group, Self::Erases];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Live => "live data",
            Self::Group => "groups",
            Self::Erases => "erases",
        }
    }
}

/// Choices of the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Controls {
    pub(super) sort: SortBy,
    pub(super) map: MapOf,
    /// Log2 of the magnification of the map.
    pub(super) zoom: u32,
    /// First row of the map that is shown, with the segments of one row at the present zoom as unit.
    pub(super) row: usize,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
}

/// Magnification of a volume with 2^24 segments that shows each of them.
const ZOOM_MAX: u32 = 24;

/// Effect of a key beyond the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    Redraw,
    Quit,
    Nothing,
}

impl Controls {
    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyEffect {
        if key.kind == KeyEventKind::Release {
            return KeyEffect::Nothing;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return KeyEffect::Quit,
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.shows_help = !self.shows_help,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.sort = next(&SortBy::ALL, self.sort),
            KeyCode::Char('m') => self.map = next(&MapOf::ALL, self.map),
            KeyCode::Char('+' | '=') => {
                self.zoom = (self.zoom + 1).min(ZOOM_MAX);
                self.row *= 2;
            }
            KeyCode::Char('-') => {
                self.zoom = self.zoom.saturating_sub(1);
                self.row /= 2;
            }
            KeyCode::Char('0') => (self.zoom, self.row) = (0, 0),
            KeyCode::Up => self.row = self.row.saturating_sub(1),
            KeyCode::Down => self.row = self.row.saturating_add(1),
            KeyCode::PageUp => self.row = self.row.saturating_sub(10),
            KeyCode::PageDown => self.row = self.row.saturating_add(10),
            KeyCode::Home => self.row = 0,
            _ => return KeyEffect::Nothing,
        }
        KeyEffect::Redraw
    }
}

fn next<T: Copy + PartialEq>(all: &[T], present: T) -> T {
    let at = all.iter().position(|other| *other == present).unwrap_or(0);
    all[(at + 1) % all.len()]
}

/// Lines of the help.
pub(super) const HELP: &[&str] = &[
    "q, Ctrl-C      quit",
    "p, space       pause, and go on",
    "s              sort the operations: busy, per second, p99, longest, name",
    "m              content of the map: live data, groups, erases",
    "+ - 0          zoom the map in, out, and show the whole volume",
    "arrows, PgUp, PgDn, Home   move the map",
    "h, ?           this help",
    "",
    "A segment is the unit in which SFS writes and cleans. Cleaning moves the live data of a",
    "segment away, so that the segment can be written again: it costs bytes. Data is put into",
    "groups by the time after which it is overwritten: soon for hot data. Write amplification is",
    "the number of bytes written to the device for each byte that programs wrote; 1 is ideal.",
    "Latencies are the daemon's time for a request, since the mount: half are shorter than p50,",
    "99 % are shorter than p99.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_the_choices() {
        let mut controls = Controls::default();
        let mut press = |code| {
            let effect = controls.press(KeyEvent::new(code, KeyModifiers::NONE));
            (effect, controls)
        };
        assert_eq!(press(KeyCode::Char('s')).1.sort, SortBy::Rate);
        assert_eq!(press(KeyCode::Char('m')).1.map, MapOf::Group);
        for _ in 0..2 {
            press(KeyCode::Char('m'));
        }
        assert!(press(KeyCode::Char(' ')).1.is_paused);
        press(KeyCode::Down);
        let (effect, now) = press(KeyCode::Char('+'));
        assert_eq!((effect, now.map, now.zoom, now.row), (KeyEffect::Redraw, MapOf::Live, 1, 2));
        let (_, now) = press(KeyCode::Char('-'));
        assert_eq!((now.zoom, now.row), (0, 1));
        assert!(press(KeyCode::Char('h')).1.shows_help);
        assert!(!press(KeyCode::Esc).1.shows_help);
        assert_eq!(press(KeyCode::Char('x')).0, KeyEffect::Nothing);
        assert_eq!(press(KeyCode::Char('q')).0, KeyEffect::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(Controls::default().press(interrupt), KeyEffect::Quit);
    }
}
