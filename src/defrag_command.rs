//! `sfs-ctl defrag`: puts files of a mounted volume in order on the device.
//!
//! A path is resolved here, with the rights of the caller, and the daemon is asked by inode number alone. The walk through
//! directories follows no symbolic link and stays on the mount. The daemon moves a part for each request, so a client
//! that is killed ends the work after the current part.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sfs_system::Human;
use sfs_system::mountinfo::MountRecord;

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::{self, ExitError, ExitStatus};
use crate::file_command::mount_of;
use crate::inspect::asked_work::{DefragFailure, DefragPart, DefragReport};
use crate::stat_report::plain;

/// Arguments of `sfs-ctl defrag`.
#[derive(Clone, Debug, clap::Args)]
pub struct DefragArguments {
    /// Files; with --recursive, also directories
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Put the files below directories in order, too
    #[arg(short, long)]
    recursive: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Number of failures that the report names.
const FAILURES_MAX: usize = 100;

/// Puts the files in order, and returns the text to print.
///
/// # Errors
///
/// [`ExitError`] with a line that names the path and the reason, for a path that was given, or if the volume cannot be
/// defragmented. What was moved before stays moved. A file below a directory that fails is named in the text.
pub fn run(arguments: &DefragArguments) -> Result<String, ExitError> {
    let mut work = Work::default();
    for path in &arguments.paths {
        let file = fs::metadata(path).map_err(|error| failure(path, &error))?;
        let mount = mount_of(path, &file)?;
        if file.is_file() {
            work.put_in_order(&mount, path, &file)?;
        } else if file.is_dir() && arguments.recursive {
            work.walk(&mount, path, file.dev())?;
        } else {
            let kind = match file.is_dir() {
                true => "a directory; give -r for the files in it",
                false => "no regular file, and only those have blocks",
            };
            return Err(ExitError::usage(format_args!("{}: is {kind}", path.display())));
        }
    }
    let report = DefragReport { version: 1, ..work.report };
    Ok(match arguments.json {
        true => serde_json::to_string(&report).expect("numbers and texts are JSON"),
        false => report.to_string(),
    })
}

/// Returns whether `error` concerns one file, and not the volume.
fn concerns_file(error: &ExitError) -> bool {
    [ExitStatus::Usage as u8, ExitStatus::Damage as u8].contains(&error.status)
}

/// Adds the path to an error that concerns a file.
fn about(path: &Path, error: ExitError) -> ExitError {
    match concerns_file(&error) {
        true => ExitError::with_status(error.status, format_args!("{}: {error}", path.display())),
        false => error,
    }
}

fn failure(path: &Path, error: &io::Error) -> ExitError {
    ExitError::usage(format_args!("{}: {}", path.display(), exit_error::reason(error)))
}

#[derive(Default)]
struct Work {
    report: DefragReport,
    /// Device and inode number of the files that were put in order: a file may have several names.
    seen: BTreeSet<(u64, u64)>,
}

impl Work {
    /// Puts the files below `directory` in order, those on the filesystem `device`. What vanishes meanwhile is left out.
    fn walk(
        &mut self,
        mount: &MountRecord,
        directory: &Path,
        device: u64,
    ) -> Result<(), ExitError> {
        let mut directories = vec![directory.to_owned()];
        while let Some(directory) = directories.pop() {
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) => {
                    self.note_failure(&directory, &failure(&directory, &error));
                    continue;
                }
            };
            for entry in entries.flatten() {
                let path = entry.path();
                // Does not follow a symbolic link.
                let Ok(file) = entry.metadata() else { continue };
                if file.dev() != device {
                    continue;
                }
                if file.is_dir() {
                    directories.push(path);
                } else if file.is_file()
                    && let Err(error) = self.put_in_order(mount, &path, &file)
                {
                    if !concerns_file(&error) {
                        return Err(error);
                    }
                    if fs::symlink_metadata(&path).is_ok() {
                        self.note_failure(&path, &error);
                    }
                }
            }
        }
        Ok(())
    }

    fn note_failure(&mut self, path: &Path, error: &ExitError) {
        self.report.failed_files += 1;
        if self.report.failures.len() < FAILURES_MAX {
            let path = path.to_string_lossy().into_owned();
            self.report.failures.push(DefragFailure { path, reason: error.to_string() });
        }
    }

    /// Puts a file in order.
    fn put_in_order(
        &mut self,
        mount: &MountRecord,
        path: &Path,
        file: &Metadata,
    ) -> Result<(), ExitError> {
        if !self.seen.insert((file.dev(), file.ino())) {
            return Ok(());
        }
        let mut next = Some(0);
        let mut is_moved = false;
        while let Some(from) = next {
            let request = ControlRequest::Defragment { inode: file.ino(), from };
            let reply = control::ask(mount, &request).map_err(|error| about(path, error))?;
            let ControlReply::Defragmented(part) = reply else {
                return Err(control::unknown_reply(mount));
            };
            is_moved |= part.moved_bytes > 0;
            self.report.add(&part);
            // A daemon of another user must not keep this program in a loop.
            next = part.next.filter(|next| *next > from);
        }
        self.report.files += 1;
        self.report.moved_files += u64::from(is_moved);
        Ok(())
    }
}

impl DefragReport {
    fn add(&mut self, part: &DefragPart) {
        let sum = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        sum(&mut self.bytes, part.bytes);
        sum(&mut self.moved_bytes, part.moved_bytes);
        sum(&mut self.device_bytes, part.device_bytes);
        sum(&mut self.requests_before, part.requests_before);
        sum(&mut self.requests_after, part.requests_after);
    }
}

impl fmt::Display for DefragReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, moved_files, requests_before, requests_after, .. } = self;
        let [bytes, moved, written] = [self.bytes, self.moved_bytes, self.device_bytes].map(Human);
        writeln!(
            f,
            "{files} files, {bytes}: moved {moved} of {moved_files} files, wrote {written}"
        )?;
        writeln!(f, "reading them takes {requests_after} requests, and took {requests_before}")?;
        for DefragFailure { reason, .. } in &self.failures {
            writeln!(f, "not done: {}", plain(reason))?;
        }
        match self.failed_files as usize > self.failures.len() {
            true => writeln!(f, "{} files failed", self.failed_files),
            false => Ok(()),
        }
    }
}
