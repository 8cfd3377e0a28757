//! The progress bar of a long command.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// What lasts longer shows a bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `work`, and shows a bar on standard error once it has taken a while.
pub(crate) fn with_bar<T>(work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let began = Instant::now();
    let bar = ProgressBar::hidden();
    let style = ProgressStyle::with_template("{bar:40} {percent} % {eta}").expect("a template");
    bar.set_style(style);
    let mut shown = false;
    let out = work(&mut |done, total| {
        if !shown && began.elapsed() > PATIENCE {
            shown = true;
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    out
}
