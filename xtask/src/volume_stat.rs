//! Counters and segments of a mounted SFS volume, as `sfs-ctl stat` reports them.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::workspace::Programs;

/// Interval between two readings of the number of segments.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Needed part of the output of `sfs-ctl stat --json`.
#[derive(Deserialize)]
pub(crate) struct VolumeStat {
    pub(crate) segments: Segments,
    mount: Activity,
}

/// Numbers of segments by state.
#[derive(Deserialize)]
pub(crate) struct Segments {
    /// Number of blocks in a segment.
    pub(crate) blocks: u64,
    pub(crate) clean: u64,
    pub(crate) open: u64,
    pub(crate) sealed: u64,
    pub(crate) drained: u64,
}

#[derive(Deserialize)]
struct Activity {
    /// Counters by name.
    counters: BTreeMap<String, u64>,
}

/// Average numbers of segments while data was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AverageSegments {
    /// Clean and Drained segments.
    pub(crate) empty: f64,
    pub(crate) open: f64,
}

impl Segments {
    /// Returns the number of segments of the log.
    pub(crate) fn count(&self) -> u64 {
        self.clean + self.open + self.sealed + self.drained
    }
}

impl VolumeStat {
    /// Reads the state of the volume that is mounted at `dir`.
    pub(crate) fn read(programs: &Programs, dir: &Path) -> Result<Self> {
        let json = programs.cmd("sfs-ctl").args(["stat", "--json"]).arg(dir).read()?;
        Ok(serde_json::from_str(&json)?)
    }

    /// Returns by how much the counter `name` has grown since `before`.
    pub(crate) fn increase_since(&self, before: &Self, name: &str) -> Result<u64> {
        let both = self.counter(name).zip(before.counter(name));
        both.map(|(after, before)| after - before).with_context(|| format!("no {name}"))
    }

    fn counter(&self, name: &str) -> Option<u64> {
        self.mount.counters.get(name).copied()
    }
}

/// Runs `work`, and returns its result with the segments of the volume at `dir` on average while
/// `work` wrote data.
pub(crate) fn watch_segments<T>(
    programs: &Programs,
    dir: &Path,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, AverageSegments)> {
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watcher = scope.spawn(move || -> Result<AverageSegments> {
            let (mut sum, mut readings, mut written) = (AverageSegments::default(), 0_u32, 0);
            while ended.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let stat = VolumeStat::read(programs, dir)?;
                let bytes = stat.counter("user_bytes_written");
                if bytes > Some(written) {
                    sum.empty += (stat.segments.clean + stat.segments.drained) as f64;
                    sum.open += stat.segments.open as f64;
                    readings += 1;
                }
                written = bytes.unwrap_or(0);
            }
            let readings = f64::from(readings.max(1));
            Ok(AverageSegments { empty: sum.empty / readings, open: sum.open / readings })
        });
        let outcome = work();
        drop(end);
        let average = watcher.join().expect("the watcher does not panic")?;
        Ok((outcome?, average))
    })
}
