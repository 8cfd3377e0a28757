//! Answers to requests that look inside a mounted volume, and about its scrub. Nothing is written to the volume.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sfs_core::Error;

use super::handler::ControlHandler;
use super::messages::ScrubRequest;
use crate::exit_error::ExitError;
use crate::fuse::inode_paths;
use crate::inspect::file_map::FilePart;
use crate::inspect::heat::{HeatPart, TOP_MAX};
use crate::inspect::position::TreePosition;
use crate::inspect::scrub_report::ScrubReport;

/// Time after which a part of the walk over all histories ends.
const HEAT_PART: Duration = Duration::from_millis(100);

impl ControlHandler {
    /// Returns the hottest files and ranges from `from` on, and where to go on.
    pub(super) fn heat(&self, from: Option<TreePosition>, top: usize) -> HeatPart {
        let end = Instant::now() + HEAT_PART;
        HeatPart::of(&self.volume.now(), from.unwrap_or(TreePosition::START), top.min(TOP_MAX), end)
    }

    /// Returns the paths of the files with these inode numbers, those that a bounded walk finds.
    pub(super) fn paths(&self, inodes: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        let inodes = inodes.iter().copied().take(3 * TOP_MAX).collect();
        inode_paths::find(&self.volume.now(), Path::new("/"), &inodes)
    }

    /// Returns a part of the map of a file.
    pub(super) fn file_part(&self, inode: u64, from: u32) -> Result<FilePart, ExitError> {
        FilePart::of(&self.volume.now(), inode, from).map_err(|error| match error {
            Error::Invalid => ExitError::usage(format_args!(
                "inode {inode} is no regular file, and only those have blocks"
            )),
            Error::NotFound => {
                ExitError::usage(format_args!("there is no file with inode {inode}"))
            }
            error => ExitError::mount(format_args!("{}: inode {inode}: {error}", self.device)),
        })
    }

    /// Begins, stops, resumes or shows the scrub.
    pub(super) fn scrub(&self, request: &ScrubRequest) -> Result<ScrubReport, ExitError> {
        let is_begun = !matches!(request, ScrubRequest::Status | ScrubRequest::Stop);
        if is_begun && self.is_ending.load(Ordering::Acquire) {
            return Err(self.is_unmounting());
        }
        if is_begun && self.reader.is_some() {
            let device = &self.device;
            return Err(ExitError::mount(format_args!(
                "{device}: is mounted beside its writer; 'sfs-fsck -n --data {device}' reads the newest state and checks it"
            )));
        }
        // A handover looks for a scrub that runs.
        let _is_over = if is_begun { Some(self.keep_mounted()?) } else { None };
        match request {
            ScrubRequest::Start { rate_bytes, position } => {
                self.scrubber.start(*rate_bytes, *position)
            }
            ScrubRequest::Resume { rate_bytes } => self.scrubber.resume(*rate_bytes),
            ScrubRequest::Status => Ok(self.scrubber.report()),
            ScrubRequest::Stop if self.scrubber.stop() => Ok(self.scrubber.report()),
            ScrubRequest::Stop => {
                Err(ExitError::mount(format_args!("{}: no scrub is running", self.device)))
            }
        }
    }
}
