//! The POSIX suite: pjdfstest, from crates.io.
//!
//! The erofs cases remount the filesystem, which makes cases beside them fail: so the erofs
//! cases run alone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::{
    cargo::{self, Tool},
    device::TestDevice,
    filesystem::{Blocks, Cache, FilesystemKind, Subject},
    machine,
    mount::Mount,
    object_store::Ballast,
    report::{StepOutcome, Tally},
    run::Cmd,
    scratch::Scratch,
    workspace::{Profile, Programs, Workspace},
};

pub(crate) const TOOL: Tool = Tool { name: "pjdfstest", version: "0.2.2" };
const DEVICE_LEN: u64 = 1 << 30;
const REMOUNTING: &str = "erofs";

#[derive(Default, Deserialize)]
struct Exclusions {
    #[serde(default)]
    exclusion: Vec<Exclusion>,
    #[serde(default)]
    race: Vec<Race>,
}

#[derive(Deserialize)]
struct Exclusion {
    name: String,
    reason: String,
}

/// A case that fails now and then, but with one message only.
#[derive(Deserialize)]
struct Race {
    name: String,
    message: String,
    reason: String,
}

/// Runs the whole suite, or the cases whose names contain `pattern`.
pub(crate) fn run(workspace: &Workspace, on: Subject, pattern: Option<&str>, tally: &mut Tally) {
    let name = format!("pjdfstest on {}", on.name());
    match need(on.kind) {
        Err(reason) => tally.skip(&name, &reason),
        Ok(()) => {
            tally.step(&name, || suite(workspace, on, pattern, false));
            // A volume in an object store is not remounted read-only yet.
            if pattern.is_none() && on.store.is_none() {
                let name = format!("pjdfstest {REMOUNTING} on {}", on.name());
                tally.step(&name, || suite(workspace, on, Some(REMOUNTING), true));
            }
        }
    }
}

fn need(on: FilesystemKind) -> Result<()> {
    on.need()?;
    machine::need_loop().context("remounting and other users' cases need a block device")
}

fn suite(
    workspace: &Workspace,
    on: Subject,
    pattern: Option<&str>,
    remount: bool,
) -> Result<StepOutcome> {
    let program = cargo::tool(workspace, TOOL)?;
    let programs = on.build(workspace, Profile::Dev)?;
    let exclusions =
        if on.kind == FilesystemKind::Sfs { exclusions(workspace)? } else { Exclusions::default() };
    let config = configure(workspace, remount, &exclusions.exclusion)?;
    let scratch = Scratch::in_ram(DEVICE_LEN)?;
    let image = scratch.dir.join("image");
    let device = on.device(workspace, &image, DEVICE_LEN, TestDevice::over_loop)?;
    let kind = on.kind;
    kind.make(&programs, &device, Blocks::Discard)?;
    let mount = Mount::new(kind, &programs, &device, &scratch.dir.join("mount"), Cache::Writeback)?;
    let ballast = on.store.map(|_| Ballast::plant(&mount.dir)).transpose()?;
    let cases = Cases { program, config, on: &mount.dir, second: scratch.directory("second")? };
    let mut outcome = cases.run(pattern, remount, &exclusions.race)?;
    if let Some(ballast) = ballast {
        ballast.verify(&mount.dir)?;
        outcome = outcome.note(device.disturbances());
    }
    mount.unmount()?;
    outcome.add_check(kind, &programs, &device);
    for Exclusion { name, reason } in exclusions.exclusion {
        outcome = outcome.note(format!("expected to fail: {name}: {reason}"));
    }
    Ok(outcome)
}

fn exclusions(workspace: &Workspace) -> Result<Exclusions> {
    let path = workspace.root.join("xtask/pjdfstest-exclusions.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    Ok(toml::from_str(&text)?)
}

/// Writes the configuration under `target/`, and makes the two users that it names.
fn configure(workspace: &Workspace, remount: bool, exclusions: &[Exclusion]) -> Result<PathBuf> {
    let users = [user("nobody")?, user("tests")?];
    let users = users.map(|(user, group)| format!("[{user:?}, {group:?}]")).join(", ");
    let expected: Vec<&str> = exclusions.iter().map(|exclusion| exclusion.name.as_str()).collect();
    let expected = if remount { Vec::new() } else { expected };
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.02\nallow_remount = {remount}\nexpected_failures = {expected:?}\n\
         [dummy_auth]\nentries = [{users}]\n"
    );
    let name = if remount { "pjdfstest-remount.toml" } else { "pjdfstest.toml" };
    let path = workspace.target.join(name);
    fs::write(&path, text)?;
    Ok(path)
}

/// Makes a user if it does not exist; returns its name and the name of its group.
fn user(name: &str) -> Result<(String, String)> {
    if Cmd::new("id").arg(name).read().is_err() {
        Cmd::new("useradd").args(["-U", "-M", name]).read()?;
    }
    let group = Cmd::new("id").args(["-g", "-n", name]).read()?;
    Ok((name.to_owned(), group))
}

struct Cases<'a> {
    program: PathBuf,
    config: PathBuf,
    on: &'a Path,
    second: PathBuf,
}

impl Cases<'_> {
    fn run(&self, pattern: Option<&str>, remount: bool, races: &[Race]) -> Result<StepOutcome> {
        let mut cmd = Cmd::new(&self.program).env("NO_COLOR", "1").arg("-c").arg(&self.config);
        cmd = cmd.arg("-p").arg(self.on).arg("-s").arg(&self.second);
        if let Some(pattern) = pattern {
            cmd = cmd.arg(pattern);
        }
        let mut output = Output::default();
        let succeeded = cmd.lines(|line| output.add(line))?;
        if !output.summed || succeeded != (output.outcome.failed == 0) {
            bail!("pjdfstest ended without its summary");
        }
        let mut outcome = output.outcome(races);
        if outcome.skipped > 0 {
            let why = if remount { "for other systems" } else { "for other systems, or run alone" };
            outcome.notes.push(format!("{} cases skipped by the suite: {why}", outcome.skipped));
        }
        Ok(outcome)
    }
}

/// Output of the suite, line by line.
#[derive(Default)]
struct Output {
    outcome: StepOutcome,
    /// Names of the failed cases, each with its message.
    failures: Vec<(String, String)>,
    /// Whether the last line belongs to the last failure.
    is_failing: bool,
    summed: bool,
}

impl Output {
    fn add(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let (true, Some(message), Some(failure)) =
            (self.is_failing, line.strip_prefix('\t'), self.failures.last_mut())
        {
            failure.1.push_str(message);
            return;
        }
        self.is_failing = false;
        match words[..] {
            [name, "FAILED"] => {
                self.failures.push((name.to_owned(), String::new()));
                self.is_failing = true;
            }
            [name, "PASSED", "UNEXPECTEDLY"] => {
                self.outcome.notes.push(format!("is excluded, but passes: {name}"));
            }
            ["Summary:", ..] => {
                add_summary(line, &mut self.outcome);
                self.summed = true;
            }
            _ => {}
        }
    }

    /// Returns the counts, in which a failure that one of the `races` explains is a skipped case.
    fn outcome(self, races: &[Race]) -> StepOutcome {
        let Self { mut outcome, failures, .. } = self;
        for (name, message) in failures {
            let race =
                races.iter().find(|race| race.name == name && message.contains(&race.message));
            match race {
                Some(Race { reason, .. }) => {
                    outcome.failed -= 1;
                    outcome.skipped += 1;
                    outcome.notes.push(format!("failed as it may: {name}: {reason}"));
                }
                None => outcome.notes.push(format!("failed: {name}: {message}")),
            }
        }
        outcome
    }
}

/// Adds `Summary: 0 failed, 13 skipped, 385 passed, 0 expected failures, 398 total`.
fn add_summary(line: &str, outcome: &mut StepOutcome) {
    let counts = line.trim_start_matches("Summary: ").split(", ");
    for (count, what) in counts.filter_map(|count| count.split_once(' ')) {
        let count = count.parse::<u64>().unwrap_or(0);
        match what {
            "failed" => outcome.failed += count,
            "skipped" | "expected failures" => outcome.skipped += count,
            "passed" => outcome.passed += count,
            _ => {}
        }
    }
}

impl StepOutcome {
    /// Adds the result of the checker on the volume that a suite has used.
    pub(crate) fn add_check(
        &mut self,
        kind: FilesystemKind,
        programs: &Programs,
        device: &TestDevice,
    ) {
        match kind.check(programs, device) {
            Ok(()) => self.passed += 1,
            Err(error) => {
                println!("{error:#}");
                self.failed += 1;
                self.notes.push(format!("{error:#}").lines().next().unwrap_or_default().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read() {
        let mut outcome = StepOutcome::default();
        let line = "Summary: 2 failed, 13 skipped, 382 passed, 1 expected failures, 398 total";
        add_summary(line, &mut outcome);
        assert_eq!((outcome.passed, outcome.failed, outcome.skipped), (382, 2, 14));
    }

    #[test]
    fn only_the_known_message_of_a_race_is_forgiven() {
        let mut output = Output::default();
        for line in [
            "open::etxtbsy        FAILED",
            "\tcalled `Result::unwrap_err()` on an `Ok` value: 12",
            "truncate::etxtbsy    FAILED",
            "\tcalled `Result::unwrap_err()` on an `Ok` value: ()",
            "open::mode           ok",
            "Summary: 2 failed, 0 skipped, 1 passed, 0 expected failures, 3 total",
        ] {
            output.add(line);
        }
        let race = |name: &str| Race {
            name: name.to_owned(),
            message: "on an `Ok` value: 1".to_owned(),
            reason: "a race".to_owned(),
        };
        let outcome = output.outcome(&[race("open::etxtbsy"), race("truncate::etxtbsy")]);
        assert_eq!((outcome.passed, outcome.failed, outcome.skipped), (1, 1, 1));
        let failed =
            "failed: truncate::etxtbsy: called `Result::unwrap_err()` on an `Ok` value: ()";
        assert!(outcome.notes.iter().any(|note| note == failed), "{:?}", outcome.notes);
    }
}
