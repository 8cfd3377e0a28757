//! `sfs-ctl scrub`: reads everything on a volume, and verifies it.
//!
//! The daemon of a mount scrubs in a thread of its own. This program only starts, stops and watches it, and can keep the
//! position in a file of the system, so that a later scrub goes on there, after a restart of the machine, too. A
//! volume that is not mounted is scrubbed here.

mod state_file;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sfs_system::mountinfo::MountRecord;
use sfs_system::{Human, parse_size};

use crate::control::{self, ControlReply, ControlRequest, ScrubRequest};
use crate::exit_error::ExitError;
use crate::inspect::position::TreePosition;
use crate::inspect::scrub_report::{DamagedPlace, ScrubReport, ScrubState};
use crate::inspect::scrubber::{RATE_DEFAULT, scrub_here};
use crate::mount;
use crate::stat_report::plain;
use crate::volume_path::{VolumePath, find};
use state_file::StateFile;

/// Time between two looks at a scrub that is waited for.
const POLL: Duration = Duration::from_secs(1);

/// Time between two looks in the first moments: a small volume is scrubbed in less than a second.
const POLL_FIRST: Duration = Duration::from_millis(50);

/// Actions on a scrub.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ScrubCommand {
    /// Begins to read everything on a mounted volume in the background, and to verify it. Damage is counted as that of a read, and
    /// nothing is repaired
    Start {
        /// Mount point of the volume; with --foreground a block device or image file
        path: PathBuf,
        /// Largest number of bytes to read in a second, or with a suffix (K, M, G); 0 for no limit [default: 8M]
        #[arg(short, long, value_parser = parse_size)]
        rate: Option<u64>,
        /// Wait for the end; the exit status is 4 if something is damaged
        #[arg(short, long)]
        wait: bool,
        /// Keep the position in this file, and go on from it; implies --wait
        #[arg(short, long, value_name = "FILE")]
        state: Option<PathBuf>,
        /// Scrub a volume that is not mounted, in this process
        #[arg(short, long)]
        foreground: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Shows progress and result of the scrub; the exit status is 4 if something is damaged
    Status {
        /// Mount point of the volume
        path: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Stops the scrub
    Stop {
        /// Mount point of the volume
        path: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Goes on with the scrub that was stopped
    Resume {
        /// Mount point of the volume
        path: PathBuf,
        /// Another rate than before
        #[arg(short, long, value_parser = parse_size)]
        rate: Option<u64>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Does `command`, and calls `print` with the text to print.
///
/// # Errors
///
/// [`ExitError`] with the reason; status 4, after the text was printed, if a scrub that was waited for or looked at has found
/// damage.
pub fn run(
    command: &ScrubCommand,
    print: impl FnOnce(&str) -> Result<(), ExitError>,
) -> Result<(), ExitError> {
    let (path, json, report, tells_damage) = match command {
        ScrubCommand::Start { path, rate, wait, state, foreground, json } => {
            let start = Start { rate: rate.unwrap_or(RATE_DEFAULT), state: state.as_deref() };
            let is_waited_for = *wait || state.is_some() || *foreground;
            let report = match (find(path)?, foreground) {
                (VolumePath::Mounted(mount), false) => start.on_mount(&mount, is_waited_for)?,
                (VolumePath::Device(device), true) => start.here(&device)?,
                (VolumePath::Mounted(_), true) => {
                    return Err(failure(path, "is mounted; leave --foreground out"));
                }
                (VolumePath::Device(_), false) => {
                    return Err(failure(path, "is not mounted; scrub it with --foreground"));
                }
            };
            (path, *json, report, is_waited_for)
        }
        ScrubCommand::Status { path, json } => {
            (path, *json, ask(&mounted(path)?, ScrubRequest::Status)?, true)
        }
        ScrubCommand::Stop { path, json } => {
            (path, *json, ask(&mounted(path)?, ScrubRequest::Stop)?, false)
        }
        ScrubCommand::Resume { path, rate, json } => {
            let request = ScrubRequest::Resume { rate_bytes: *rate };
            (path, *json, ask(&mounted(path)?, request)?, false)
        }
    };
    print(&match json {
        true => serde_json::to_string(&report).expect("numbers and texts are JSON"),
        false => format!("{}: {report}", path.display()),
    })?;
    match report.damage_count {
        count if count > 0 && tells_damage => Err(ExitError::damage(format_args!(
            "{}: {count} damaged places; restore the files from a backup, and run sfs-fsck",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// A scrub to be started.
struct Start<'a> {
    rate: u64,
    state: Option<&'a Path>,
}

impl Start<'_> {
    /// Starts a scrub of a mounted volume, and waits for its end if that is wanted.
    fn on_mount(&self, mount: &MountRecord, is_waited_for: bool) -> Result<ScrubReport, ExitError> {
        let file = self.state.map(StateFile::new);
        let uuid = ask(mount, ScrubRequest::Status)?.uuid;
        let (position, before) = file.as_ref().and_then(|file| file.position(&uuid)).unzip();
        let before = before.unwrap_or(0);
        let request = ScrubRequest::Start { rate_bytes: self.rate, position };
        let mut report = ask(mount, request)?;
        let begun = Instant::now();
        while is_waited_for && report.state == ScrubState::Running {
            std::thread::sleep(if begun.elapsed() < POLL { POLL_FIRST } else { POLL });
            report = ask(mount, ScrubRequest::Status)?;
            file.as_ref().map_or(Ok(()), |file| file.keep(&report, before))?;
        }
        if is_waited_for && report.state == ScrubState::Stopped {
            return Err(failure(&mount.dir, "the scrub was stopped before its end"));
        }
        // The names of damaged files are looked for at the end.
        while is_waited_for && report.is_unnamed() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(POLL_FIRST);
            report = ask(mount, ScrubRequest::Status)?;
        }
        report.damage_count += before;
        Ok(report)
    }

    /// Scrubs a volume that is not mounted.
    fn here(&self, device: &Path) -> Result<ScrubReport, ExitError> {
        let volume = mount::open_for_reading(device)?;
        let file = self.state.map(StateFile::new);
        let uuid = uuid::Uuid::from_bytes(volume.superblock().uuid).to_string();
        let (position, before) = file.as_ref().and_then(|file| file.position(&uuid)).unzip();
        let before = before.unwrap_or(0);
        let mut kept = Ok(());
        let mut last = Instant::now();
        let report = scrub_here(
            &volume,
            self.rate,
            position.unwrap_or(TreePosition::START),
            &mut |report| {
                if let Some(file) = &file
                    && last.elapsed() >= POLL
                {
                    kept = file.keep(report, before);
                    last = Instant::now();
                }
                kept.is_ok()
            },
        );
        kept?;
        let mut report = report.map_err(|error| failure(device, &error.to_string()))?;
        file.map_or(Ok(()), |file| file.keep(&report, before))?;
        report.damage_count += before;
        Ok(report)
    }
}

fn failure(path: &Path, reason: &str) -> ExitError {
    ExitError::mount(format_args!("{}: {reason}", path.display()))
}

fn ask(mount: &MountRecord, request: ScrubRequest) -> Result<ScrubReport, ExitError> {
    match control::ask(mount, &ControlRequest::Scrub(request))? {
        ControlReply::Scrub(report) => Ok(*report),
        _ => Err(control::unknown_reply(mount)),
    }
}

fn mounted(path: &Path) -> Result<MountRecord, ExitError> {
    match find(path)? {
        VolumePath::Mounted(mount) => Ok(mount),
        VolumePath::Device(_) => Err(failure(path, "is not mounted, and has no scrub")),
    }
}

impl fmt::Display for ScrubReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (100.0 * self.progress()).floor();
        match self.state {
            ScrubState::Never => return writeln!(f, "no scrub since the mount"),
            ScrubState::Running => write!(f, "scrub is running, {percent}%")?,
            ScrubState::Stopped => write!(f, "scrub was stopped at {percent}%")?,
            ScrubState::Done => write!(f, "scrub is done")?,
        }
        let (live, all) = self.blocks();
        let size = |blocks: u64| Human(blocks * 4096);
        let live_size = size(live);
        writeln!(f, "; {live_size} verified, {} read in {} s", size(all), self.running_secs)?;
        if self.unverified_blocks > 0 {
            let unverified = size(self.unverified_blocks);
            writeln!(
                f,
                "  {unverified} of data that is overwritten in place has no checksum, and was only read"
            )?;
        }
        if self.damage_count == 0 {
            return writeln!(f, "  no damage found");
        }
        writeln!(f, "  {} damaged places", self.damage_count)?;
        for place in &self.damage {
            writeln!(f, "  {place}")?;
        }
        if self.damage_count > self.damage.len() as u64 {
            writeln!(f, "  and more")?;
        }
        Ok(())
    }
}

impl fmt::Display for DamagedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, at, inode, offset_bytes, path } = self;
        let kind = plain(kind);
        match inode {
            Some(inode) => {
                let name = path.as_deref().map_or_else(|| format!("inode {inode}"), plain);
                // The place of a damaged item is its inode.
                match offset_bytes {
                    Some(offset) => write!(f, "{kind}: {name} at offset {offset}, block {at}"),
                    None => write!(f, "{kind}: {name}"),
                }
            }
            None => write!(f, "{kind}: block {at}"),
        }
    }
}
