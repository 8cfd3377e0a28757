//! `sfs-ctl`: shows the state of a volume, and freezes it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sfs::freeze::{FREEZE_SECS_DEFAULT, FREEZE_SECS_MAX};
use sfs::{ExitError, freeze_command, stat};

#[derive(Parser)]
#[command(name = "sfs-ctl", version, disable_version_flag = true)]
/// Shows the state of an SFS volume, and freezes it.
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
    /// Stops all writes, so that the device can be copied: everything written before is on it, and a copy is a
    /// clean volume. Programs that write wait until the volume is thawed
    Freeze {
        /// Mount point of the volume
        mount: PathBuf,
        /// Seconds after which the volume thaws by itself, at most 600
        #[arg(
            short,
            long,
            value_name = "SECONDS",
            default_value_t = FREEZE_SECS_DEFAULT,
            value_parser = clap::value_parser!(u64).range(1..=FREEZE_SECS_MAX)
        )]
        timeout: u64,
    },
    /// Ends a freeze. Fails if the volume has thawed by itself: the copy is useless then
    Thaw {
        /// Mount point of the volume
        mount: PathBuf,
    },
}

fn main() -> ExitCode {
    sfs::program::run(|Arguments { command, .. }| match command {
        CtlCommand::Stat { path, json, verbose } => print_stat(&path, json, verbose),
        CtlCommand::Freeze { mount, timeout } => freeze_command::freeze(&mount, timeout),
        CtlCommand::Thaw { mount } => freeze_command::thaw(&mount),
    })
}

fn print_stat(path: &Path, json: bool, verbose: bool) -> Result<(), ExitError> {
    let report = stat::stat(path)?;
    let text = match (json, verbose) {
        (true, _) => report.to_json(),
        (false, true) => format!("{report:#}"),
        (false, false) => report.to_string(),
    };
    sfs_system::output::print(format_args!("{}\n", text.trim_end())).map_err(ExitError::system)
}
