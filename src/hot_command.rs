//! `sfs-ctl hot`: the hottest files and parts of files, and the files that were written most.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sfs_core::Volume;
use sfs_system::Human;
use sfs_system::mountinfo::MountRecord;

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::fuse::inode_paths;
use crate::inspect::heat::{HeatPart, HeatReport, HotFile, TOP_MAX};
use crate::inspect::position::TreePosition;
use crate::mount;
use crate::stat_report::plain;
use crate::volume_path::{VolumePath, find};

/// Longest pause between two parts. Each part is followed by a pause as long as itself.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Arguments of `sfs-ctl hot`.
#[derive(Clone, Debug, clap::Args)]
pub struct HotArguments {
    /// Mount point, block device or image file of the volume
    path: PathBuf,
    /// Number of files and of parts of files to print, at most 100
    #[arg(
        short = 'n',
        long,
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=TOP_MAX as u64)
    )]
    top: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Returns the text to print.
///
/// # Errors
///
/// [`ExitError`] with the reason why the volume cannot be read or its daemon not be asked.
pub fn run(arguments: &HotArguments) -> Result<String, ExitError> {
    let report = heat(&arguments.path, arguments.top as usize)?;
    Ok(match arguments.json {
        true => to_json(&report),
        false => report.to_string(),
    })
}

/// Returns the `top` hottest files and parts of files of the volume at `path` as one JSON object. Looks at every file.
///
/// # Errors
///
/// As of [`run`].
pub fn json(path: &Path, top: usize) -> Result<String, ExitError> {
    heat(path, top).map(|report| to_json(&report))
}

fn heat(path: &Path, top: usize) -> Result<HeatReport, ExitError> {
    match find(path)? {
        VolumePath::Mounted(mount) => of_mounted(&mount, top),
        VolumePath::Device(path) => Ok(of_volume(&mount::open_for_reading(&path)?, top)),
    }
}

fn to_json(report: &HeatReport) -> String {
    serde_json::to_string(report).expect("numbers and texts are JSON")
}

fn of_mounted(mount: &MountRecord, top: usize) -> Result<HeatReport, ExitError> {
    let mut report = HeatReport::default();
    let mut next = Some(TreePosition::START);
    while let Some(from) = next {
        let begun = Instant::now();
        let request = ControlRequest::Heat { from: Some(from), top };
        let ControlReply::Heat(part) = control::ask(mount, &request)? else {
            return Err(control::unknown_reply(mount));
        };
        report.add(part.report, top);
        // A daemon of another user must not keep this program in a loop.
        next = part.next.filter(|next| *next > from);
        if next.is_some() {
            std::thread::sleep(begun.elapsed().min(PAUSE_MAX));
        }
    }
    let ControlReply::Paths(paths) = control::ask(mount, &ControlRequest::Paths(report.inodes()))?
    else {
        return Err(control::unknown_reply(mount));
    };
    report.name(|inode| paths.get(&inode).cloned());
    Ok(report)
}

fn of_volume(volume: &Volume, top: usize) -> HeatReport {
    let mut report = HeatReport::default();
    let mut next = Some(TreePosition::START);
    while let Some(from) = next {
        let part = HeatPart::of(volume, from, top, Instant::now() + PAUSE_MAX);
        report.add(part.report, top);
        next = part.next;
    }
    let inodes: BTreeSet<u64> = report.inodes();
    let paths: BTreeMap<u64, String> = inode_paths::find(volume, Path::new("/"), &inodes);
    report.name(|inode| paths.get(&inode).cloned());
    report
}

impl fmt::Display for HeatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = Human(self.written_bytes);
        writeln!(f, "{} files were written, {written} altogether", self.files)?;
        if self.is_damaged {
            writeln!(f, "a part of the tree is damaged, and its files are left out; run sfs-fsck")?;
        }
        let heading = |f: &mut fmt::Formatter<'_>, title| {
            writeln!(f, "\n{title}")?;
            writeln!(
                f,
                "{:>12} {:>12} {:>12} {:>12}  FILE",
                "WRITES/TICK", "WRITTEN", "SIZE", "IDLE FOR"
            )
        };
        heading(f, "Most written files")?;
        self.most_written_files.iter().try_for_each(|file| fmt_file(f, file))?;
        heading(f, "Hottest files")?;
        self.hottest_files.iter().try_for_each(|file| fmt_file(f, file))?;
        writeln!(f, "\nHottest parts of files")?;
        writeln!(
            f,
            "{:>12} {:>12} {:>12} {:>12}  FILE",
            "WRITES/TICK", "WRITES", "OFFSET", "IDLE FOR"
        )?;
        for range in &self.hottest_ranges {
            let (offset, idle) = (Human(range.offset_bytes), Human(range.idle_bytes));
            writeln!(
                f,
                "{:>12.4} {:>12.1} {:>12} {:>12}  {}",
                range.hotness,
                range.mean_writes,
                offset.to_string(),
                idle.to_string(),
                named(range.path.as_deref(), range.inode)
            )?;
        }
        let tick = Human(self.tick_bytes);
        writeln!(
            f,
            "\nA tick is {tick} that programs write; idle: what they wrote since the last write."
        )
    }
}

fn fmt_file(f: &mut fmt::Formatter<'_>, file: &HotFile) -> fmt::Result {
    let sizes = [file.written_bytes, file.size_bytes, file.idle_bytes];
    let [written, size, idle] = sizes.map(|bytes| Human(bytes).to_string());
    let name = named(file.path.as_deref(), file.inode);
    writeln!(f, "{:>12.4} {written:>12} {size:>12} {idle:>12}  {name}", file.hotness)
}

fn named(path: Option<&str>, inode: u64) -> String {
    path.map_or_else(|| format!("inode {inode}"), plain)
}
