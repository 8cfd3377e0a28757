//! `sfs-ctl`: looks into a volume.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sfs::{ExitError, stat};

#[derive(Parser)]
#[command(name = "sfs-ctl", version, disable_version_flag = true)]
/// Looks into an SFS volume.
struct Arguments {
    #[command(subcommand)]
    command: CtlCommand,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Subcommand)]
enum CtlCommand {
    /// Prints how full a volume is and what was written to it. Root may ask for every mount, others
    /// for their own
    Stat {
        /// Where it is mounted, or its block device or image file
        path: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    sfs::program::run(|Arguments { command: CtlCommand::Stat { path, json }, .. }| {
        let report = stat::stat(&path)?;
        let text = if json { report.to_json() } else { report.to_string() };
        sfs_system::output::print(format_args!("{}\n", text.trim_end())).map_err(ExitError::system)
    })
}
