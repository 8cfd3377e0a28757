//! The crash simulator, in a build profile of its own: optimized, with debug assertions.

use anyhow::Result;

use crate::{
    cargo::{self, cargo},
    report::StepOutcome,
    run::Cmd,
    workspace::Workspace,
};

/// Number of states that `cargo xtask test` checks in the log layout: about a minute of work.
pub(crate) const STATES_SHORT: u64 = 30_000;

/// Number of states for each other data layout.
pub(crate) const STATES_OVERWRITING: u64 = 10_000;

/// Number of states of a long run.
pub(crate) const STATES_LONG: u64 = 1_000_000;

/// Runs `sfs-sim` with `arguments`.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<StepOutcome> {
    let build = ["run", "--quiet", "--profile", "sim", "--package", "sfs-sim", "--"];
    cargo(workspace).args(build).args(arguments).run().map(|()| StepOutcome::passed())
}

/// Data layouts other than the log.
pub(crate) const OVERWRITING: [&str; 4] =
    ["greedy-space", "clock-space", "clock-space-exact", "block-group"];

/// Checks `states` crash states of the layout `data_layout`, with a fixed seed. The build is the
/// one that the mutation check needs anyway; no mutant is active in it.
pub(crate) fn budget(workspace: &Workspace, data_layout: &str, states: u64) -> Result<StepOutcome> {
    let build = ["run", "--quiet", "--profile", "sim", "--package", "sfs-sim"];
    let cmd = cargo(workspace).args(build).args(["--features", "mutants", "--"]);
    cmd.args(["--layout", data_layout, "--seed", "1", "--states", &states.to_string()])
        .run()
        .map(|()| StepOutcome::passed())
}

/// Prepares the builds of all programs that the steps below run.
pub(crate) fn builds(workspace: &Workspace) -> [Cmd; 2] {
    let simulator = ["--test", "mutants", "--test", "two_devices", "--test", "two_device_mutants"];
    [("sfs-sim", &simulator[..]), ("sfs-object", &["--test", "interleavings"])].map(
        |(package, tests)| {
            let build = ["test", "--no-run", "--quiet", "--profile", "sim", "--package", package];
            cargo(workspace).args(build).args(["--features", "mutants"]).args(tests)
        },
    )
}

/// Asserts that the simulator finds every deliberate bug of the core: with the case that found it last, or `long` from the first
/// case on.
pub(crate) fn mutants(workspace: &Workspace, long: bool) -> Result<StepOutcome> {
    let build = ["test", "--profile", "sim", "--package", "sfs-sim", "--features", "mutants"];
    let cmd = cargo(workspace).args(build).args(["--test", "mutants"]);
    cargo::test(if long { cmd.env("SFS_HUNT", "1") } else { cmd })
}

/// Checks crash states of a disk with an SSD cache, and asserts that each deliberate bug of the cache is found. `long` checks a hundred
/// thousand.
pub(crate) fn two_devices(workspace: &Workspace, long: bool) -> Result<StepOutcome> {
    let build = ["test", "--profile", "sim", "--package", "sfs-sim", "--features", "mutants"];
    let tests = ["--test", "two_devices", "--test", "two_device_mutants"];
    let filter = if long { "--include-ignored" } else { "--quiet" };
    cargo::test(cargo(workspace).args(build).args(tests).args(["--", filter]))
}

/// Runs the protocol of object volumes in every order of its requests, and asserts that each deliberate bug is found. `long` adds
/// the large scopes.
pub(crate) fn object_orders(workspace: &Workspace, long: bool) -> Result<StepOutcome> {
    let build = ["test", "--profile", "sim", "--package", "sfs-object", "--features", "mutants"];
    let filter = if long { "--include-ignored" } else { "--quiet" };
    cargo::test(cargo(workspace).args(build).args(["--test", "interleavings", "--", filter]))
}
