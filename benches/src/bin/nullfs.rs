//! Mounts the null filesystem and serves it in the foreground until it is unmounted.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use sfs_bench::null::{self, Transport};

#[derive(Parser)]
#[command(name = "nullfs", about = "A FUSE filesystem in RAM: the ceiling of the benchmarks")]
struct Arguments {
    /// An empty directory.
    dir: PathBuf,
    /// Every write(2) goes to the daemon at once.
    #[arg(long)]
    no_writeback: bool,
    /// How requests come from the kernel; only root may choose another.
    #[arg(long, default_value = "fuser")]
    transport: Transport,
    /// Threads that serve; as many as sfs-mount starts if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Keep what files hold on this device, which is overwritten: what FUSE and a device cost.
    #[arg(long)]
    device: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // As daemons do: the scheduler shares processors by session. It may lead one already.
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
