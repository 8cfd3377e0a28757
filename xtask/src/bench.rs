//! `cargo xtask bench fuse`: filesystems side by side.
//!
//! All filesystems are mounted at once and take turns within every row of every round. So other
//! activity of the machine affects all alike. The table names every filesystem that is missing.

pub(crate) mod aged;
pub(crate) mod bytes;
pub(crate) mod card;
pub(crate) mod compare;
pub(crate) mod counts;
mod medium;
pub(crate) mod pacing;
pub(crate) mod pairs;
pub(crate) mod profile;
mod spread;
pub(crate) mod store;
mod table;
pub(crate) mod tail;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{
    device::TestDevice,
    filesystem::{Blocks, Cache, FilesystemKind},
    machine::{self, Rings},
    mount::Mount,
    run::Cmd,
    scratch::Scratch,
    workspace::{Profile, Programs, Workspace},
};

const CONTESTANTS: [Contestant; 14] = [
    Contestant::over(FilesystemKind::Sfs, "uring"),
    Contestant::over(FilesystemKind::Sfs, "dev"),
    Contestant::over(FilesystemKind::Sfs, "fuser"),
    Contestant::asynchronous("uring"),
    Contestant::asynchronous("dev"),
    Contestant::over(FilesystemKind::Null, "uring"),
    Contestant::over(FilesystemKind::Null, "dev"),
    Contestant::over(FilesystemKind::Null, "fuser"),
    Contestant::over(FilesystemKind::NullDevice, "uring"),
    Contestant::of(FilesystemKind::Ext4),
    Contestant::of(FilesystemKind::Xfs),
    Contestant::of(FilesystemKind::Btrfs),
    Contestant::of(FilesystemKind::Fuse2fs),
    Contestant::of(FilesystemKind::Ntfs3g),
];
const DEVICE_LEN: u64 = 1 << 30;
const SEED: u64 = 20_120_214;
const ROUNDS_QUICK: u32 = 3;

/// Rows, by the name in `fuse-load` and by a title for readers.
pub(crate) const ROWS: [(&str, &str, Unit); 24] = [
    ("seq-write1m", "sequential write, 1 MiB, fsync at the end", Unit::Bytes),
    ("seq-read1m", "sequential read, 1 MiB, cold", Unit::Bytes),
    ("seq-write4k", "sequential write, 4 KiB, fsync at the end", Unit::Bytes),
    ("seq-read4k", "sequential read, 4 KiB, cold", Unit::Bytes),
    ("rand-write", "random write, 4 KiB, fsync at the end", Unit::Ops),
    ("rand-write-fsync", "random write, 4 KiB, fsync each", Unit::Ops),
    ("rand-read1", "random direct read, 4 KiB, one thread", Unit::Ops),
    ("rand-read16", "random direct read, 4 KiB, sixteen threads", Unit::Ops),
    ("libaio-read1", "random direct read, 4 KiB, libaio, depth 1", Unit::Ops),
    ("libaio-read16", "random direct read, 4 KiB, libaio, depth 16", Unit::Ops),
    ("libaio-write1", "random direct write, 4 KiB, libaio, depth 1, fsync at the end", Unit::Ops),
    ("libaio-write16", "random direct write, 4 KiB, libaio, depth 16, fsync at the end", Unit::Ops),
    ("uring-read1", "random direct read, 4 KiB, io_uring, depth 1", Unit::Ops),
    ("uring-read16", "random direct read, 4 KiB, io_uring, depth 16", Unit::Ops),
    ("uring-write1", "random direct write, 4 KiB, io_uring, depth 1, fsync at the end", Unit::Ops),
    (
        "uring-write16",
        "random direct write, 4 KiB, io_uring, depth 16, fsync at the end",
        Unit::Ops,
    ),
    ("create", "create", Unit::Ops),
    ("stat-cached", "stat, cached", Unit::Ops),
    ("readdir-cold", "readdir with stat, cold", Unit::Ops),
    ("rename", "rename", Unit::Ops),
    ("unlink", "unlink", Unit::Ops),
    ("create4k", "create, write 4 KiB, close", Unit::Ops),
    ("create-parallel", "create, four threads", Unit::Ops),
    ("unlink-parallel", "unlink, four threads", Unit::Ops),
];

/// Unit of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Ops,
}

#[derive(Args)]
pub(crate) struct FuseBenchOptions {
    /// Number of samples of each cell; the median is shown.
    #[arg(long)]
    rounds: Option<u32>,
    /// Run less of everything, and write nothing to `docs/`.
    #[arg(long)]
    quick: bool,
    /// Measure only these filesystems.
    #[arg(long, value_delimiter = ',')]
    only: Vec<FilesystemKind>,
    /// Measure only the rows whose names contain this text.
    #[arg(long)]
    row: Option<String>,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
    pub(crate) wall: Duration,
    /// CPU time of client, daemon and kernel workers.
    pub(crate) cpu: Duration,
}

impl Sample {
    /// Parses the output of the load generator.
    fn read(line: &str) -> Result<Self> {
        let numbers: Vec<u64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
        let [ops, bytes, wall, client, daemon, workers] = numbers[..] else {
            bail!("fuse-load printed: {line}");
        };
        let cpu = Duration::from_nanos(client + daemon + workers);
        let sample = Self { ops, bytes, wall: Duration::from_nanos(wall), cpu };
        (ops > 0).then_some(sample).context("no operation was completed in time")
    }
}

/// A filesystem, with the transport if it is SFS or the null filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contestant {
    kind: FilesystemKind,
    transport: Option<&'static str>,
    /// Mount option besides the options of all contestants.
    option: Option<&'static str>,
}

impl Contestant {
    const fn of(kind: FilesystemKind) -> Self {
        Self { kind, transport: None, option: None }
    }

    const fn over(kind: FilesystemKind, transport: &'static str) -> Self {
        Self { transport: Some(transport), ..Self::of(kind) }
    }

    /// Returns SFS without the protection that older kernels need against data loss, to measure the
    /// cost of the protection.
    const fn asynchronous(transport: &'static str) -> Self {
        Self { option: Some("async_dio=on"), ..Self::over(FilesystemKind::Sfs, transport) }
    }

    fn name(self) -> String {
        let name = Some(self.kind.name());
        let parts: Vec<_> = [name, self.transport, self.option].into_iter().flatten().collect();
        parts.join(", ")
    }

    /// Builds the programs of the filesystem, after checking that the machine has everything for it.
    fn programs(self, workspace: &Workspace, profile: Profile) -> Result<Programs> {
        self.kind.need()?;
        let programs = self.kind.build(workspace, profile)?;
        Ok(self.options_of(programs))
    }

    /// Sets the transport and the mount option.
    fn options_of(self, programs: Programs) -> Programs {
        let programs = match self.transport {
            Some(transport) => programs.over(transport),
            None => programs,
        };
        programs.with(self.option.map(Into::into))
    }

    /// Returns whether `row` is measured for this contestant: its mount option affects only
    /// asynchronous rows.
    fn has(self, row: &str) -> bool {
        let is_asynchronous = row.starts_with("libaio-") || row.starts_with("uring-");
        self.option.is_none() || is_asynchronous
    }
}

/// Measurements of a filesystem by row, or the error that prevented them.
pub(crate) type Column = Result<BTreeMap<&'static str, Vec<Sample>>>;

/// A filesystem under measurement. The mount is dropped before the device.
struct Target {
    mount: Mount,
    device: TestDevice,
    workers: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &FuseBenchOptions) -> Result<()> {
    let rounds = options.rounds.unwrap_or(if options.quick { ROUNDS_QUICK } else { 5 });
    let load = workspace.build(Profile::Release, &["sfs-bench"])?.path("fuse-load");
    machine::need("fio", "fio")?;
    let rings = Rings::enable();
    if let Err(error) = &rings {
        eprintln!("{error:#}");
    }
    let devices =
        CONTESTANTS.iter().filter(|contestant| contestant.kind != FilesystemKind::Null).count();
    let scratch = Scratch::in_ram(DEVICE_LEN * devices as u64)?;
    let mut columns: Vec<(Contestant, Column)> = Vec::new();
    let mut targets: Vec<(Contestant, Target)> = Vec::new();
    for contestant in CONTESTANTS {
        if !options.only.is_empty() && !options.only.contains(&contestant.kind) {
            continue;
        }
        match Target::of(workspace, contestant, &scratch) {
            Ok(target) => {
                targets.push((contestant, target));
                columns.push((contestant, Ok(BTreeMap::new())));
            }
            Err(error) => {
                eprintln!("{} is not measured: {error:#}", contestant.name());
                columns.push((contestant, Err(error)));
            }
        }
    }
    if targets.is_empty() {
        bail!("there is nothing to measure");
    }
    for round in 0..rounds {
        println!("round {} of {rounds}", round + 1);
        for (row, ..) in ROWS {
            if options.row.as_ref().is_some_and(|only| !row.contains(only.as_str())) {
                continue;
            }
            measure_row(&load, row, options.quick, round, &targets, &mut columns);
        }
    }
    let text = table::markdown(&columns, rounds, options.quick, scratch.is_in_ram());
    println!("\n{text}");
    for (_, target) in targets {
        target.unmount()?;
    }
    if options.quick || options.row.is_some() || !options.only.is_empty() {
        return Ok(());
    }
    table::publish(&workspace.root.join("docs/benchmarks.md"), "fuse", &text)
}

/// Measures every target once, in the order of the round. A target that fails is removed.
fn measure_row(
    load: &PathBuf,
    row: &'static str,
    quick: bool,
    round: u32,
    targets: &[(Contestant, Target)],
    columns: &mut [(Contestant, Column)],
) {
    for turn in 0..targets.len() {
        let (contestant, target) = &targets[place_in_turn(turn, round as usize, targets.len())];
        let column = columns.iter_mut().find(|(column_of, _)| column_of == contestant);
        let Some((_, column)) = column else { continue };
        let Ok(samples) = column else { continue };
        if !contestant.has(row) {
            continue;
        }
        match target.measure(load, row, quick) {
            Ok(sample) => samples.entry(row).or_default().push(sample),
            Err(error) => {
                eprintln!("{} fails at {row}: {error:#}", contestant.name());
                *column = Err(error.context(format!("failed at {row}")));
            }
        }
    }
}

/// Returns the contestant at turn `turn` of `count` in a round. The order changes so that each
/// contestant follows each other one equally often (Williams, 1949, for an even `count`). So the
/// caches that a slow filesystem leaves behind do not always affect the same one.
fn place_in_turn(turn: usize, round: usize, count: usize) -> usize {
    let zigzag = if turn.is_multiple_of(2) { turn / 2 } else { count - turn.div_ceil(2) };
    (zigzag + round) % count
}

impl Target {
    fn of(workspace: &Workspace, contestant: Contestant, scratch: &Scratch) -> Result<Self> {
        let programs = contestant.programs(workspace, Profile::Release)?;
        Self::new(contestant.kind, &programs, &contestant.name(), scratch)
    }

    /// Makes and mounts a filesystem of `kind`, whose files in `scratch` are called `name`.
    fn new(
        kind: FilesystemKind,
        programs: &Programs,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Self> {
        let name = name.replace([',', ' ', '='], "-");
        let image = scratch.dir.join(format!("{name}.img"));
        let device = match kind {
            FilesystemKind::Null => TestDevice::image(&image, DEVICE_LEN)?,
            _ => TestDevice::allocated(&image, DEVICE_LEN)?,
        };
        kind.make(programs, &device, Blocks::Keep)?;
        let dir = scratch.dir.join(name);
        let mount = Mount::new(kind, programs, &device, &dir, Cache::WritebackKeep)?;
        let mut workers = vec![format!("flush-{}", mount.dev()?)];
        if let Some(name) = device.block_device_name() {
            // Write-back of a fuseblk mount, the loop device itself, and ext4's journal.
            workers.push(format!("flush-{}-fuseblk", mount.dev()?));
            workers.push(name.to_owned());
            workers.push(format!("{name}-8"));
        }
        Ok(Self { mount, device, workers })
    }

    fn unmount(self) -> Result<()> {
        self.mount.unmount()?;
        drop(self.device);
        Ok(())
    }

    /// Runs the load generator with one row on this target.
    fn cmd(&self, load: &PathBuf, row: &str, quick: bool) -> Cmd {
        let mut cmd = Cmd::new(load).arg(&self.mount.dir).arg(row);
        cmd = cmd.args(["--seed", &SEED.to_string()]).arg("--device").arg(&self.device.path);
        if quick {
            cmd = cmd.arg("--quick");
        }
        for pid in self.mount.pids() {
            cmd = cmd.args(["--pid", &pid.to_string()]);
        }
        for worker in &self.workers {
            cmd = cmd.args(["--worker", worker]);
        }
        cmd
    }

    fn measure(&self, load: &PathBuf, row: &str, quick: bool) -> Result<Sample> {
        Sample::read(&self.cmd(load, row, quick).read()?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_contestant_has_a_turn_and_another_predecessor_in_each_round() {
        let count = CONTESTANTS.len();
        let orders: Vec<Vec<usize>> = (0..count)
            .map(|round| (0..count).map(|turn| place_in_turn(turn, round, count)).collect())
            .collect();
        for order in &orders {
            assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), count);
        }
        let pairs = orders.iter().flat_map(|order| order.windows(2));
        let distinct: BTreeSet<&[usize]> = pairs.collect();
        assert_eq!(distinct.len(), count * (count - 1));
    }
}
