//! The rest in which SFS puts files in order by itself.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::workspace::Programs;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Time without progress after which no more is expected: SFS leaves a file alone for a minute after its last change.
const REST: Duration = Duration::from_secs(80);

/// Longest wait.
const REST_MAX: Duration = Duration::from_secs(600);

/// Waits until the volume that is mounted on `dir` has not defragmented for some time.
pub(super) fn wait(programs: &Programs, dir: &Path) -> Result<()> {
    let begin = Instant::now();
    let mut written = defragmented_bytes(programs, dir)?;
    let mut last_progress = begin;
    while last_progress.elapsed() < REST && begin.elapsed() < REST_MAX {
        thread::sleep(PAUSE);
        let now = defragmented_bytes(programs, dir)?;
        if now != written {
            (written, last_progress) = (now, Instant::now());
        }
    }
    println!("defragmented while idle: {} MiB in {:?}", written >> 20, last_progress - begin);
    Ok(())
}

/// Returns the bytes that the volume has written to put files in order since it was mounted.
fn defragmented_bytes(programs: &Programs, dir: &Path) -> Result<u64> {
    let text = programs.cmd("sfs-ctl").args(["stat", "--json"]).arg(dir).read()?;
    let stat: Value = serde_json::from_str(&text)?;
    let bytes = stat.pointer("/mount/counters/defragmentation_bytes").and_then(Value::as_u64);
    bytes.context("sfs-ctl stat shows no defragmented bytes")
}
