//! The crash simulator, in a build of its own: optimized, and with everything checked.

use anyhow::Result;

use crate::{
    cargo::{self, cargo},
    report::Outcome,
    workspace::Workspace,
};

/// States that `cargo xtask test` looks at: about a minute's worth.
pub(crate) const STATES_SHORT: u64 = 30_000;

/// The same for each data layout beside the log.
pub(crate) const STATES_OVERWRITING: u64 = 10_000;

/// States for a night.
pub(crate) const STATES_LONG: u64 = 1_000_000;

/// Runs `sfs-sim` with `arguments`.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let build = ["run", "--quiet", "--profile", "sim", "--package", "sfs-sim", "--"];
    cargo(workspace).args(build).args(arguments).run().map(|()| Outcome::passed())
}

/// Data layouts beside the log.
pub(crate) const OVERWRITING: [&str; 4] =
    ["greedy-space", "clock-space", "clock-space-exact", "block-group"];

/// So many states where data goes as `data_layout` says, with a fixed seed; in the build that the mutation check needs anyway, in which no
/// mutant is alive.
pub(crate) fn budget(workspace: &Workspace, data_layout: &str, states: u64) -> Result<Outcome> {
    let build = ["run", "--quiet", "--profile", "sim", "--package", "sfs-sim"];
    let cmd = cargo(workspace).args(build).args(["--features", "mutants", "--"]);
    cmd.args(["--layout", data_layout, "--seed", "1", "--states", &states.to_string()])
        .run()
        .map(|()| Outcome::passed())
}

/// The simulator finds every deliberate bug of the core.
pub(crate) fn mutants(workspace: &Workspace) -> Result<Outcome> {
    let build = ["test", "--profile", "sim", "--package", "sfs-sim", "--features", "mutants"];
    cargo::test(cargo(workspace).args(build).args(["--test", "mutants"]))
}
