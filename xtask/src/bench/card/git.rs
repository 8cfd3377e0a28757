//! git: this repository is cloned, and revisions of it are checked out; each command is a unit.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};

use super::{
    load::{Place, Program, UnitLoad, timed},
    process::finish,
};
use crate::{machine, run::Cmd};

/// Number of checkouts after a clone.
const CHECKOUTS: usize = 8;

pub(super) fn need() -> Result<()> {
    machine::need("git", "git")
}

/// Returns revisions of `repository`, evenly spaced in its history.
pub(super) fn revisions(repository: &Path) -> Result<Vec<String>> {
    let list = command().arg("-C").arg(repository).args(["rev-list", "--first-parent", "HEAD"]);
    let all: Vec<String> = list.read()?.lines().map(str::to_owned).collect();
    ensure!(all.len() >= CHECKOUTS, "{}: fewer than eight revisions", repository.display());
    Ok((1..=CHECKOUTS).map(|no| all[(all.len() - 1) * no / CHECKOUTS].clone()).collect())
}

/// Writes the files of the last revision into an archive.
pub(super) fn archive(repository: &Path, to: &Path) -> Result<()> {
    let cmd = command().arg("-C").arg(repository).args(["archive", "--format=tar", "-o"]);
    cmd.arg(to).arg("HEAD").read().map(drop)
}

/// Prepares git without the configuration of user and machine.
fn command() -> Cmd {
    Cmd::new("git")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .args(["-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "advice.detachedHead=false"])
}

pub(super) struct Git {
    clone: PathBuf,
    repository: PathBuf,
    revisions: Vec<String>,
    /// Number of commands since the last clone was removed.
    commands: usize,
    errors: PathBuf,
}

pub(super) fn prepare(place: &Place<'_>) -> Result<Git> {
    Ok(Git {
        clone: place.dir.join("clone"),
        repository: place.materials.repository.clone(),
        revisions: place.materials.revisions.clone(),
        commands: 0,
        errors: place.outside.join("errors"),
    })
}

impl UnitLoad for Git {
    const PROGRAM: Program = Program::Git;

    fn unit(&mut self) -> Result<Duration> {
        if self.commands > self.revisions.len() {
            fs::remove_dir_all(&self.clone)?;
            self.commands = 0;
        }
        let cmd = match self.commands {
            // Not by hard links: the objects are copied as from another machine.
            0 => command()
                .args(["clone", "--quiet", "--no-local"])
                .arg(&self.repository)
                .arg(&self.clone),
            no => {
                let cmd = command().arg("-C").arg(&self.clone).args(["checkout", "--quiet"]);
                cmd.arg(&self.revisions[no - 1])
            }
        };
        self.commands += 1;
        timed(|| finish(cmd, &self.errors))
    }
}
