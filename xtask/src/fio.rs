//! fio: a load on one file, and what it says of it.
//!
//! Owns the form of its answer. Promises that a run that fio calls failed is an error.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::run::Cmd;

#[derive(Deserialize)]
struct Fio {
    jobs: Vec<Job>,
}

/// What a job did.
#[derive(Deserialize)]
pub(crate) struct Job {
    error: i32,
    pub(crate) read: Side,
    pub(crate) write: Side,
}

/// One direction of it.
#[derive(Deserialize)]
pub(crate) struct Side {
    pub(crate) total_ios: u64,
    pub(crate) iops: f64,
    pub(crate) clat_ns: Latency,
}

/// How long requests took, in nanoseconds.
#[derive(Deserialize)]
pub(crate) struct Latency {
    pub(crate) max: u64,
    pub(crate) mean: f64,
}

/// Runs one job on `size` bytes of `file`, one request at a time. Its answer goes by `out`.
pub(crate) fn run(file: &Path, size: u64, out: &Path, arguments: &[&str]) -> Result<Job> {
    let cmd = Cmd::new("fio")
        .args(["--name=load", "--ioengine=psync", "--output-format=json", "--randseed=7"])
        // Otherwise it leaves a file in the working directory.
        .arg("--verify_state_save=0")
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={size}"))
        .arg(format!("--output={}", out.display()));
    cmd.args(arguments).read()?;
    // fio may put a line of its own before the JSON.
    let text = fs::read_to_string(out)?;
    let json = &text[text.find('{').context("fio printed no JSON")?..];
    let job = serde_json::from_str::<Fio>(json)?.jobs.pop().context("fio ran no job")?;
    ensure!(job.error == 0, "fio failed with error {}", job.error);
    Ok(job)
}
