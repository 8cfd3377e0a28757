//! `sfs-ctl clean`, `trim` and `checkpoint`: work on a mounted volume that its administrator asks for.
//!
//! The daemon does a part of the work for each request. A client that is killed ends the work after the current part.

use std::fmt;
use std::path::{Path, PathBuf};

use sfs_system::Human;
use sfs_system::mountinfo::MountRecord;

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::inspect::asked_work::{CheckpointReport, CleanPart, CleanReport, TrimReport};
use crate::stat_report::SegmentCountsReport;
use crate::volume_path::{VolumePath, find};

/// Arguments of `sfs-ctl clean`.
#[derive(Clone, Debug, clap::Args)]
pub struct CleanArguments {
    /// Mount point of the volume
    mount: PathBuf,
    /// Number of segments to clean; without it, until no segment is worth it
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..))]
    segments: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `sfs-ctl trim` and `sfs-ctl checkpoint`.
#[derive(Clone, Debug, clap::Args)]
pub struct MountArguments {
    /// Mount point of the volume
    mount: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Cleans, and returns the text to print.
///
/// # Errors
///
/// [`ExitError`] with a line that names the volume and the reason. What was cleaned before stays cleaned.
pub fn clean(arguments: &CleanArguments) -> Result<String, ExitError> {
    let mount = mounted(&arguments.mount)?;
    let (clean_segments_before, segments) = segment_counts(&mount)?;
    // The whole volume at most, so that programs which go on writing cannot keep it going.
    let limit = arguments.segments.unwrap_or(u32::MAX).min(segments);
    let mut report = CleanReport { version: 1, clean_segments_before, ..CleanReport::default() };
    let mut is_fresh = false;
    while report.segments < limit && !report.is_exhausted {
        let part = clean_round(&mount, limit - report.segments)?;
        report.segments += part.segments;
        report.moved_bytes += part.moved_bytes;
        report.moved_nodes += part.moved_nodes;
        report.device_bytes += part.device_bytes;
        if part.segments > 0 {
            is_fresh = false;
        } else if is_fresh {
            report.is_exhausted = true;
        } else {
            // A checkpoint releases segments that cleaning needs room in, and makes others cleanable.
            report.device_bytes += write_checkpoint(&mount)?.device_bytes;
            is_fresh = true;
        }
    }
    if !is_fresh {
        report.device_bytes += write_checkpoint(&mount)?.device_bytes;
    }
    report.clean_segments_after = segment_counts(&mount)?.0;
    printed(&report, arguments.json)
}

fn clean_round(mount: &MountRecord, segments: u32) -> Result<CleanPart, ExitError> {
    match control::ask(mount, &ControlRequest::Clean(segments))? {
        ControlReply::Cleaned(part) => Ok(part),
        _ => Err(control::unknown_reply(mount)),
    }
}

/// Returns the number of Clean segments, and of all segments.
fn segment_counts(mount: &MountRecord) -> Result<(u32, u32), ExitError> {
    let ControlReply::Status(report) = control::ask(mount, &ControlRequest::Status)? else {
        return Err(control::unknown_reply(mount));
    };
    let SegmentCountsReport { clean, open, sealed, drained, bad, placed, .. } = report.segments;
    let counts = [clean, open, sealed, drained, bad, placed];
    Ok((clean, counts.iter().fold(0, |sum: u32, count| sum.saturating_add(*count))))
}

/// Discards all free segments, and returns the text to print.
///
/// # Errors
///
/// [`ExitError`] with a line that names the volume and the reason.
pub fn trim(arguments: &MountArguments) -> Result<String, ExitError> {
    let mount = mounted(&arguments.mount)?;
    let mut report = TrimReport { version: 1, discarded_bytes: 0 };
    let mut next = Some(0);
    while let Some(start) = next {
        let ControlReply::Trimmed(part) = control::ask(&mount, &ControlRequest::Trim(start))?
        else {
            return Err(control::unknown_reply(&mount));
        };
        report.discarded_bytes = report.discarded_bytes.saturating_add(part.bytes);
        next = part.next.filter(|next| *next > start);
    }
    printed(&report, arguments.json)
}

/// Writes a checkpoint, and returns the text to print.
///
/// # Errors
///
/// [`ExitError`] with a line that names the volume and the reason.
pub fn checkpoint(arguments: &MountArguments) -> Result<String, ExitError> {
    let mount = mounted(&arguments.mount)?;
    printed(&write_checkpoint(&mount)?, arguments.json)
}

fn write_checkpoint(mount: &MountRecord) -> Result<CheckpointReport, ExitError> {
    match control::ask(mount, &ControlRequest::Checkpoint)? {
        ControlReply::Checkpoint(report) => Ok(report),
        _ => Err(control::unknown_reply(mount)),
    }
}

/// Returns the mount of SFS at `path`.
fn mounted(path: &Path) -> Result<MountRecord, ExitError> {
    match find(path)? {
        VolumePath::Mounted(mount) => Ok(mount),
        VolumePath::Device(path) => Err(ExitError::mount(format_args!(
            "{}: is not mounted; this command needs a mounted volume",
            path.display()
        ))),
    }
}

fn printed(
    report: &(impl serde::Serialize + fmt::Display),
    json: bool,
) -> Result<String, ExitError> {
    Ok(match json {
        true => serde_json::to_string(report).expect("numbers are JSON"),
        false => report.to_string(),
    })
}

impl fmt::Display for CleanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segments, moved_nodes, clean_segments_before, clean_segments_after, .. } = self;
        let (moved, written) = (Human(self.moved_bytes), Human(self.device_bytes));
        writeln!(
            f,
            "cleaned {segments} segments: moved {moved} of data and {moved_nodes} tree nodes, wrote {written}"
        )?;
        writeln!(
            f,
            "{clean_segments_after} segments are free now, {clean_segments_before} were before"
        )?;
        match self.is_exhausted {
            true => writeln!(f, "no other segment is worth cleaning"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for TrimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "discarded {}", Human(self.discarded_bytes))
    }
}

impl fmt::Display for CheckpointReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, released_segments, .. } = self;
        let parts = [self.device_bytes, self.data_bytes, self.metadata_bytes, self.summary_bytes];
        let [all, data, metadata, summaries] = parts.map(Human);
        writeln!(
            f,
            "checkpoint {number}: wrote {all}: {data} of data, {metadata} of metadata, {summaries} of summaries; \
             {released_segments} segments became free"
        )
    }
}
