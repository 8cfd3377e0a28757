//! Whole frames, on a backend without a terminal.

use std::time::Duration;

use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;

use super::controls::{Controls, MapOf};
use super::frame::draw;
use super::look::Look;
use super::picture;
use crate::fixture;
use crate::model::read;
use crate::rates::{History, Sample};

/// Returns what frames show after `count` samples.
fn history(count: u64) -> History {
    let sample = |secs: u64| Sample {
        at: Duration::from_secs(secs),
        numbers: read(&fixture::numbers(secs).to_string()).expect("JSON"),
    };
    let mut history = History::new(sample(0));
    (1..=count).for_each(|secs| history.add(sample(secs)));
    history.segments = read(&fixture::segments().to_string()).expect("JSON");
    history.heat = Some(read(&fixture::heat().to_string()).expect("JSON"));
    history
}

fn frame(
    history: &History,
    controls: &Controls,
    look: Look,
    (width, height): (u16, u16),
) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&mut buffer, history, controls, look);
    buffer
}

/// Compares a frame with a file beside this one. With `SFS_UPDATE` set, the file is written instead.
fn expect_frame(name: &str, text: &str) {
    let path = format!("{}/src/terminal/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SFS_UPDATE").is_some() {
        std::fs::write(&path, text).expect("the file is written");
    }
    let expected = std::fs::read_to_string(&path).expect("the file of the frame");
    assert_eq!(text, expected, "the frame differs from {path}; SFS_UPDATE=1 writes the file anew");
}

#[test]
fn a_frame_of_80_by_24_without_colours() {
    let buffer = frame(&history(20), &Controls::default(), Look::PLAIN, (80, 24));
    let text = picture::text(&buffer, false);
    assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80), "{text}");
    expect_frame("plain-80x24", &text);
}

#[test]
fn a_large_frame_with_groups() {
    let controls = Controls { map: MapOf::Group, is_paused: true, ..Controls::default() };
    let buffer = frame(&history(60), &controls, Look::FULL, (132, 43));
    expect_frame("full-132x43", &picture::text(&buffer, false));
}

#[test]
fn frames_of_every_size_are_drawn() {
    let history = history(3);
    let controls = [
        Controls::default(),
        Controls { zoom: 24, row: usize::MAX, map: MapOf::Erases, ..Controls::default() },
        Controls { shows_help: true, ..Controls::default() },
    ];
    for (width, height) in
        (1..=140).step_by(7).flat_map(|width| (1..=50).map(move |height| (width, height)))
    {
        for controls in &controls {
            frame(&history, controls, Look::FULL, (width, height));
        }
    }
    // A volume of which nothing is known.
    frame(&History::default(), &controls[0], Look::PLAIN, (80, 24));
}

#[test]
fn the_terminal_gets_the_frame() {
    let (history, controls) = (history(5), Controls::default());
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).expect("a backend");
    terminal
        .draw(|shown| draw(shown.buffer_mut(), &history, &controls, Look::FULL))
        .expect("no error");
    terminal.backend().assert_buffer(&frame(&history, &controls, Look::FULL, (100, 30)));
}

#[test]
fn the_first_lines_answer_the_questions_of_a_stranger() {
    let text =
        picture::text(&frame(&history(20), &Controls::default(), Look::FULL, (80, 24)), false);
    let lines: Vec<&str> = text.lines().collect();
    let line = |start: &str| *lines.iter().find(|line| line.starts_with(start)).expect(start);
    assert!(line("Health").contains("GOOD"), "{text}");
    assert!(line("Now").contains("Mostly writing"), "{text}");
    assert!(line("Files").contains("/var/log/journal/system.journal (41 %)"), "{text}");
    assert!(line("Wear").contains("written 10.9 times over"), "{text}");
}

#[test]
fn zoom_and_scrolling_show_other_segments() {
    let history = history(1);
    let range = |zoom, row| {
        let controls = Controls { zoom, row, ..Controls::default() };
        let text = picture::text(&frame(&history, &controls, Look::PLAIN, (80, 24)), false);
        let line =
            text.lines().find(|line| line.contains(" a cell, ")).expect("the range").to_owned();
        let end = line.find(" a cell").expect("the number of segments in a cell");
        let from = line[..end].rfind(' ').map_or(0, |space| space + 1);
        line[from..].split("  ").next().unwrap_or_default().to_owned()
    };
    assert!(range(0, 0).ends_with("0 to 999"), "{}", range(0, 0));
    assert!(range(9, 0).starts_with("1 a cell, 0 to "), "{}", range(9, 0));
    assert!(range(9, usize::MAX).ends_with(" to 999"), "{}", range(9, usize::MAX));
    assert_ne!(range(9, 0), range(9, 1));
}
