//! The file system exerciser: fsx, from crates.io.
//!
//! A failure prints the command that replays it, with its seed.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;

use crate::{
    cargo::{self, Tool},
    device::TestDevice,
    filesystem::{Blocks, Cache, Subject},
    mount::Mount,
    object_store::Ballast,
    report::{StepOutcome, Tally},
    run::Cmd,
    scratch::Scratch,
    workspace::{Profile, Workspace},
};

pub(crate) const TOOL: Tool = Tool { name: "fsx", version: "0.3.2" };
const DEVICE_LEN: u64 = 1 << 30;

/// Number of operations of a run for a commit.
pub(crate) const OPS_SHORT: u64 = 20_000;
/// Number of operations of a run for each other transport and data layout.
pub(crate) const OPS_OTHERS: u64 = 5_000;
/// Number of operations of a long run.
pub(crate) const OPS_LONG: u64 = 100_000;

/// Operations beyond the defaults: reopening, invalidating, and every kind of sync.
const CONFIG: &str = "\
[weights]
close_open = 1.0
invalidate = 0.5
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 5.0
fsync = 0.5
fdatasync = 0.5
sendfile = 2.0
posix_fadvise = 1.0
copy_file_range = 2.0
";

/// Runs fsx with both cache modes; without `seed`, the seed comes from the clock.
pub(crate) fn run(
    workspace: &Workspace,
    on: Subject,
    ops: u64,
    seed: Option<u64>,
    tally: &mut Tally,
) {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let seed = seed.unwrap_or(clock);
    for cache in [Cache::Writeback, Cache::Through] {
        let how = match cache {
            Cache::Writeback | Cache::WritebackKeep => "writeback cache",
            Cache::Through => "write-through",
        };
        let name = format!("fsx on {}, {how}", on.name());
        match on.kind.need() {
            Err(reason) => tally.skip(&name, &reason),
            Ok(()) => tally.step(&name, || exercise(workspace, on, cache, ops, seed)),
        }
    }
}

fn exercise(
    workspace: &Workspace,
    on: Subject,
    cache: Cache,
    ops: u64,
    seed: u64,
) -> Result<StepOutcome> {
    let program = cargo::tool(workspace, TOOL)?;
    let programs = on.build(workspace, Profile::Dev)?;
    let artifacts = workspace.target.join("fsx");
    fs::create_dir_all(&artifacts)?;
    let config = artifacts.join("fsx.toml");
    fs::write(&config, CONFIG)?;
    let scratch = Scratch::in_ram(DEVICE_LEN)?;
    let image = scratch.dir.join("image");
    let device = on.device(workspace, &image, DEVICE_LEN, TestDevice::best)?;
    let kind = on.kind;
    kind.make(&programs, &device, Blocks::Discard)?;
    let mount = Mount::new(kind, &programs, &device, &scratch.dir.join("mount"), cache)?;
    let ballast = on.store.map(|_| Ballast::plant(&mount.dir)).transpose()?;
    let (count, seed) = (ops.to_string(), seed.to_string());
    println!("{count} operations, seed {seed}");
    let cmd = Cmd::new(program).args(["-N", &count, "-S", &seed]).arg("-P").arg(&artifacts);
    let result = cmd.arg("-f").arg(&config).arg(mount.dir.join("fsx")).run();
    if let Some(ballast) = &ballast {
        ballast.verify(&mount.dir)?;
        println!("{}", device.disturbances());
    }
    mount.unmount()?;
    let mut outcome = match result {
        Ok(()) => StepOutcome::passed().note(format!("seed {seed}")),
        Err(error) => {
            println!("{error:#}");
            let replay = format!("{}cargo xtask fsx --ops {count} --seed {seed}", on.environment());
            StepOutcome::failed(format!("replay: {replay}; artifacts in {}", artifacts.display()))
        }
    };
    outcome.add_check(kind, &programs, &device);
    Ok(outcome)
}
