//! Cargo commands, and the test programs that cargo installs.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use anyhow::Result;

use crate::{report::StepOutcome, run::Cmd, workspace::Workspace};

/// Prepares cargo in the repository, with the target directory of this program.
pub(crate) fn cargo(workspace: &Workspace) -> Cmd {
    in_workspace(workspace, program())
}

fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn in_workspace(workspace: &Workspace, program: impl AsRef<OsStr>) -> Cmd {
    Cmd::new(program).dir(&workspace.root).env("CARGO_TARGET_DIR", &workspace.target)
}

/// A test program from crates.io, in exactly this version.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

/// Returns the path of a test program, installed once under `target/tools`.
pub(crate) fn tool(workspace: &Workspace, tool: Tool) -> Result<PathBuf> {
    let program = workspace.target.join("tools/bin").join(tool.name);
    let installed = Cmd::new(&program).arg("--version").read().unwrap_or_default();
    if !installed.ends_with(tool.version) {
        println!("installing {} {}", tool.name, tool.version);
        install(workspace, tool).run()?;
    }
    Ok(program)
}

/// Prepares the installation of a test program, which is built quickly rather than well.
///
/// Builds ahead and a test may install the same one at a time. One waits for the other, which would otherwise find the built program
/// gone while it is linked anew; `--force`, as the second would fail at the end because the program is there.
pub(crate) fn install(workspace: &Workspace, tool: Tool) -> Cmd {
    let version = ["--version", tool.version, tool.name];
    let profile = ["opt-level=1", "lto=false", "codegen-units=16"];
    let profile = profile.map(|setting| format!("profile.release.{setting}"));
    in_workspace(workspace, "flock")
        .arg(workspace.target.join("tools-build.lock"))
        .arg(program())
        .args(["install", "--quiet", "--locked", "--force"])
        .args(version)
        .arg("--root")
        .arg(workspace.target.join("tools"))
        .arg("--target-dir")
        .arg(workspace.target.join("tools-build"))
        .args(profile.iter().flat_map(|setting| ["--config", setting]))
}

/// Runs `cargo test` with `args`, and sums its counts.
pub(crate) fn test(cmd: Cmd) -> Result<StepOutcome> {
    let mut outcome = StepOutcome::default();
    let succeeded = cmd.lines(|line| add_counts(line, &mut outcome))?;
    if !succeeded && outcome.failed == 0 {
        outcome.failed = 1;
        outcome.notes.push("cargo test ended before any test".into());
    }
    Ok(outcome)
}

/// Adds `test result: ok. 3 passed; 0 failed; 1 ignored; ...`, and the names of failed tests.
fn add_counts(line: &str, outcome: &mut StepOutcome) {
    if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
    {
        outcome.notes.push(format!("failed: {name}"));
    }
    if let Some((name, reason)) =
        line.strip_prefix("test ").and_then(|l| l.split_once(" ... ignored"))
    {
        outcome.notes.push(format!("ignored: {name}{reason}"));
    }
    let Some(rest) = line.strip_prefix("test result: ") else { return };
    let rest = rest.split_once(". ").map_or(rest, |(_, counts)| counts);
    for count in rest.split("; ") {
        match count.split_once(' ') {
            Some((n, "passed")) => outcome.passed += n.parse().unwrap_or(0),
            Some((n, "failed")) => outcome.failed += n.parse().unwrap_or(0),
            Some((n, "ignored")) => outcome.skipped += n.parse().unwrap_or(0),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_results_are_summed() {
        let mut outcome = StepOutcome::default();
        let result =
            "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out";
        add_counts(result, &mut outcome);
        add_counts(
            "test result: ok. 4 passed; 0 failed; 0 ignored; finished in 0.1s",
            &mut outcome,
        );
        assert_eq!((outcome.passed, outcome.failed, outcome.skipped), (7, 1, 2));
    }

    #[test]
    fn a_failed_test_is_named() {
        let mut outcome = StepOutcome::default();
        add_counts("test tree::splits ... FAILED", &mut outcome);
        assert_eq!(outcome.notes, ["failed: tree::splits"]);
    }
}
