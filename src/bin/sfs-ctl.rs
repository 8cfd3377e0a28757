//! `sfs-ctl`: shows the state of a volume.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sfs::{ExitError, stat};

#[derive(Parser)]
#[command(name = "sfs-ctl", version, disable_version_flag = true)]
/// Shows the state of an SFS volume.
struct Arguments {
    #[command(subcommand)]
    command: CtlCommand,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Subcommand)]
enum CtlCommand {
    /// Prints the space of a volume, its recorded errors, and the written bytes. Root may query
    /// every mount, other users only their own mounts
    Stat {
        /// Mount point, block device or image file of the volume
        path: PathBuf,
        /// Print one JSON object with all numbers
        #[arg(long)]
        json: bool,
        /// Print all numbers: segments, groups, transport, counters
        #[arg(short, long)]
        verbose: bool,
    },
}

fn main() -> ExitCode {
    sfs::program::run(|Arguments { command: CtlCommand::Stat { path, json, verbose }, .. }| {
        let report = stat::stat(&path)?;
        let text = match (json, verbose) {
            (true, _) => report.to_json(),
            (false, true) => format!("{report:#}"),
            (false, false) => report.to_string(),
        };
        sfs_system::output::print(format_args!("{}\n", text.trim_end())).map_err(ExitError::system)
    })
}
