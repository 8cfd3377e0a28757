//! The command line of `sfs-ctl`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use sfs_system::parse_size;

use crate::asked_work_command::{CleanArguments, MountArguments};
use crate::cache_command::CacheCommand;
#[cfg(feature = "view")]
use crate::command_line::view::{ReportArguments, TopArguments};
use crate::defrag_command::DefragArguments;
use crate::file_command::FileArguments;
use crate::freeze::{FREEZE_SECS_DEFAULT, FREEZE_SECS_MAX};
use crate::handover::{UPGRADE_SECS_DEFAULT, UPGRADE_SECS_MAX};
use crate::hot_command::HotArguments;
use crate::metrics_command::MetricsArguments;
use crate::scrub_command::ScrubCommand;
use crate::segments_command::SegmentsArguments;
use crate::stat_report::{ENDURANCE_CYCLES_DEFAULT, StorePrices};
use crate::trace_command::TraceArguments;

#[derive(Parser)]
#[command(name = "sfs-ctl", version, disable_version_flag = true)]
/// Shows the state of an SFS volume, looks inside, freezes it, changes its size, copies it, and verifies it.
pub struct CtlArguments {
    #[command(subcommand)]
    /// Command.
    pub command: CtlCommand,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// A command of `sfs-ctl`.
#[derive(Subcommand)]
pub enum CtlCommand {
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
        /// Prices of the object store of the volume, for what it costs: of 1000 PUT, 1000 GET, 1000 DELETE, a GB stored for a month,
        /// and a GB received
        #[arg(long, value_name = "PUT:GET:DELETE:MONTH:RECEIVED")]
        price: Option<StorePrices>,
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
    /// Has the installed program go on with a mount, without an unmount: programs see a pause. If that fails, the program that
    /// served before goes on, unless it cannot open the volume either. Needs a mount with --transport dev. Only root and the user who mounted a
    /// volume may upgrade it
    Upgrade {
        /// Mount point of the volume
        mount: PathBuf,
        /// Seconds after which a handover that does not succeed is given up, at most 600
        #[arg(
            short,
            long,
            value_name = "SECONDS",
            default_value_t = UPGRADE_SECS_DEFAULT,
            value_parser = clap::value_parser!(u64).range(1..=UPGRADE_SECS_MAX)
        )]
        timeout: u64,
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
    /// The SSD cache of a volume
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Prints the state of each segment: its group, its live data and their age. Root may query every mount, other users
    /// only their own mounts
    Segments(SegmentsArguments),
    /// Shows a mounted volume live: health, wear, throughput, a map of the segments, requests and their latencies,
    /// cleaning. Press h for the keys
    #[cfg(feature = "view")]
    Top(TopArguments),
    /// Writes a report about a volume as one HTML page: segment map, utilization, groups, wear, latencies, findings with
    /// remedies
    #[cfg(feature = "view")]
    Report(ReportArguments),
    /// Copies a volume without its free segments; a mounted one is frozen meanwhile
    #[command(subcommand)]
    Image(ImageCommand),
}

/// A command of `sfs-ctl image`.
#[derive(Subcommand)]
pub enum ImageCommand {
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
