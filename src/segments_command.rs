//! `sfs-ctl segments`: the state of each segment of a volume.
//!
//! The daemon of a mount is asked for one part after the other, each in one message. A device that is not mounted is
//! opened for reading, and nothing is written to it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sfs_system::Human;
use sfs_system::mountinfo::MountRecord;

use crate::control::{ControlClient, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::mount;
use crate::stat_report::{SegmentReport, SegmentsMessage, SegmentsReport, StateName};
use crate::volume_path::{VolumePath, find};

/// Arguments of `sfs-ctl segments`.
#[derive(Args, Clone, Debug)]
pub struct SegmentsArguments {
    /// Mount point, block device or image file of the volume
    path: PathBuf,
    /// Print one JSON object, with a line for each segment
    #[arg(long)]
    json: bool,
    /// Print only the segments in this state
    #[arg(long, value_enum)]
    state: Option<StateName>,
    /// Order of the segments
    #[arg(long, value_enum, default_value_t = SegmentOrder::Number)]
    sort: SegmentOrder,
}

/// Order of the segments in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SegmentOrder {
    /// Ascending by number
    Number,
    /// Fewest live blocks first
    Live,
    /// Data that was written longest ago first
    Age,
    /// Most erases first
    Erases,
}

/// Prints the segments of a volume.
///
/// # Errors
///
/// As [`segments`], or an error of the output.
pub fn run(arguments: &SegmentsArguments) -> Result<(), ExitError> {
    let mut report = segments(&arguments.path)?;
    let summary = summary(&report);
    if let Some(state) = arguments.state {
        report.segments.retain(|segment| segment.state == state);
    }
    sort(&mut report.segments, arguments.sort);
    let text = match arguments.json {
        true => report.to_json(),
        false => summary + &table(&report),
    };
    sfs_system::output::print(format_args!("{}\n", text.trim_end())).map_err(ExitError::system)
}

/// Returns the segments of the volume at `path`: a mount point or a device.
///
/// # Errors
///
/// [`ExitError`] with a line that states the kind of `path`, or the reason why the daemon cannot be asked.
pub fn segments(path: &Path) -> Result<SegmentsReport, ExitError> {
    let shown = path.display();
    let report = match find(path)? {
        VolumePath::Mounted(mount) => {
            let device = mount.source.to_string_lossy().into_owned();
            SegmentsReport::collect(&device, |first| ask(&mount, first))?
        }
        VolumePath::Device(path) => {
            let volume = mount::open_for_reading(&path)?;
            let device = path.to_string_lossy();
            let of_volume = |first| Ok::<_, ExitError>(SegmentsMessage::of(&volume, first));
            SegmentsReport::collect(&device, of_volume)?
        }
    };
    report.ok_or_else(|| {
        ExitError::mount(format_args!(
            "{shown}: the number of segments has changed meanwhile; try again"
        ))
    })
}

fn ask(mount: &MountRecord, first: u32) -> Result<SegmentsMessage, ExitError> {
    let shown = mount.dir.display();
    let client = ControlClient::connect(mount);
    match client.and_then(|client| client.ask(&ControlRequest::Segments { first })) {
        Ok(ControlReply::Segments(part)) => Ok(*part),
        Ok(ControlReply::Failed { status, line }) => Err(ExitError::of_daemon(status, &line)),
        Ok(_) => Err(ExitError::mount(format_args!("{shown}: its daemon sent an unknown reply"))),
        Err(trouble) => Err(ExitError::mount(format_args!("{shown}: {trouble}"))),
    }
}

/// Sorts, with the number as second key.
fn sort(segments: &mut [SegmentReport], order: SegmentOrder) {
    match order {
        SegmentOrder::Number => {}
        SegmentOrder::Live => segments.sort_by_key(|segment| segment.live_blocks),
        // Segments without data come last.
        SegmentOrder::Age => segments.sort_by_key(|segment| segment.modified.unwrap_or(u32::MAX)),
        SegmentOrder::Erases => segments.sort_by_key(|segment| std::cmp::Reverse(segment.erases)),
    }
}

/// Returns the line above the table.
fn summary(report: &SegmentsReport) -> String {
    let size = Human(u64::from(report.segment_blocks) * report.block_bytes);
    let mut text = format!(
        "{}: {} segments of {size}:",
        report.device.replace(char::is_control, "?"),
        report.segments.len()
    );
    let mut separator = " ";
    for state in StateName::value_variants() {
        let count = report.segments.iter().filter(|segment| segment.state == *state).count();
        if count > 0 {
            let _ = write!(text, "{separator}{count} {}", name(*state));
            separator = ", ";
        }
    }
    text + "\n"
}

fn name(state: StateName) -> &'static str {
    match state {
        StateName::Clean => "clean",
        StateName::Open => "open",
        StateName::Sealed => "sealed",
        StateName::Drained => "drained",
        StateName::Bad => "bad",
        StateName::Placed => "placed",
    }
}

/// Returns the table, in which neighbours without data share a row.
fn table(report: &SegmentsReport) -> String {
    let mut text =
        String::from("  segment          state    group     live   written since   erases\n");
    let joins = |a: &SegmentReport, b: &SegmentReport| {
        let are_same = (a.state, a.group, a.erases) == (b.state, b.group, b.erases);
        are_same && a.group.is_none() && b.segment == a.segment + 1
    };
    for row in report.segments.chunk_by(joins) {
        let (first, last) = (&row[0], row[row.len() - 1].segment);
        let numbers = match row.len() {
            1 => first.segment.to_string(),
            _ => format!("{} to {last}", first.segment),
        };
        let live = 100.0 * f64::from(first.live_blocks) / f64::from(report.segment_blocks.max(1));
        let group = match first.group {
            None => "-".to_owned(),
            Some(0) => "metadata".to_owned(),
            Some(group) => group.to_string(),
        };
        let live = first.group.map_or("-".to_owned(), |_| format!("{live:.1} %"));
        let _ = writeln!(
            text,
            "  {numbers:<16} {:<8} {group:<8} {live:>6} {:>15} {:>8}",
            name(first.state),
            since(report, first),
            first.erases
        );
    }
    text
}

/// Returns the number of bytes that programs have written since the data of a segment was written, on average.
fn since(report: &SegmentsReport, segment: &SegmentReport) -> String {
    let Some(modified) = segment.modified else { return "-".into() };
    let ticks = u64::from(report.now.saturating_sub(modified));
    let bytes = ticks.saturating_mul(report.tick_blocks).saturating_mul(report.block_bytes);
    Human(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(
        segment: u32,
        state: StateName,
        group: Option<u8>,
        live_blocks: u32,
    ) -> SegmentReport {
        let modified = (live_blocks > 0).then_some(100 - live_blocks);
        SegmentReport {
            segment,
            state,
            group,
            live_blocks,
            modified,
            hotness: None,
            erases: segment,
        }
    }

    fn report() -> SegmentsReport {
        let clean = |no| SegmentReport { erases: 0, ..segment(no, StateName::Clean, None, 0) };
        SegmentsReport {
            version: 1,
            device: "/dev/x\u{1b}".into(),
            block_bytes: 4096,
            segment_blocks: 64,
            segment_first: 32,
            now: 100,
            tick_blocks: 256,
            segments: vec![
                segment(0, StateName::Sealed, Some(2), 48),
                clean(1),
                clean(2),
                segment(3, StateName::Open, Some(0), 16),
            ],
        }
    }

    #[test]
    fn neighbours_without_data_share_a_row() {
        let report = report();
        assert_eq!(summary(&report), "/dev/x?: 4 segments of 256 KiB: 2 clean, 1 open, 1 sealed\n");
        let expected = [
            "  segment          state    group     live   written since   erases",
            "  0                sealed   2        75.0 %          48 MiB        0",
            "  1 to 2           clean    -             -               -        0",
            "  3                open     metadata 25.0 %          16 MiB        3",
        ];
        assert_eq!(table(&report).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn segments_are_sorted() {
        let by = |order| {
            let mut segments = report().segments;
            sort(&mut segments, order);
            segments.iter().map(|segment| segment.segment).collect::<Vec<_>>()
        };
        assert_eq!(by(SegmentOrder::Number), [0, 1, 2, 3]);
        assert_eq!(by(SegmentOrder::Live), [1, 2, 3, 0]);
        assert_eq!(by(SegmentOrder::Age), [0, 3, 1, 2]);
        assert_eq!(by(SegmentOrder::Erases), [3, 0, 1, 2]);
    }
}
