//! The progress bar of a long run, and runs of independent experiments on all processors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;

/// Time after which a bar is shown.
const BAR_DELAY: Duration = Duration::from_secs(2);

/// A bar on standard error that is hidden at first.
struct DelayedBar {
    began: Instant,
    bar: ProgressBar,
    is_shown: AtomicBool,
}

impl DelayedBar {
    fn new() -> Self {
        let bar = ProgressBar::hidden();
        let style = ProgressStyle::with_template("{bar:40} {percent} % {eta}").expect("a template");
        bar.set_style(style);
        Self { began: Instant::now(), bar, is_shown: AtomicBool::new(false) }
    }

    fn set(&self, done: u64, total: u64) {
        if self.began.elapsed() > BAR_DELAY && !self.is_shown.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

/// Runs `work`, and shows a bar on standard error if the work takes longer than two seconds. The
/// callback takes the number of steps done, and the number of all steps.
pub fn with_bar<T>(work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let bar = DelayedBar::new();
    let out = work(&mut |done, total| bar.set(done, total));
    bar.bar.finish_and_clear();
    out
}

/// Runs `work` on every item, on all processors, with the progress bar of [`with_bar`]. Returns the
/// results in the order of the items.
///
/// # Errors
///
/// If the work on an item fails.
pub fn run_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let bar = DelayedBar::new();
    let (done, total) = (AtomicU64::new(0), items.len() as u64);
    let results = items
        .par_iter()
        .map(|item| {
            let result = work(item);
            bar.set(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            result
        })
        .collect();
    bar.bar.finish_and_clear();
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_and_an_error_is_returned() {
        let items: Vec<u32> = (0..1000).collect();
        let squares = run_parallel(&items, |no| Ok(no * no)).expect("squares");
        assert!(squares.into_iter().eq(items.iter().map(|no| no * no)));
        let failing = |no: &u32| if *no == 7 { anyhow::bail!("seven") } else { Ok(*no) };
        assert_eq!(run_parallel(&items, failing).expect_err("an error").to_string(), "seven");
    }
}
