//! Runs one row of the benchmark on a mounted filesystem and prints its cost.
//!
//! The line is: operations, bytes, then nanoseconds of wall time and of the client's, the daemon's
//! and the kernel workers' CPU time. With `--count` the line continues with the number of the
//! daemon's instructions in user space and in the kernel (`-` where the machine does not count
//! them), and of its system calls.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Parser;
use sfs_bench::load::{LoadDirectory, Row, Scale, Watch, measure};

#[derive(Parser)]
#[command(name = "fuse-load", about = "One row of the FUSE benchmark on a mounted filesystem")]
struct Arguments {
    /// Directory on the filesystem under test.
    dir: PathBuf,
    /// Row to run.
    row: Row,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run at the quick scale instead of the published one.
    #[arg(long)]
    quick: bool,
    /// Device below the filesystem, whose page cache is dropped too.
    #[arg(long)]
    device: Option<PathBuf>,
    /// Process of the filesystem, whose CPU time is counted.
    #[arg(long = "pid")]
    pids: Vec<u32>,
    /// Ending of the names of kernel workers whose CPU time is counted.
    #[arg(long = "worker")]
    workers: Vec<String>,
    /// Count the instructions of the filesystem's processes, by perf(1).
    #[arg(long)]
    count: bool,
    /// Write samples of all processors during the row to this file, by perf(1).
    #[arg(long, conflicts_with = "count")]
    profile: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuse-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let scale = if arguments.quick { Scale::QUICK } else { Scale::FULL };
    let place = LoadDirectory::new(arguments.dir, arguments.device, arguments.seed);
    let (pids, workers) = (arguments.pids, arguments.workers);
    let watch = Watch { pids, workers, counts: arguments.count, profile: arguments.profile };
    let sample = measure(arguments.row, &place, &scale, &watch)?;
    let cpu = sample.cpu;
    let times = [sample.wall, cpu.client, cpu.daemon, cpu.workers].map(|time| time.as_nanos());
    let [wall, client, daemon, workers] = times;
    print!("{} {} {wall} {client} {daemon} {workers}", sample.done.ops, sample.done.bytes);
    if let Some(counts) = sample.counts {
        let number =
            |count: Option<u64>| count.map_or_else(|| "-".into(), |count| count.to_string());
        print!(" {} {} {}", number(counts.user), number(counts.kernel), counts.calls);
    }
    println!();
    Ok(())
}
