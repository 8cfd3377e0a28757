//! Mounts the null filesystem and serves it in the foreground until it is unmounted.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use sfs_bench::null::{self, Transport};

#[derive(Parser)]
#[command(name = "nullfs", about = "A FUSE filesystem in RAM: the ceiling of the benchmarks")]
struct Arguments {
    /// Empty directory to mount on.
    dir: PathBuf,
    /// Send every write(2) to the daemon at once.
    #[arg(long)]
    no_writeback: bool,
    /// Transport of requests; only root may choose another than the default.
    #[arg(long, default_value = "fuser")]
    transport: Transport,
    /// Number of threads that serve requests; by default at least as many as sfs-mount starts.
    #[arg(long)]
    threads: Option<usize>,
    /// Keep file content on this device, which is overwritten: the cost of FUSE and a device.
    #[arg(long)]
    device: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A daemon leads a session, since the scheduler shares processors by session. The process may
    // lead one already.
    let _ = rustix::process::setsid();
    let Arguments { dir, no_writeback, transport, threads, device } = &arguments;
    match null::serve(dir, *transport, !no_writeback, *threads, device.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nullfs: {}: {error}", arguments.dir.display());
            ExitCode::FAILURE
        }
    }
}
