//! `sfs-ctl trace`: records the requests of a mount in a file that `sfs-lab` reads.
//!
//! The daemon sends the requests; this process writes them, and never to the traced volume. The recording ends with
//! its time, its size, a signal or the mount.

mod output_file;
mod transcript;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sfs_system::mountinfo::MountRecord;
use sfs_system::{output, parse_size};
use sfs_trace::TraceProperties;

use self::output_file::OutputFile;
use self::transcript::{Bounds, Transcript};
use crate::control::{ControlClient, ControlReply, ControlRequest, TraceBeginning};
use crate::exit_error::ExitError;
use crate::volume_path::{VolumePath, find};

/// Arguments of the command.
#[derive(clap::Args)]
pub struct TraceArguments {
    /// Mount point of the volume
    mount: PathBuf,
    /// File to write, on another filesystem than the traced one; - for the standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Length of the recording in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Largest size of the file, in bytes or with a suffix (K, M, G, T); the recording ends before
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    size_max: u64,
    /// Record the names in directories, too
    #[arg(long)]
    names: bool,
    /// Overwrite the file
    #[arg(short, long)]
    force: bool,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

/// Records the requests of a mount.
///
/// # Errors
///
/// [`ExitError`] with a line that names the mount or the file, and the obstacle.
pub fn trace(arguments: &TraceArguments) -> Result<(), ExitError> {
    let shown = arguments.mount.display();
    let mount = match find(&arguments.mount)? {
        VolumePath::Mounted(mount) => mount,
        VolumePath::Device(_) => {
            return Err(ExitError::usage(format_args!("{shown}: not mounted")));
        }
    };
    let mut file = OutputFile::open(&arguments.output, arguments.force, mount.number)?;
    let (client, beginning) = begin(&mount, arguments.names)?;
    file.take_place().map_err(|error| {
        ExitError::usage(format_args!("{}: {error}", arguments.output.display()))
    })?;
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let bounds = Bounds { until, len: arguments.size_max };
    let transcript = Transcript::record(client.into_stream(), &mut file, &beginning, &bounds)?;
    let is_to_output = arguments.output.as_os_str() == "-";
    match (arguments.json, is_to_output) {
        (true, false) => output::print(transcript.to_json(&arguments.output)),
        (true, true) => {
            output::complain(transcript.to_json(&arguments.output).trim_end());
            Ok(())
        }
        (false, false) => output::print(format_args!("{shown}: {transcript}\n")),
        (false, true) => {
            output::complain(format_args!("{shown}: {transcript}"));
            Ok(())
        }
    }
    .map_err(ExitError::system)
}

/// Asks the daemon to record.
fn begin(mount: &MountRecord, names: bool) -> Result<(ControlClient, TraceProperties), ExitError> {
    let shown = mount.dir.display();
    let trouble = |trouble| ExitError::mount(format_args!("{shown}: {trouble}"));
    let client = ControlClient::connect(mount).map_err(trouble)?;
    match client.ask(&ControlRequest::Trace { names }).map_err(trouble)? {
        ControlReply::Tracing(beginning) => Ok((client, properties(&beginning))),
        ControlReply::Failed { status, line } => Err(ExitError::of_daemon(status, &line)),
        _ => Err(ExitError::mount(format_args!("{shown}: its daemon sent an unknown reply"))),
    }
}

fn properties(beginning: &TraceBeginning) -> TraceProperties {
    let TraceBeginning { report, write_buffer_bytes } = beginning;
    let space = report.space;
    let bytes = |blocks: u64| blocks.saturating_mul(space.block_bytes);
    let policies = report.policies.as_ref();
    let word = |name: Option<&String>| {
        let known = |char: &char| char.is_ascii_graphic();
        name.map_or(String::new(), |name| name.chars().filter(known).collect())
    };
    TraceProperties {
        began_secs: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        size_bytes: bytes(space.total_blocks),
        used_bytes: bytes(space.total_blocks.saturating_sub(space.free_blocks)),
        segment_bytes: bytes(report.segments.blocks.into()),
        segments: report.segments.count().into(),
        write_buffer_bytes: *write_buffer_bytes,
        policy: word(policies.map(|policies| &policies.grouping)),
        victim: word(policies.map(|policies| &policies.victims)),
    }
}
