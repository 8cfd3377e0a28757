//! File of the system with the position of an unfinished scrub.
//!
//! The file is replaced as a whole, and removed when the scrub is done. A file that is damaged, or of another volume, counts as
//! none: the scrub begins anew.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit_error::{self, ExitError};
use crate::inspect::position::TreePosition;
use crate::inspect::scrub_report::{ScrubReport, ScrubState};
use crate::private_file::PrivateFile;

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// UUID of the volume.
    uuid: String,
    position: String,
    /// Number of damaged places that were found before the position.
    #[serde(default)]
    damage_count: u64,
}

pub(super) struct StateFile(PathBuf);

impl StateFile {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns the position of an unfinished scrub of the volume `uuid`, and the number of damaged places that it has found.
    pub(super) fn position(&self, uuid: &str) -> Option<(TreePosition, u64)> {
        let kept: Kept = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        let position = kept.position.parse().ok().filter(|_| kept.uuid == uuid)?;
        Some((position, kept.damage_count))
    }

    /// Keeps the position of `report` and the damage, with `before` places before its begin, or removes the file if the scrub
    /// is done.
    pub(super) fn keep(&self, report: &ScrubReport, before: u64) -> Result<(), ExitError> {
        self.try_keep(report, before).map_err(|error| {
            ExitError::system(format_args!("{}: {}", self.0.display(), exit_error::reason(&error)))
        })
    }

    fn try_keep(&self, report: &ScrubReport, before: u64) -> io::Result<()> {
        match (&report.state, &report.position) {
            (ScrubState::Done, _) => match fs::remove_file(&self.0) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            (ScrubState::Running | ScrubState::Stopped, Some(position)) => {
                let (uuid, position) = (report.uuid.clone(), position.clone());
                let kept = Kept { uuid, position, damage_count: before + report.damage_count };
                let mut next = PrivateFile::create(&self.0, true)?;
                next.file.write_all(&serde_json::to_vec(&kept)?)?;
                next.take_place()
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
            damage_count: 2,
            ..ScrubReport::default()
        };
        assert!(file.position("one").is_none());
        file.keep(&report(ScrubState::Running), 3).expect("the file is written");
        let position = "17-4-3".parse().expect("a position");
        assert_eq!(file.position("one"), Some((position, 5)));
        assert!(file.position("two").is_none());
        fs::write(&path, b"{").expect("the file is damaged");
        assert!(file.position("one").is_none());
        file.keep(&report(ScrubState::Done), 0).expect("the file is removed");
        file.keep(&report(ScrubState::Done), 0).expect("there is no file");
        assert!(!path.exists());
        let lost = StateFile::new(&scratch.path().join("missing/state"));
        assert_eq!(lost.keep(&report(ScrubState::Stopped), 0).expect_err("no directory").status, 2);
    }
}
