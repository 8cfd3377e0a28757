//! fio: a load on one file, and fio's report.
//!
//! A run that fio reports as failed is an error.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::run::Cmd;

#[derive(Deserialize)]
struct Fio {
    jobs: Vec<Job>,
}

/// Report of a job.
#[derive(Deserialize)]
pub(crate) struct Job {
    error: i32,
    pub(crate) read: Side,
    pub(crate) write: Side,
}

/// Report of the reads or of the writes.
#[derive(Deserialize)]
pub(crate) struct Side {
    pub(crate) total_ios: u64,
    pub(crate) iops: f64,
    pub(crate) clat_ns: Latency,
}

/// Latency of the requests, in nanoseconds.
#[derive(Deserialize)]
pub(crate) struct Latency {
    pub(crate) max: u64,
    pub(crate) mean: f64,
}

/// Runs one job on `size` bytes of `file`, one request at a time. fio writes its report to `out`.
pub(crate) fn run(file: &Path, size: u64, out: &Path, arguments: &[&str]) -> Result<Job> {
    let cmd = Cmd::new("fio")
        .args(["--name=load", "--ioengine=psync", "--output-format=json", "--randseed=7"])
        // Otherwise fio leaves a file in the working directory.
        .arg("--verify_state_save=0")
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={size}"))
        .arg(format!("--output={}", out.display()));
    cmd.args(arguments).read()?;
    // fio may print a line of text before the JSON.
    let text = fs::read_to_string(out)?;
    let json = &text[text.find('{').context("fio printed no JSON")?..];
    let job = serde_json::from_str::<Fio>(json)?.jobs.pop().context("fio ran no job")?;
    ensure!(job.error == 0, "fio failed with error {}", job.error);
    Ok(job)
}
