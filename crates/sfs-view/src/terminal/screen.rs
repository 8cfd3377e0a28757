//! The loop of the live view, and the terminal that it draws on.
//!
//! In the live view the terminal is in raw mode, on its alternate screen. [`Screen`] restores it when the view ends, by
//! a key, a signal, an error or a panic.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event};
use ratatui_crossterm::crossterm::{cursor, execute, terminal};

use super::controls::{Controls, KeyEffect};
use super::frame::draw;
use super::look::Look;
use super::picture;
use crate::model::{Numbers, read};
use crate::rates::{History, Sample};

/// Longest wait for a key before the signals are looked at.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Time between two looks at the files.
const HEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Number of segments that are asked for in a second, at most: a large volume's map is drawn anew less often.
const SEGMENTS_A_SECOND: u64 = 50_000;

/// Size of a frame that is not for a terminal.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// Largest width and height of a frame: what a page of a printer or a wide screen has, and bounded memory.
const SIZE_MAX: u16 = 1000;

/// A mounted volume, whose daemon is asked for numbers. Texts are JSON, as `sfs-ctl` prints it.
pub trait VolumeSource {
    /// Error of a request.
    type Error;

    /// Returns the numbers of `sfs-ctl stat`.
    ///
    /// # Errors
    ///
    /// Also when the volume is not mounted any more.
    fn numbers(&mut self) -> Result<String, Self::Error>;

    /// Returns the segments, as `sfs-ctl segments` lists them.
    ///
    /// # Errors
    ///
    /// As for [`VolumeSource::numbers`].
    fn segments(&mut self) -> Result<String, Self::Error>;

    /// Returns the files that were written most, as `sfs-ctl hot` lists them; `None` if they are not known, or not yet. A
    /// live view waits for the answer.
    fn heat(&mut self) -> Option<String>;
}

/// How the view is shown.
pub struct TopOptions {
    /// Time between two samples.
    pub interval: Duration,
    /// `true` if standard output is a terminal to draw on; otherwise one frame after the other is printed.
    pub live: bool,
    /// `true` for one frame on standard output.
    pub once: bool,
    /// Number of intervals before the frame of `once` or `svg`, at least 1.
    pub samples: u32,
    /// `true` for a frame as an SVG picture.
    pub svg: bool,
    /// Width and height of a frame that is printed; those of the terminal, or 80 and 24, if they are `None`.
    pub size: (Option<u16>, Option<u16>),
    /// Characters and colours.
    pub look: Look,
    /// Returns `true` once the view should end.
    pub should_stop: Box<dyn Fn() -> bool>,
}

/// Reason why the view ended.
#[derive(Debug)]
pub enum TopError<E> {
    /// The daemon was not asked, or the volume is not mounted any more.
    Volume(E),
    /// The answer is not understood.
    Answer(String),
    /// The terminal failed.
    Terminal(io::Error),
}

impl<E: fmt::Display> fmt::Display for TopError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(error) => error.fmt(f),
            Self::Answer(error) => write!(f, "its daemon is of another version of sfs: {error}"),
            Self::Terminal(error) => write!(f, "the terminal: {error}"),
        }
    }
}

/// Shows a volume until the user ends it, or by one frame.
///
/// # Errors
///
/// [`TopError`], also when the volume is unmounted meanwhile. The terminal is restored by then.
pub fn top<S: VolumeSource>(
    source: &mut S,
    options: &TopOptions,
) -> Result<(), TopError<S::Error>> {
    let mut sampler = Sampler::new(source)?;
    if options.once || options.svg {
        for _ in 0..options.samples.max(1) {
            std::thread::sleep(options.interval);
            sampler.sample()?;
        }
        return print(&sampler.history, options).map_err(TopError::Terminal);
    }
    if options.live {
        return live(&mut sampler, options);
    }
    while !(options.should_stop)() {
        std::thread::sleep(options.interval);
        sampler.sample()?;
        print(&sampler.history, options).map_err(TopError::Terminal)?;
    }
    Ok(())
}

/// Asks for the numbers, and keeps what frames show.
struct Sampler<'a, S: VolumeSource> {
    source: &'a mut S,
    start: Instant,
    history: History,
    segments_due: Duration,
    heat_due: Duration,
}

impl<'a, S: VolumeSource> Sampler<'a, S> {
    fn new(source: &'a mut S) -> Result<Self, TopError<S::Error>> {
        let first: Numbers = understood(source.numbers().map_err(TopError::Volume)?)?;
        let history = History::new(Sample { at: Duration::ZERO, numbers: first });
        let (segments_due, heat_due) = (Duration::ZERO, Duration::ZERO);
        Ok(Self { source, start: Instant::now(), history, segments_due, heat_due })
    }

    fn sample(&mut self) -> Result<(), TopError<S::Error>> {
        let numbers = understood(self.source.numbers().map_err(TopError::Volume)?)?;
        let now = self.start.elapsed();
        self.history.add(Sample { at: now, numbers });
        if now >= self.segments_due {
            self.history.segments = understood(self.source.segments().map_err(TopError::Volume)?)?;
            let count = self.history.segments.segments.len() as u64;
            self.segments_due = now + Duration::from_millis(count * 1000 / SEGMENTS_A_SECOND);
        }
        if now >= self.heat_due {
            let answer = self.source.heat().and_then(|text| read(&text).ok());
            // A source that is still looking is asked again; its last answer stays.
            let pause = if answer.is_some() { HEAT_INTERVAL } else { Duration::ZERO };
            self.history.heat = answer.or(self.history.heat.take());
            self.heat_due = now + pause;
        }
        Ok(())
    }
}

fn understood<T: serde::de::DeserializeOwned, E>(text: String) -> Result<T, TopError<E>> {
    read(&text).map_err(TopError::Answer)
}

/// Prints one frame.
fn print(history: &History, options: &TopOptions) -> io::Result<()> {
    let of_terminal = terminal::size().ok().filter(|_| io::stdout().is_terminal());
    let (columns, lines) = of_terminal.unwrap_or(SIZE_DEFAULT);
    let width = options.size.0.unwrap_or(columns).clamp(1, SIZE_MAX);
    // The line of the shell's prompt follows a frame.
    let height = options.size.1.unwrap_or(lines.saturating_sub(u16::from(of_terminal.is_some())));
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height.clamp(1, SIZE_MAX)));
    draw(&mut buffer, history, &Controls::default(), options.look);
    let text = match options.svg {
        true => picture::svg(&buffer),
        false => picture::text(&buffer, options.look.has_colours()),
    };
    sfs_system::output::print(text)
}

/// The terminal in the state of the live view. Dropping it restores the terminal.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            previous(panic);
        }));
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // A terminal that is gone cannot be restored.
    let _ = terminal::disable_raw_mode();
    let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = io::stdout().flush();
}

fn live<S: VolumeSource>(
    sampler: &mut Sampler<'_, S>,
    options: &TopOptions,
) -> Result<(), TopError<S::Error>> {
    let screen = Screen::enter().map_err(TopError::Terminal)?;
    let backend = CrosstermBackend::new(io::stdout());
    let mut terminal = Terminal::new(backend).map_err(TopError::Terminal)?;
    let mut controls = Controls::default();
    let mut due = Instant::now();
    let mut is_changed = true;
    while !(options.should_stop)() {
        if Instant::now() >= due && !controls.is_paused {
            sampler.sample()?;
            due = Instant::now() + options.interval;
            is_changed = true;
        }
        if is_changed {
            let history = &sampler.history;
            let look = options.look;
            terminal
                .draw(|frame| draw(frame.buffer_mut(), history, &controls, look))
                .map_err(TopError::Terminal)?;
        }
        let wait = due.saturating_duration_since(Instant::now()).min(WAIT_MAX);
        let wait = if controls.is_paused { WAIT_MAX } else { wait };
        is_changed = false;
        while event::poll(if is_changed { Duration::ZERO } else { wait })
            .map_err(TopError::Terminal)?
        {
            match event::read().map_err(TopError::Terminal)? {
                Event::Key(key) => match controls.press(key) {
                    KeyEffect::Quit => {
                        drop(screen);
                        return Ok(());
                    }
                    KeyEffect::Redraw => is_changed = true,
                    KeyEffect::Nothing => {}
                },
                Event::Resize(..) => is_changed = true,
                _ => {}
            }
            if !is_changed {
                break;
            }
        }
    }
    Ok(())
}
