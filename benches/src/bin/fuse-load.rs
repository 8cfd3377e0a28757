//! Runs one row of the benchmark on a mounted filesystem and prints what it took.
//!
//! The line is: operations, bytes, then nanoseconds of wall time and of the client's, the daemon's
//! and the kernel workers' CPU time; with `--count` the daemon's own instructions, those of the kernel for
//! it (or `-`), and its system calls.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Parser;
use sfs_bench::load::{Place, Row, Scale, Watch, measure};

#[derive(Parser)]
#[command(name = "fuse-load", about = "One row of the FUSE benchmark on a mounted filesystem")]
struct Arguments {
    /// A directory on the filesystem under test.
    dir: PathBuf,
    /// What to do.
    row: Row,
    /// Everything random follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A look instead of numbers to publish.
    #[arg(long)]
    quick: bool,
    /// The device below, so that its page cache can be dropped too.
    #[arg(long)]
    device: Option<PathBuf>,
    /// A process of the filesystem, whose CPU time counts.
    #[arg(long = "pid")]
    pids: Vec<u32>,
    /// End of the names of kernel workers whose CPU time counts.
    #[arg(long = "worker")]
    workers: Vec<String>,
    /// Count what the processes of the filesystem execute, by perf(1).
    #[arg(long)]
    count: bool,
    /// Write to this file where all processors spend the time of the row, by perf(1).
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
    let place = Place::new(arguments.dir, arguments.device, arguments.seed);
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
