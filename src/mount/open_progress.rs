//! Progress of opening a volume, as text for the user.

use std::path::Path;
use std::time::{Duration, Instant};

use sfs_core::request::OpenProgress;

/// Time before the first text.
const DELAY: Duration = Duration::from_secs(2);

/// Time between two texts.
const INTERVAL: Duration = Duration::from_secs(1);

/// Writer of texts about the progress of opening one volume.
pub(crate) struct OpenProgressText {
    device: String,
    since: Instant,
    /// Time from which on the next text is due.
    next: Instant,
}

impl OpenProgressText {
    /// Returns the writer for the volume at `path`, whose opening begins at `now`.
    pub(crate) fn begin(path: &Path, now: Instant) -> Self {
        Self { device: path.display().to_string(), since: now, next: now + DELAY }
    }

    /// Returns the text for `progress` at the time `now`, if one is due.
    pub(crate) fn text(&mut self, progress: OpenProgress, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + INTERVAL;
        let total_blocks = progress.total_blocks.max(1);
        let found_blocks = progress.found_blocks.clamp(1, total_blocks);
        let percent = found_blocks * 100 / total_blocks;
        let rest = total_blocks as f64 / found_blocks as f64 - 1.0;
        let left_secs = (now - self.since).as_secs_f64() * rest;
        Some(format!(
            "{}: finding the blocks in place: {percent}%, {left_secs:.0} s left",
            self.device
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_after_two_seconds_and_each_second() {
        let start = Instant::now();
        let mut text = OpenProgressText::begin(Path::new("/dev/sdx"), start);
        let mut at = |millis, found_blocks| {
            let progress = OpenProgress { found_blocks, total_blocks: 1000 };
            text.text(progress, start + Duration::from_millis(millis))
        };
        let shown = |rest: &str| Some(format!("/dev/sdx: finding the blocks in place: {rest}"));
        assert_eq!(at(0, 0), None);
        assert_eq!(at(1999, 100), None);
        assert_eq!(at(2000, 200), shown("20%, 8 s left"));
        assert_eq!(at(2999, 300), None);
        assert_eq!(at(4000, 500), shown("50%, 4 s left"));
        assert_eq!(at(6000, 1000), shown("100%, 0 s left"));
        assert_eq!(at(8000, 1200), shown("100%, 0 s left"), "the table is wrong");
    }
}
