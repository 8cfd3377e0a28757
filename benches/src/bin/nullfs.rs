//! Mounts the null filesystem and serves it in the foreground until it is unmounted.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

#[derive(Parser)]
#[command(name = "nullfs", about = "A FUSE filesystem in RAM: the ceiling of the benchmarks")]
struct Arguments {
    /// An empty directory.
    dir: PathBuf,
    /// Every write(2) goes to the daemon at once.
    #[arg(long)]
    no_writeback: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match sfs_bench::null::serve(&arguments.dir, !arguments.no_writeback) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nullfs: {}: {error}", arguments.dir.display());
            ExitCode::FAILURE
        }
    }
}
