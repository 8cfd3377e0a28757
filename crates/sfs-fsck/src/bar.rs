//! The progress bar: on a terminal, and only if it takes a while.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sfs_fsck::{Progress, Stage};

/// Nobody needs a bar for less.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Bar {
    since: Instant,
    shown: Option<(Stage, ProgressBar)>,
    wanted: bool,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), shown: None, wanted: stderr().is_terminal() }
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        if !self.wanted || self.since.elapsed() < PATIENCE {
            return;
        }
        let Progress { stage, done, total } = progress;
        if self.shown.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            self.clear();
            self.shown = Some((stage, bar(stage, total)));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set_position(done);
        }
    }

    pub(crate) fn clear(&mut self) {
        if let Some((_, bar)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(stage: Stage, total: u64) -> ProgressBar {
    let name = match stage {
        Stage::Tree => "tree",
        Stage::Log => "log",
        Stage::Salvage => "salvage",
        Stage::Writing => "writing",
        Stage::Summaries => "summaries",
        Stage::Data => "data",
    };
    let (bar, template) = match total {
        0 => (ProgressBar::new_spinner(), "{msg:<10} {human_pos} blocks  {per_sec}"),
        _ => (
            ProgressBar::new(total),
            "{msg:<10} {wide_bar} {percent:>3}%  {per_sec} blocks  {eta} left",
        ),
    };
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    bar.with_style(style).with_message(name)
}
