//! Cargo commands, and the test programs that cargo installs.

use std::{env, path::PathBuf};

use anyhow::Result;

use crate::{report::StepOutcome, run::Cmd, workspace::Workspace};

/// Prepares cargo in the repository, with the target directory of this program.
pub(crate) fn cargo(workspace: &Workspace) -> Cmd {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Cmd::new(program).dir(&workspace.root).env("CARGO_TARGET_DIR", &workspace.target)
}

/// Returns the path of a test program from crates.io in exactly this version, installed once under
/// `target/tools`.
pub(crate) fn tool(workspace: &Workspace, name: &str, version: &str) -> Result<PathBuf> {
    let root = workspace.target.join("tools");
    let program = root.join("bin").join(name);
    let installed = Cmd::new(&program).arg("--version").read().unwrap_or_default();
    if !installed.ends_with(version) {
        println!("installing {name} {version}");
        cargo(workspace)
            .args(["install", "--quiet", "--locked", "--version", version, name, "--root"])
            .arg(&root)
            .arg("--target-dir")
            .arg(workspace.target.join("tools-build"))
            .run()?;
    }
    Ok(program)
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
