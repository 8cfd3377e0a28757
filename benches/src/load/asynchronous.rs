//! The rows of asynchronous direct requests, which fio makes by libaio or io_uring.
//!
//! The times are fio's own, which exclude its startup and exit. A sync after writes counts as well: what still waits in a write buffer
//! is not written.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::{Client, LoadDirectory, RowWork, Scale, buffer::BLOCK};

/// Interface by which requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Requests by io_submit(2).
    Libaio,
    /// Requests by io_uring_enter(2).
    Uring,
}

/// Direction of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

#[derive(Deserialize)]
struct FioReport {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: Side,
    write: Side,
    /// Percent of the time of the requests.
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Deserialize)]
struct Side {
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
}

/// Makes random requests of a block on the whole file, `depth` of them at a time.
pub(super) fn run(
    place: &LoadDirectory,
    scale: &Scale,
    (engine, direction): (Engine, Direction),
    depth: u64,
) -> Result<RowWork> {
    let output = command(place, scale, (engine, direction), depth).output();
    let output = output.context("fio cannot be run: apt-get install fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fio: {}", failed.trim());
    let mut work = done(&text, direction).with_context(|| format!("fio output: {text}"))?;
    if direction == Direction::Write {
        let begin = Instant::now();
        File::open(place.file())?.sync_all()?;
        work.client.iter_mut().for_each(|client| client.wall += begin.elapsed());
    }
    Ok(work)
}

fn command(
    place: &LoadDirectory,
    scale: &Scale,
    (engine, direction): (Engine, Direction),
    depth: u64,
) -> Command {
    let mut command = Command::new("fio");
    let engine = if engine == Engine::Libaio { "libaio" } else { "io_uring" };
    let kind = if direction == Direction::Read { "randread" } else { "randwrite" };
    command
        .args(["--name=load", "--output-format=json", "--direct=1", "--norandommap", "--thread"])
        .args([format!("--ioengine={engine}"), format!("--rw={kind}")])
        .args([format!("--bs={BLOCK}"), format!("--iodepth={depth}")])
        .args([format!("--size={}", scale.file_len), format!("--randseed={}", place.seed)])
        .arg(format!("--io_size={}", scale.async_requests * BLOCK as u64))
        .arg(format!("--runtime={}", scale.time_max.as_secs()))
        .arg(format!("--filename={}", place.file().display()));
    command
}

/// Parses fio's output, which may have a line of text before the JSON.
fn done(output: &str, direction: Direction) -> Result<RowWork> {
    let json = &output[output.find('{').context("the output has no JSON")?..];
    let mut answer: FioReport = serde_json::from_str(json)?;
    let job = answer.jobs.pop().context("no job was run")?;
    ensure!(job.error == 0, "error {}", job.error);
    let side = if direction == Direction::Read { job.read } else { job.write };
    let wall = Duration::from_millis(side.runtime);
    let cpu = wall.mul_f64((job.usr_cpu + job.sys_cpu) / 100.0);
    let (ops, bytes) = (side.total_ios, side.total_ios * BLOCK as u64);
    Ok(RowWork { ops, bytes, client: Some(Client { wall, cpu }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_fio_is_parsed() {
        let output = r#"fio: a note
            {"jobs": [{"error": 0, "usr_cpu": 10.0, "sys_cpu": 15.0,
            "read": {"total_ios": 7, "runtime": 200}, "write": {"total_ios": 0, "runtime": 0}}]}"#;
        let done = done(output, Direction::Read).unwrap();
        assert_eq!((done.ops, done.bytes), (7, 7 * 4096));
        let client = done.client.unwrap();
        assert_eq!((client.wall.as_millis(), client.cpu.as_millis()), (200, 50));
        assert!(
            super::done(&output.replace("\"error\": 0", "\"error\": 5"), Direction::Read).is_err()
        );
        assert!(super::done("fio: no file", Direction::Read).is_err());
    }
}
