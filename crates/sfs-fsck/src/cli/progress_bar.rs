//! Progress bar on a terminal, for checks that take longer than two seconds.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::interrupt::InterruptFlag;
use crate::progress::{CheckProgress, Stage};

/// Time before the bar appears.
const DELAY: Duration = Duration::from_secs(2);

/// Progress bar of a check or repair.
pub(crate) struct CheckBar {
    since: Instant,
    shown: Option<(Stage, ProgressBar)>,
    /// `true` if standard error is a terminal.
    is_wanted: bool,
}

impl CheckBar {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), shown: None, is_wanted: stderr().is_terminal() }
    }

    /// Shows `progress`, if the check has taken long enough.
    pub(crate) fn show(&mut self, progress: CheckProgress) {
        if !self.is_wanted || self.since.elapsed() < DELAY {
            return;
        }
        let CheckProgress { stage, done, total } = progress;
        if self.shown.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            self.clear();
            self.shown = Some((stage, bar(stage, total)));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set_position(done);
        }
    }

    /// Removes the bar from the terminal.
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

/// Runs `work` with a progress bar, until an interrupt.
pub(crate) fn with_bar<T>(
    interrupt: &InterruptFlag,
    work: impl FnOnce(&mut dyn FnMut(CheckProgress) -> ControlFlow<()>) -> T,
) -> T {
    let mut bar = CheckBar::new();
    let result = work(&mut |progress| {
        bar.show(progress);
        match interrupt.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.clear();
    result
}
