//! The results, and the tables that show them.

use std::fmt::Write as _;

use anyhow::Error;

use super::{super::medium::Medium, counts::Reads, work::Scale};
use crate::filesystem::FilesystemKind;

/// State of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Fresh,
    Aged,
    /// Overwritten again, read a minute later, and then left alone until the volume moved nothing more.
    Idle,
    /// After `sfs-ctl defrag`.
    Defragmented,
}

impl State {
    /// Returns the states of a filesystem, in order.
    pub(super) fn all(kind: FilesystemKind) -> &'static [Self] {
        match kind {
            FilesystemKind::Sfs => &[Self::Fresh, Self::Aged, Self::Idle, Self::Defragmented],
            _ => &[Self::Fresh, Self::Aged],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Aged => "aged",
            Self::Idle => "aged, then idle",
            Self::Defragmented => "put in order",
        }
    }
}

/// Figures of one filesystem in one state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// The file, from one end to the other.
    pub(super) in_order: Reads,
    /// Random direct reads in a second, one at a time.
    pub(super) depth_1: f64,
    /// The same, by sixteen threads.
    pub(super) depth_16: f64,
    /// The walk through the tree.
    pub(super) walk: Reads,
}

/// Results of all runs.
#[derive(Default)]
pub(super) struct Report {
    rows: Vec<(Medium, String, State, Figures)>,
    failures: Vec<String>,
}

impl Report {
    pub(super) fn add(&mut self, medium: Medium, filesystem: &str, state: State, figures: Figures) {
        self.rows.push((medium, filesystem.to_owned(), state, figures));
    }

    pub(super) fn add_failure(&mut self, medium: Medium, filesystem: &str, error: &Error) {
        self.failures.push(format!("{filesystem} on {}: {error:#}", medium.name()));
    }

    /// Formats one table.
    pub(super) fn markdown(&self, scale: &Scale) -> String {
        let file_mib = scale.file_len() >> 20;
        let mut text = format!(
            "A file of {file_mib} MiB on a device of {} MiB, read from one end to the other with a cold cache: after it was \
             written in order, and after {} MiB of it were overwritten at random (Zipf 0.99, 4 KiB); SFS also after the same \
             once more, one reading a minute later, and a rest as long as it defragments by itself, and after `sfs-ctl defrag`. Requests and bytes are those \
             of the block device. Random reads are direct, of 4 KiB, by one thread and by sixteen, for {} s. The walk lists \
             10,000 small files with their attributes.\n\n",
            scale.device_mib, scale.overwrite_mib, scale.seconds
        );
        text += "| device | filesystem | state | requests | bytes / file | MB/s | random, 1 | random, 16 | walk, requests | walk, ms |\n";
        text += "|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n";
        for (medium, filesystem, state, figures) in &self.rows {
            let Figures { in_order, depth_1, depth_16, walk } = figures;
            let part = in_order.bytes as f64 / scale.file_len() as f64;
            let speed = scale.file_len() as f64 / 1e6 / in_order.time.as_secs_f64();
            let _ = writeln!(
                text,
                "| {} | {filesystem} | {} | {} | {part:.2} | {speed:.1} | {depth_1:.0} | {depth_16:.0} | {} | {} |",
                medium.name(),
                state.name(),
                in_order.requests,
                walk.requests,
                walk.time.as_millis(),
            );
        }
        for failure in &self.failures {
            let _ = writeln!(text, "\nFailed: {failure}");
        }
        text
    }
}
