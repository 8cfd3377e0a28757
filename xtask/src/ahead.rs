//! Builds for later steps, made in the background while tests wait for devices and clocks.
//!
//! Each step still makes what it needs itself: cargo's locks have it wait for a build that is under way, and a build that
//! fails here fails there again.

use std::thread;

use crate::{cargo, crash, fsx, pjdfstest, run::Cmd, workspace::Workspace};

/// Priority of the builds: only what the tests leave.
const NICE: i32 = 19;

/// Begins to build the simulator and the test programs of other projects. They end with this program at the latest.
pub(crate) fn begin(workspace: &Workspace) {
    let tools = [pjdfstest::TOOL, fsx::TOOL].map(|tool| cargo::install(workspace, tool));
    let commands: Vec<Cmd> = crash::builds(workspace).into_iter().chain(tools).collect();
    // Nobody waits for this thread: after the last build it ends by itself.
    drop(thread::spawn(move || {
        // On Linux the priority is one of this thread and of the processes that it starts.
        if rustix::process::nice(NICE).is_ok() {
            commands.into_iter().map(Cmd::read).for_each(drop);
        }
    }));
}
