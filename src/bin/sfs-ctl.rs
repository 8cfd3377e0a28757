//! `sfs-ctl`: shows the state of a volume, looks inside, freezes it, changes its size, copies it, and verifies it.

#[cfg(feature = "view")]
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sfs::asked_work_command::{self, CleanArguments, MountArguments};
use sfs::defrag_command::{self, DefragArguments};
use sfs::file_command::{self, FileArguments};
use sfs::freeze::{FREEZE_SECS_DEFAULT, FREEZE_SECS_MAX};
use sfs::hot_command::{self, HotArguments};
use sfs::metrics_command::{self, MetricsArguments};
use sfs::scrub_command::{self, ScrubCommand};
use sfs::segments_command::{self, SegmentsArguments};
use sfs::stat_report::ENDURANCE_CYCLES_DEFAULT;
use sfs::trace_command::{self, TraceArguments};
use sfs::{ExitError, freeze_command, health, image, resize, stat};
use sfs_system::parse_size;
#[cfg(feature = "view")]
use view::{report_command, top_command};

#[derive(Parser)]
#[command(name = "sfs-ctl", version, disable_version_flag = true)]
/// Shows the state of an SFS volume, looks inside, freezes it, changes its size, copies it, and verifies it.
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
        /// Cycles that the cells of the device endure
        #[arg(long, value_name = "CYCLES", default_value_t = ENDURANCE_CYCLES_DEFAULT)]
        endurance: u32,
    },
    /// Prints whether a volume and its device are fine. The exit status is 0 if they are, 1 after a warning, 2 if the
    /// device is failing, 3 if that is unknown
    Health {
        /// Mount point, block device or image file of the volume
        path: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Cycles that the cells of the device endure
        #[arg(long, value_name = "CYCLES", default_value_t = ENDURANCE_CYCLES_DEFAULT)]
        endurance: u32,
    },
    /// Prints the numbers of a volume in the text format of Prometheus, for the textfile collector of its
    /// node_exporter for example. The daemon of a mount serves the same over HTTP on a Unix socket
    Metrics(MetricsArguments),
    /// Records the requests of programs to a mounted volume, for 'sfs-lab': which files, by their inode numbers, which
    /// ranges, and when; no content, and names only if asked for. Ends after some time, or by Ctrl-C. Root may record
    /// every mount, other users only their own mounts
    Trace(TraceArguments),
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
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Ends a freeze. Fails if the volume has thawed by itself: the copy is useless then
    Thaw {
        /// Mount point of the volume
        mount: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Prints the files that were written most, the hottest files, and the hottest parts of files
    Hot(HotArguments),
    /// Prints where the blocks of a file are, how fragmented it is, its holes and preallocated ranges
    File(FileArguments),
    /// Cleans: moves what lives in segments with garbage, so that they become free. Wears the device; a volume cleans by
    /// itself when it has to
    Clean(CleanArguments),
    /// Puts files in order on the device, so that reading them needs few requests. Wears the device as much as writing the
    /// blocks that are out of order; programs may use the files meanwhile
    Defrag(DefragArguments),
    /// Discards the free segments, as fstrim does
    Trim(MountArguments),
    /// Writes what has reached SFS, and a checkpoint; sync(1) first writes the kernel's cache
    Checkpoint(MountArguments),
    /// Reads everything on a volume, and verifies it
    #[command(subcommand)]
    Scrub(ScrubCommand),
    /// Changes the size of a volume. A mounted volume grows while it is used, an unmounted one also shrinks. The device
    /// must have its new size before the volume grows (grow the partition or the image file; losetup -c for a loop
    /// device), and keeps it when the volume has shrunk. Nothing is lost if the power fails meanwhile: the volume has
    /// its old or its new size. Only root and the user who mounted a volume may grow it
    Resize {
        /// Mount point, block device or image file of the volume
        path: PathBuf,
        /// New size in bytes, or with a suffix (K, M, G, T); the size of the device if it is left out
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
    },
    /// Prints the state of each segment: its group, its live data and their age. Root may query every mount, other users
    /// only their own mounts
    Segments(SegmentsArguments),
    /// Shows a mounted volume live: health, wear, throughput, a map of the segments, requests and their latencies,
    /// cleaning. Press h for the keys
    #[cfg(feature = "view")]
    Top(top_command::TopArguments),
    /// Writes a report about a volume as one HTML page: segment map, utilization, groups, wear, latencies, findings with
    /// remedies
    #[cfg(feature = "view")]
    Report(report_command::ReportArguments),
    /// Copies a volume without its free segments; a mounted one is frozen meanwhile
    #[command(subcommand)]
    Image(ImageCommand),
}

#[derive(Subcommand)]
enum ImageCommand {
    /// Saves a volume to a file. Every part of the copy has a checksum
    Save {
        /// Block device, image file or mount point of the volume
        device: PathBuf,
        /// File to write, or - for the standard output
        file: PathBuf,
        /// Overwrite the file
        #[arg(short, long)]
        force: bool,
    },
    /// Restores a saved volume, with its UUID, to a device that is at least as large as the volume; 'sfs-ctl resize' then
    /// uses the rest of the device. A file is verified before the device is touched. If the standard input turns out
    /// to be damaged, the device holds no volume
    Restore {
        /// File that 'image save' has written, or - for the standard input
        file: PathBuf,
        /// Block device or image file; a file that does not exist is made
        device: PathBuf,
        /// Overwrite the content of the device
        #[arg(short, long)]
        force: bool,
    },
}

fn main() -> ExitCode {
    sfs::program::run(|Arguments { command, .. }| match command {
        CtlCommand::Stat { path, json, verbose, endurance } => {
            let report = stat::stat(&path)?.assuming_endurance(endurance);
            print(&match (json, verbose) {
                (true, _) => report.to_json(),
                (false, true) => format!("{report:#}"),
                (false, false) => report.to_string(),
            })
        }
        CtlCommand::Health { path, json, endurance } => {
            // Other statuses mean that the device is failing, or a warning.
            let found = health::health(&path, endurance)?;
            let text = if json { found.to_json() } else { health::text(&found) };
            print(&text).map_err(|error| health::unknown(&error))?;
            health::status(&found)
        }
        CtlCommand::Freeze { mount, timeout, json } => {
            freeze_command::freeze(&mount, timeout)?;
            match json {
                true => {
                    print(&format!(r#"{{"version":1,"frozen":true,"timeout_secs":{timeout}}}"#))
                }
                false => Ok(()),
            }
        }
        CtlCommand::Thaw { mount, json } => {
            freeze_command::thaw(&mount)?;
            if json { print(r#"{"version":1,"frozen":false}"#) } else { Ok(()) }
        }
        CtlCommand::Hot(arguments) => print(&hot_command::run(&arguments)?),
        CtlCommand::File(arguments) => print(&file_command::run(&arguments)?),
        CtlCommand::Clean(arguments) => print(&asked_work_command::clean(&arguments)?),
        CtlCommand::Defrag(arguments) => print(&defrag_command::run(&arguments)?),
        CtlCommand::Trim(arguments) => print(&asked_work_command::trim(&arguments)?),
        CtlCommand::Checkpoint(arguments) => print(&asked_work_command::checkpoint(&arguments)?),
        CtlCommand::Scrub(command) => scrub_command::run(&command, print),
        CtlCommand::Metrics(arguments) => print(&metrics_command::metrics(&arguments)?),
        CtlCommand::Trace(arguments) => trace_command::trace(&arguments),
        CtlCommand::Resize { path, size } => {
            let report = resize::resize(&path, size)?;
            print(&format!("{}: {report}", path.display()))
        }
        CtlCommand::Segments(arguments) => segments_command::run(&arguments),
        #[cfg(feature = "view")]
        CtlCommand::Top(arguments) => top_command::run(&arguments),
        #[cfg(feature = "view")]
        CtlCommand::Report(arguments) => report_command::run(&arguments),
        CtlCommand::Image(ImageCommand::Save { device, file, force }) => {
            let copied = image::save(&device, &file, force)?;
            match file.as_os_str() == "-" {
                true => Ok(()),
                false => print(&format!("{}: saved {copied}", file.display())),
            }
        }
        CtlCommand::Image(ImageCommand::Restore { file, device, force }) => {
            let copied = image::restore(&file, &device, force)?;
            print(&format!("{}: restored {copied}", device.display()))
        }
    })
}

fn print(text: &str) -> Result<(), ExitError> {
    sfs_system::output::print(format_args!("{}\n", text.trim_end())).map_err(ExitError::system)
}
