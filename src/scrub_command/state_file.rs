//! File of the system with the position of an unfinished scrub.
//!
//! The file is replaced as a whole, and removed when the scrub is done. A file that is damaged, or of another volume, counts as
//! none: the scrub begins anew.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit_error::{self, ExitError};
use crate::inspect::position::TreePosition;
use crate::inspect::scrub_report::{ScrubReport, ScrubState};

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// UUID of the volume.
    uuid: String,
    position: String,
}

pub(super) struct StateFile(PathBuf);

impl StateFile {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns the position of an unfinished scrub of the volume `uuid`.
    pub(super) fn position(&self, uuid: &str) -> Option<TreePosition> {
        let kept: Kept = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        if kept.uuid == uuid { kept.position.parse().ok() } else { None }
    }

    /// Keeps the position of `report`, or removes the file if the scrub is done.
    pub(super) fn keep(&self, report: &ScrubReport) -> Result<(), ExitError> {
        self.try_keep(report).map_err(|error| {
            ExitError::system(format_args!("{}: {}", self.0.display(), exit_error::reason(&error)))
        })
    }

    fn try_keep(&self, report: &ScrubReport) -> io::Result<()> {
        match (&report.state, &report.position) {
            (ScrubState::Done, _) => match fs::remove_file(&self.0) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            (ScrubState::Running | ScrubState::Stopped, Some(position)) => {
                let kept = Kept { uuid: report.uuid.clone(), position: position.clone() };
                let mut next = self.0.clone().into_os_string();
                next.push(".new");
                fs::write(&next, serde_json::to_vec(&kept)?)?;
                fs::rename(&next, &self.0)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_kept_for_its_volume_until_the_scrub_is_done() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("state");
        let file = StateFile::new(&path);
        let report = |state| ScrubReport {
            uuid: "one".into(),
            state,
            position: Some("17-4-3".into()),
            ..ScrubReport::default()
        };
        assert!(file.position("one").is_none());
        file.keep(&report(ScrubState::Running)).expect("the file is written");
        assert_eq!(file.position("one"), "17-4-3".parse().ok());
        assert!(file.position("two").is_none());
        fs::write(&path, b"{").expect("the file is damaged");
        assert!(file.position("one").is_none());
        file.keep(&report(ScrubState::Done)).expect("the file is removed");
        file.keep(&report(ScrubState::Done)).expect("there is no file");
        assert!(!path.exists());
        let lost = StateFile::new(&scratch.path().join("missing/state"));
        assert_eq!(lost.keep(&report(ScrubState::Stopped)).expect_err("no directory").status, 2);
    }
}
