//! The head of a frame: which volume, its health and wear in sentences, what it is busy with, and throughput.

use super::canvas::Canvas;
use super::controls::Controls;
use super::look::Look;
use crate::model::Heat;
use crate::numbers::{bytes, factor, percent, plain};
use crate::rates::{History, Rates};
use crate::sentences;

/// Column at which the sentences begin.
const SENTENCES_AT: u16 = 8;

/// Largest number of files that are named.
const FILES_MAX: usize = 6;

/// Column at which the lines of throughput begin.
const SPARKS_AT: u16 = 27;

/// Width of the numbers right of the lines of throughput.
const RIGHT_WIDTH: u16 = 31;

/// Draws the head; returns the number of its rows.
pub(super) fn draw(
    canvas: &mut Canvas<'_>,
    history: &History,
    controls: &Controls,
    look: Look,
) -> u16 {
    draw_title(canvas, history, controls, look);
    let numbers = &history.last.numbers;
    let (level, health) = sentences::health(numbers);
    let mut y = 1;
    canvas.text(0, y, "Health", look.title());
    let x = canvas.text(SENTENCES_AT, y, &format!(" {} ", level.word()), look.level(level));
    y += canvas.paragraph(x + 1, y, 2, &health, look.plain()).max(1);
    let width = usize::from(canvas.width().saturating_sub(SENTENCES_AT));
    let files = history.heat.as_ref().and_then(|heat| files(heat, width));
    let wear = sentences::wear(numbers);
    let lines = [
        ("Wear", wear, 2),
        ("Now", sentences::busy(&history.now()), 1),
        ("Files", files.unwrap_or_default(), 1),
    ];
    for (name, sentence, rows) in lines {
        if !sentence.is_empty() {
            canvas.text(0, y, name, look.title());
            y += canvas.paragraph(SENTENCES_AT, y, rows, &sentence, look.plain()).max(1);
        }
    }
    draw_throughput(canvas, y, history, look);
    y + 2
}

/// Returns the sentence about the files, with as many of them as fit into `width`; at least one.
fn files(heat: &Heat, width: usize) -> Option<String> {
    let sentence = |count| Some(format!("Most written: {}", sentences::files(heat, count)?));
    let fits = |text: &String| text.chars().count() <= width;
    (2..=FILES_MAX).rev().find_map(|count| sentence(count).filter(fits)).or_else(|| sentence(1))
}

fn draw_title(canvas: &mut Canvas<'_>, history: &History, controls: &Controls, look: Look) {
    let numbers = &history.last.numbers;
    let width = canvas.width();
    let state = if controls.is_paused { "PAUSED".to_owned() } else { String::new() };
    let place = numbers.mount_point.as_deref().unwrap_or(&numbers.device);
    let x = canvas.text(0, 0, &format!("SFS {}", plain(place)), look.title());
    let space = &numbers.space;
    let size = space.total_blocks as f64 * space.block_bytes as f64;
    let used = space.total_blocks.saturating_sub(space.available_blocks) as f64
        / space.total_blocks.max(1) as f64;
    let mut text = format!(" on {}", plain(&numbers.device));
    if !numbers.label.is_empty() {
        text += &format!(" \"{}\"", plain(&numbers.label));
    }
    text += &format!(", {}, {} used", bytes(size), percent(used));
    if numbers.read_only {
        text += ", read-only";
    }
    canvas.text(x, 0, &text, look.plain());
    canvas.text_right(width, 0, &state, look.level(sentences::Level::Warning));
}

fn draw_throughput(canvas: &mut Canvas<'_>, y: u16, history: &History, look: Look) {
    let now = history.now();
    let width = canvas.width();
    let len = usize::from(width.saturating_sub(SPARKS_AT + RIGHT_WIDTH));
    let recent = &history.rates[history.rates.len().saturating_sub(len)..];
    let most =
        recent.iter().map(|rates| rates.device_bytes.max(rates.user_bytes)).fold(0.0, f64::max);
    let field: [fn(&Rates) -> f64; 2] = [|rates| rates.user_bytes, |rates| rates.device_bytes];
    let life = history.last.numbers.life.log_write_amplification;
    let rows = [
        ("Programs write", field[0], "Amplification now", now.amplification),
        ("To the device", field[1], "      over its life", life),
    ];
    for (row, (name, field, right, value)) in (y..).zip(rows) {
        canvas.text(0, row, name, look.title());
        canvas.text_right(SPARKS_AT - 1, row, &format!("{}/s", bytes(field(&now))), look.plain());
        for (x, rates) in (SPARKS_AT..).zip(recent) {
            let share = if most > 0.0 { field(rates) / most } else { 0.0 };
            canvas.text(x, row, look.column(share), look.group(5));
        }
        let value = value.map_or("none".to_owned(), factor);
        canvas.text_right(width.saturating_sub(6), row, right, look.title());
        canvas.text_right(width, row, &value, look.plain());
    }
}
