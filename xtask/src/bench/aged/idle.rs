//! The rest in which SFS puts files in order by itself.
//!
//! SFS moves a file while nobody uses the volume, if the file was read in order from the volume and had not been written for a
//! minute by then, and if segments are not short. A file that was written later than that is passed over until it is read again.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{machine, workspace::Programs};

/// Time after the last write before the file is read: SFS passes over a file that was written within a minute, and looks
/// at a file soon after it was read.
const UNWRITTEN: Duration = Duration::from_secs(65);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Time without progress after which no more is expected: SFS leaves users alone for 5 seconds at most, and a step moves 4 MiB.
const REST: Duration = Duration::from_secs(20);

/// Longest wait.
const REST_MAX: Duration = Duration::from_secs(600);

/// Bytes that a volume has moved since it was mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MovedBytes {
    cleaning: u64,
    defragmentation: u64,
}

/// Calls `read`, which reads the file from one end to the other, when SFS takes notice of it, and then waits until the volume that
/// is mounted on `dir` is at rest. Nothing writes to the volume any more.
pub(super) fn put_in_order(
    programs: &Programs,
    dir: &Path,
    read: impl FnOnce() -> Result<()>,
) -> Result<()> {
    thread::sleep(UNWRITTEN);
    // What the kernel has in its cache is not read from the volume.
    machine::drop_caches()?;
    read()?;
    wait_until_at_rest(programs, dir)
}

/// Waits until the volume that is mounted on `dir` has not cleaned, which comes first, nor defragmented for some time.
fn wait_until_at_rest(programs: &Programs, dir: &Path) -> Result<()> {
    let begin = Instant::now();
    let before = MovedBytes::of(programs, dir)?;
    let (mut moved, mut last_progress) = (before, begin);
    while last_progress.elapsed() < REST && begin.elapsed() < REST_MAX {
        thread::sleep(PAUSE);
        let now = MovedBytes::of(programs, dir)?;
        if now != moved {
            (moved, last_progress) = (now, Instant::now());
        }
    }
    println!(
        "while idle: {} MiB defragmented since the mount, {} MiB cleaned, in {:?}",
        moved.defragmentation >> 20,
        (moved.cleaning - before.cleaning) >> 20,
        last_progress - begin
    );
    Ok(())
}

impl MovedBytes {
    /// Asks the volume that is mounted on `dir`.
    fn of(programs: &Programs, dir: &Path) -> Result<Self> {
        let text = programs.cmd("sfs-ctl").args(["stat", "--json"]).arg(dir).read()?;
        let stat: Value = serde_json::from_str(&text)?;
        let counter = |name: &str| {
            let found = stat.pointer(&format!("/mount/counters/{name}")).and_then(Value::as_u64);
            found.with_context(|| format!("sfs-ctl stat shows no {name}"))
        };
        Ok(Self {
            cleaning: counter("cleaning_bytes")?,
            defragmentation: counter("defragmentation_bytes")?,
        })
    }
}
