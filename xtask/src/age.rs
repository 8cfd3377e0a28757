//! `cargo xtask age`: a full volume, overwritten at random several times.
//!
//! fio reads and verifies all data that it writes, and the volume is checked with its data at the
//! end. The counters of the daemon are compared with the prediction of `sfs-lab simulate`. Speed is
//! not measured, since the machine may be busy.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use serde::Deserialize;

use crate::{
    cleanup::Undo,
    device::TestDevice,
    filesystem::{Blocks, FilesystemKind},
    fio, machine,
    report::StepOutcome,
    scratch::Scratch,
    volume_stat::{self, Segments, VolumeStat},
    workspace::{Profile, Programs, Workspace},
};

const BLOCK_LEN: u64 = 4096;

/// Longest time of a write.
const STALL_MAX: Duration = Duration::from_secs(1);

/// Allowed relative difference between simulator and volume.
const PREDICTION_TOLERANCE: f64 = 0.10;

/// Largest ratio of metadata to users' data.
const METADATA_MAX: f64 = 0.10;

/// Seconds between two full commits: the core's default.
const COMMIT_SECONDS: f64 = 5.0;

#[derive(Args)]
pub(crate) struct AgeOptions {
    /// Size of the volume, in GiB.
    #[arg(long, default_value_t = 8)]
    size: u64,
    /// Percentage of the space for files that is filled.
    #[arg(long, default_value_t = 85, value_parser = clap::value_parser!(u64).range(1..=99))]
    fill: u64,
    /// Bytes that each load writes, as a multiple of the size of the volume.
    #[arg(long, default_value_t = 4)]
    times: u64,
    /// Grouping policy.
    #[arg(long, default_value = "sfs")]
    policy: String,
    /// Loads, one after the other: zipf:THETA or uniform.
    #[arg(long, value_delimiter = ',', default_value = "zipf:0.99,uniform")]
    loads: Vec<String>,
}

/// Needed part of the output of `sfs-lab simulate --json`.
#[derive(Deserialize)]
struct Predicted {
    amplification_user: f64,
}

/// Measured quantities that the simulator takes as input.
struct Overhead {
    /// Fraction of every segment that holds summaries.
    summaries: f64,
    /// Number of tree nodes written for each block of data.
    nodes: f64,
    /// Number of users' writes between two full commits.
    sync_interval: f64,
    /// Average number of empty segments.
    empty: f64,
}

/// The volume under load.
struct AgedVolume<'a> {
    programs: &'a Programs,
    dir: PathBuf,
    file: PathBuf,
    /// Number of blocks of the file.
    blocks: u64,
}

pub(crate) fn run(workspace: &Workspace, options: &AgeOptions) -> Result<StepOutcome> {
    machine::need("fio", "fio")?;
    FilesystemKind::Sfs.need()?;
    let programs =
        workspace.build(Profile::Release, &["sfs", "sfs-mkfs", "sfs-fsck", "sfs-lab"])?;
    let len = options.size << 30;
    let scratch = Scratch::in_ram(len)?;
    let device = TestDevice::best(&scratch.dir.join("image"), len)?;
    FilesystemKind::Sfs.make(&programs, &device, Blocks::Discard)?;
    let dir = scratch.directory("mount")?;
    let guard = Undo::Unmount(dir.clone()).later();
    let policy = format!("policy={}", options.policy);
    programs.cmd("sfs-mount").args(["-o", &policy]).arg(&device.path).arg(&dir).run()?;
    let volume = AgedVolume::fill(&programs, &dir, options.fill)?;

    let mut outcome = StepOutcome::default();
    let mut before = None;
    for load in &options.loads {
        volume.age(load, before, options, &mut outcome)?;
        before = Some(load.as_str());
    }
    FilesystemKind::Sfs.unmount(&programs, &dir)?;
    drop(guard);
    check(
        &mut outcome,
        "sfs-fsck --data finds nothing",
        FilesystemKind::Sfs.check(&programs, &device).is_ok(),
    );
    Ok(outcome)
}

fn check(outcome: &mut StepOutcome, what: &str, good: bool) {
    println!("{}: {what}", if good { "ok" } else { "FAILED" });
    outcome.passed += u64::from(good);
    if !good {
        outcome.failed += 1;
        outcome.notes.push(what.to_owned());
    }
}

impl<'a> AgedVolume<'a> {
    /// Writes a file of `percent` of the space for files. fio verifies the file after each run.
    fn fill(programs: &'a Programs, dir: &Path, percent: u64) -> Result<Self> {
        let space = rustix::fs::statvfs(dir)?;
        let blocks = space.f_blocks * space.f_frsize / BLOCK_LEN * percent / 100;
        let volume = Self { programs, dir: dir.to_owned(), file: dir.join("file"), blocks };
        println!("filling {} MiB", (blocks * BLOCK_LEN) >> 20);
        volume.fio(&["--rw=write", "--bs=4k", "--end_fsync=1"])?;
        Ok(volume)
    }

    /// Runs a load whose data fio verifies.
    fn fio(&self, arguments: &[&str]) -> Result<fio::Job> {
        let out = self.dir.with_extension("fio");
        let verified = [&["--verify=crc32c", "--verify_fatal=1"], arguments].concat();
        fio::run(&self.file, self.blocks * BLOCK_LEN, &out, &verified)
    }

    fn stat(&self) -> Result<VolumeStat> {
        VolumeStat::read(self.programs, &self.dir)
    }

    /// Runs `load` after the load `before`, and checks its effects.
    fn age(
        &self,
        load: &str,
        before: Option<&str>,
        options: &AgeOptions,
        outcome: &mut StepOutcome,
    ) -> Result<()> {
        println!("\n-- {load}");
        let distribution = if load == "uniform" { "random" } else { load };
        let began = self.stat()?;
        let written = (options.times * options.size) << 30;
        // fio verifies at its end the last data that it wrote at each position.
        let (job, average) = volume_stat::watch_segments(self.programs, &self.dir, || {
            self.fio(&[
                "--rw=randwrite",
                "--bs=4k",
                "--direct=1",
                "--norandommap",
                &format!("--random_distribution={distribution}"),
                &format!("--io_size={written}"),
            ])
        })?;
        let after = self.stat()?;
        let count = |name: &str| after.increase_since(&began, name).map(|count| count as f64);
        let user = count("user_bytes_written")?;
        let metadata = count("metadata_bytes")? / user;
        let log = (count("data_bytes")? + count("cleaning_bytes")?) / user;
        let longest = Duration::from_nanos(job.write.clat_ns.max);
        let blocks = count("data_bytes")? + count("cleaning_bytes")?;
        let overhead = Overhead {
            summaries: count("summary_bytes")? / (blocks + count("summary_bytes")?),
            nodes: count("metadata_bytes")? / blocks,
            sync_interval: job.write.iops * COMMIT_SECONDS,
            empty: average.empty,
        };
        let predicted =
            self.predict((before, load), options, &after.segments, written, &overhead)?;
        println!("{:.0} writes a second, the longest {longest:.3?}", job.write.iops);
        println!(
            "data {log:.3} per user byte (the simulator: {predicted:.3}), metadata {metadata:.3}, \
             all {:.3}; {} checkpoints, {} segments cleaned, {:.1} empty",
            count("device_bytes_written")? / user,
            count("checkpoints")?,
            count("segments_cleaned")?,
            overhead.empty,
        );
        check(
            outcome,
            &format!("{load}: no write takes more than {STALL_MAX:?}"),
            longest < STALL_MAX,
        );
        check(outcome, &format!("{load}: metadata is a tenth at most"), metadata <= METADATA_MAX);
        let near = (log / predicted - 1.0).abs() <= PREDICTION_TOLERANCE;
        check(outcome, &format!("{load}: the simulator is within a tenth"), near);
        Ok(())
    }

    /// Returns the write amplification that the simulator predicts for the same volume and loads.
    fn predict(
        &self,
        (before, load): (Option<&str>, &str),
        options: &AgeOptions,
        is: &Segments,
        written: u64,
        overhead: &Overhead,
    ) -> Result<f64> {
        let segments = is.count();
        let sizes = written as f64 / (self.blocks * BLOCK_LEN) as f64;
        let flags = [
            ("--workload", load.to_owned()),
            ("--policy", options.policy.clone()),
            ("--writing", "largest".into()),
            ("--buffer-blocks", WRITE_BUFFER_BLOCKS.to_string()),
            ("--segments", segments.to_string()),
            ("--segment-blocks", is.blocks.to_string()),
            ("--live-blocks", self.blocks.to_string()),
            ("--reserve-segments", format!("{:.0}", overhead.empty)),
            ("--summaries", overhead.summaries.to_string()),
            ("--nodes", overhead.nodes.to_string()),
            ("--sync-interval", format!("{:.0}", overhead.sync_interval)),
            ("--warm-up", if before.is_some() { sizes.to_string() } else { "0".into() }),
            ("--warm-up-workload", before.unwrap_or(load).to_owned()),
            ("--measure", sizes.to_string()),
        ];
        let mut cmd = self.programs.cmd("sfs-lab").args(["simulate", "--json"]);
        for (flag, value) in flags {
            cmd = cmd.arg(flag).arg(value);
        }
        Ok(serde_json::from_str::<Predicted>(&cmd.read()?)?.amplification_user)
    }
}

/// Number of blocks of the write buffer of 64 MiB that are dirty on average: write-back starts when
/// the buffer is half full.
const WRITE_BUFFER_BLOCKS: u64 = (32 << 20) / BLOCK_LEN;
