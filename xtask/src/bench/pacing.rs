//! `cargo xtask bench pacing`: latency of requests during cleaning, with cleaning that yields to
//! requests and with cleaning that does not (Rajimwale et al., section 3.6, table 6).
//!
//! Both volumes are mounted at once, are equally full and old, and take turns under the same load.
//! There is one request at a time: the next one comes when the last has been answered, or later.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use anyhow::Result;
use clap::Args;

use super::table;
use crate::{
    cleanup::{Guard, Undo},
    device::TestDevice,
    filesystem::{Blocks, FilesystemKind},
    fio, machine,
    scratch::Scratch,
    volume_stat::VolumeStat,
    workspace::{Profile, Programs, Workspace},
};

/// Modes of cleaning, as `-o cleaning=` names them.
const MODES: [&str; 2] = ["yielding", "eager"];

/// Shares of writes among the requests, in percent, as in the paper.
const SHARES: [u32; 5] = [20, 40, 50, 60, 80];

/// Arrival process of the requests.
#[derive(Clone, Copy)]
enum Arrival {
    /// Random arrivals at this rate per second.
    Steady(u32),
    /// Bursts of this many requests, with pauses of 100 ms.
    Bursts(u32),
}

const ARRIVALS: [Arrival; 2] = [Arrival::Steady(4000), Arrival::Bursts(400)];

impl Arrival {
    fn name(self) -> String {
        match self {
            Self::Steady(rate) => format!("{rate} a second"),
            Self::Bursts(count) => format!("{count} in a row, then 100 ms of rest"),
        }
    }

    /// Arguments of fio when `writes` percent of the requests write. fio has a rate for each
    /// direction.
    fn arguments(self, writes: u32) -> [String; 2] {
        match self {
            Self::Steady(rate) => {
                let writing = rate * writes / 100;
                let rates = format!("--rate_iops={},{writing}", rate - writing);
                [rates, "--rate_process=poisson".into()]
            }
            Self::Bursts(count) => {
                ["--thinktime=100ms".into(), format!("--thinktime_blocks={count}")]
            }
        }
    }
}

const DEVICE_LEN: u64 = 256 << 20;

/// Percentage of the space for files that is filled.
const FILL: u64 = 85;

#[derive(Args)]
pub(crate) struct PacingOptions {
    /// Number of samples of each cell; the median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Duration of each load, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
}

/// A volume with one mode of cleaning. The mount is dropped before the device.
struct MountedTarget {
    _mount: Guard,
    dir: PathBuf,
    len: u64,
    _device: TestDevice,
}

/// Result of one load.
struct PacingSample {
    /// Mean latency, in microseconds.
    mean: f64,
    /// Longest latency, in milliseconds.
    longest: f64,
    /// Number of segments that were cleaned during the load.
    cleaned: u64,
    /// Number of requests that had to wait for cleaning or a checkpoint.
    stalls: u64,
}

/// Indices of an arrival process, a share of writes and a mode.
type Cell = (usize, usize, usize);

pub(crate) fn run(workspace: &Workspace, options: &PacingOptions) -> Result<()> {
    machine::need("fio", "fio")?;
    FilesystemKind::Sfs.need()?;
    let programs = workspace.build(Profile::Release, &["sfs", "sfs-mkfs"])?;
    let scratch = Scratch::in_ram(DEVICE_LEN * MODES.len() as u64)?;
    let targets = MODES.map(|mode| MountedTarget::new(&programs, &scratch, mode));
    let targets = targets.into_iter().collect::<Result<Vec<_>>>()?;
    let mut samples: BTreeMap<Cell, Vec<PacingSample>> = BTreeMap::new();
    for round in 0..options.rounds as usize {
        println!("round {} of {}", round + 1, options.rounds);
        for (arrival, how) in ARRIVALS.iter().enumerate() {
            for (share, writes) in SHARES.iter().enumerate() {
                for turn in 0..targets.len() {
                    let mode = (turn + round) % targets.len();
                    let sample =
                        targets[mode].measure(&programs, *how, *writes, options.seconds)?;
                    samples.entry((arrival, share, mode)).or_default().push(sample);
                }
            }
        }
    }
    let text = markdown(&samples, options);
    println!("\n{text}");
    table::publish(&workspace.root.join("docs/benchmarks.md"), "pacing", &text)
}

impl MountedTarget {
    /// Makes a volume on which one file fills [`FILL`] percent and has been overwritten at random
    /// once.
    fn new(programs: &Programs, scratch: &Scratch, mode: &'static str) -> Result<Self> {
        let device = TestDevice::best(&scratch.dir.join(format!("{mode}.img")), DEVICE_LEN)?;
        FilesystemKind::Sfs.make(programs, &device, Blocks::Discard)?;
        let dir = scratch.directory(mode)?;
        let mount = Undo::Unmount(dir.clone()).later();
        let option = format!("cleaning={mode}");
        programs.cmd("sfs-mount").args(["-o", &option]).arg(&device.path).arg(&dir).run()?;
        let space = rustix::fs::statvfs(&dir)?;
        let len = (space.f_blocks * space.f_frsize * FILL / 100) >> 20 << 20;
        let target = Self { _mount: mount, dir, len, _device: device };
        println!("{mode}: filling {} MiB, and overwriting them", len >> 20);
        target.fio(&["--rw=write", "--bs=1m", "--end_fsync=1"])?;
        target.fio(&["--rw=randwrite", "--bs=4k", "--direct=1", "--norandommap"])?;
        Ok(target)
    }

    fn fio(&self, arguments: &[&str]) -> Result<fio::Job> {
        fio::run(&self.dir.join("file"), self.len, &self.dir.with_extension("fio"), arguments)
    }

    fn measure(
        &self,
        programs: &Programs,
        how: Arrival,
        writes: u32,
        secs: u32,
    ) -> Result<PacingSample> {
        let before = VolumeStat::read(programs, &self.dir)?;
        let [first, second] = how.arguments(writes);
        let job = self.fio(&[
            "--rw=randrw",
            "--bs=4k",
            "--direct=1",
            "--norandommap",
            "--time_based",
            &format!("--rwmixwrite={writes}"),
            &format!("--runtime={secs}"),
            &first,
            &second,
        ])?;
        let after = VolumeStat::read(programs, &self.dir)?;
        let count = |name: &str| after.increase_since(&before, name);
        let sides = [&job.read, &job.write];
        let requests: u64 = sides.iter().map(|side| side.total_ios).sum();
        let time: f64 = sides.iter().map(|s| s.clat_ns.mean * s.total_ios as f64).sum();
        let longest = sides.iter().map(|side| side.clat_ns.max).max().unwrap_or(0);
        Ok(PacingSample {
            mean: time / requests.max(1) as f64 / 1e3,
            longest: longest as f64 / 1e6,
            cleaned: count("segments_cleaned")?,
            stalls: count("stalls")?,
        })
    }
}

fn markdown(samples: &BTreeMap<Cell, Vec<PacingSample>>, options: &PacingOptions) -> String {
    let mut text = format!("{}.\n\n", machine::description());
    text += &format!(
        "Two volumes of 256 MiB, {FILL}% full and overwritten once, on loop devices in RAM, taking turns. \
         Requests of 4 KiB, direct, at random; each cell is the median of {} runs of {} s. In \
         parentheses: segments cleaned meanwhile, and requests that waited for room.\n\n",
        options.rounds, options.seconds
    );
    text += "| arrival | writes | mean, yielding, us | mean, eager, us | faster by | longest, yielding, ms | longest, eager, ms |\n";
    text += "|---|---:|---:|---:|---:|---:|---:|\n";
    let cell = |key: Cell, of: fn(&PacingSample) -> f64| {
        table::median(samples.get(&key).into_iter().flatten().map(of)).unwrap_or_default()
    };
    for (arrival, how) in ARRIVALS.iter().enumerate() {
        let name = how.name();
        for (share, writes) in SHARES.iter().enumerate() {
            let [yielding, eager] = [0, 1].map(|mode| (arrival, share, mode));
            let means = [yielding, eager].map(|key| cell(key, |sample| sample.mean));
            let shown = [(yielding, means[0]), (eager, means[1])].map(|(key, mean)| {
                let cleaned = cell(key, |sample| sample.cleaned as f64);
                let stalls = cell(key, |sample| sample.stalls as f64);
                format!("{mean:.0} ({cleaned:.0}, {stalls:.0})")
            });
            let longest = [yielding, eager].map(|key| cell(key, |sample| sample.longest));
            let _ = writeln!(
                text,
                "| {name} | {writes}% | {} | {} | {:.0}% | {:.1} | {:.1} |",
                shown[0],
                shown[1],
                (1.0 - means[0] / means[1]) * 100.0,
                longest[0],
                longest[1],
            );
        }
    }
    text
}
