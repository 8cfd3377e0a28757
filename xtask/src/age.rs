//! `cargo xtask age`: a mounted volume, full, overwritten at random several times over.
//!
//! Owns the loads, and what is compared with the simulator. Promises that what is written is read and
//! verified by fio, that the volume is checked at the end, data included, and that a failure names what
//! was expected. Never measures speed: the machine may have other things to do.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Deserialize;

use crate::{
    cleanup::Undo,
    device::Device,
    filesystem::{Blocks, Kind},
    fio, machine,
    report::Outcome,
    scratch::Scratch,
    workspace::{Profile, Programs, Workspace},
};

const BLOCK_LEN: u64 = 4096;

/// Longest that a write may take.
const STALL_MAX: Duration = Duration::from_secs(1);

/// How far simulator and volume may be apart.
const PREDICTION_TOLERANCE: f64 = 0.10;

/// Metadata over users' data, at most.
const METADATA_MAX: f64 = 0.10;

/// Seconds from one commit of everything to the next: core's default.
const COMMIT_SECONDS: f64 = 5.0;

/// How often it is looked how many segments are empty.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct Options {
    /// Size of the volume, in GiB.
    #[arg(long, default_value_t = 8)]
    size: u64,
    /// Part of what files can have that is filled, in percent.
    #[arg(long, default_value_t = 85, value_parser = clap::value_parser!(u64).range(1..=99))]
    fill: u64,
    /// Bytes that each load writes, in sizes of the volume.
    #[arg(long, default_value_t = 4)]
    times: u64,
    /// Grouping policy.
    #[arg(long, default_value = "sfs")]
    policy: String,
    /// The loads, one after the other: zipf:THETA or uniform.
    #[arg(long, value_delimiter = ',', default_value = "zipf:0.99,uniform")]
    loads: Vec<String>,
}

/// What `sfs-ctl stat --json` says, as far as it is needed.
#[derive(Deserialize)]
struct Stat {
    segments: Segments,
    mount: Activity,
}

#[derive(Deserialize)]
struct Segments {
    blocks: u64,
    clean: u64,
    open: u64,
    sealed: u64,
    drained: u64,
}

#[derive(Deserialize)]
struct Activity {
    counters: std::collections::BTreeMap<String, u64>,
}

/// What `sfs-lab simulate --json` says, as far as it is needed.
#[derive(Deserialize)]
struct Predicted {
    amplification_user: f64,
}

/// What the simulator does not reckon itself.
struct Overhead {
    /// Part of every segment that is summaries.
    summaries: f64,
    /// Tree nodes written for each block of data.
    nodes: f64,
    /// Users' writes from one commit of everything to the next.
    sync_interval: f64,
    /// Segments that nothing lives in.
    empty: f64,
}

/// The volume under load.
struct Volume<'a> {
    programs: &'a Programs,
    dir: PathBuf,
    file: PathBuf,
    /// Blocks of the file.
    blocks: u64,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    machine::need("fio", "fio")?;
    Kind::Sfs.need()?;
    let programs =
        workspace.build(Profile::Release, &["sfs", "sfs-mkfs", "sfs-fsck", "sfs-lab"])?;
    let len = options.size << 30;
    let scratch = Scratch::in_ram(len)?;
    let device = Device::best(&scratch.dir.join("image"), len)?;
    Kind::Sfs.make(&programs, &device, Blocks::Discard)?;
    let dir = scratch.directory("mount")?;
    let guard = Undo::Unmount(dir.clone()).later();
    let policy = format!("policy={}", options.policy);
    programs.cmd("sfs-mount").args(["-o", &policy]).arg(&device.path).arg(&dir).run()?;
    let volume = Volume::fill(&programs, &dir, options.fill)?;

    let mut outcome = Outcome::default();
    let mut before = None;
    for load in &options.loads {
        volume.age(load, before, options, &mut outcome)?;
        before = Some(load.as_str());
    }
    Kind::Sfs.unmount(&programs, &dir)?;
    drop(guard);
    check(
        &mut outcome,
        "sfs-fsck --data finds nothing",
        Kind::Sfs.check(&programs, &device).is_ok(),
    );
    Ok(outcome)
}

fn check(outcome: &mut Outcome, what: &str, good: bool) {
    println!("{}: {what}", if good { "ok" } else { "FAILED" });
    outcome.passed += u64::from(good);
    if !good {
        outcome.failed += 1;
        outcome.notes.push(what.to_owned());
    }
}

impl<'a> Volume<'a> {
    /// Writes a file of `percent` of what there is. fio verifies after each run what it wrote.
    fn fill(programs: &'a Programs, dir: &Path, percent: u64) -> Result<Self> {
        let space = rustix::fs::statvfs(dir)?;
        let blocks = space.f_blocks * space.f_frsize / BLOCK_LEN * percent / 100;
        let volume = Self { programs, dir: dir.to_owned(), file: dir.join("file"), blocks };
        println!("filling {} MiB", (blocks * BLOCK_LEN) >> 20);
        volume.fio(&["--rw=write", "--bs=4k", "--end_fsync=1"])?;
        Ok(volume)
    }

    /// A load whose data fio verifies.
    fn fio(&self, arguments: &[&str]) -> Result<fio::Job> {
        let out = self.dir.with_extension("fio");
        let verified = [&["--verify=crc32c", "--verify_fatal=1"], arguments].concat();
        fio::run(&self.file, self.blocks * BLOCK_LEN, &out, &verified)
    }

    fn stat(&self) -> Result<Stat> {
        let json = self.programs.cmd("sfs-ctl").args(["stat", "--json"]).arg(&self.dir).read()?;
        Ok(serde_json::from_str(&json)?)
    }

    /// Runs a load after the one `before`, and looks at what it did.
    fn age(
        &self,
        load: &str,
        before: Option<&str>,
        options: &Options,
        outcome: &mut Outcome,
    ) -> Result<()> {
        println!("\n-- {load}");
        let distribution = if load == "uniform" { "random" } else { load };
        let began = self.stat()?;
        let written = (options.times * options.size) << 30;
        // fio verifies at its end whatever it wrote last at each place.
        let (job, empty) = self.watch_empty(|| {
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
        let count = |name: &str| -> Result<f64> {
            let of = |stat: &Stat| stat.mount.counters.get(name).copied();
            let both = of(&after).zip(of(&began));
            both.map(|(after, began)| (after - began) as f64).with_context(|| format!("no {name}"))
        };
        let user = count("user_bytes_written")?;
        let metadata = count("metadata_bytes")? / user;
        let log = (count("data_bytes")? + count("cleaning_bytes")?) / user;
        let longest = Duration::from_nanos(job.write.clat_ns.max);
        let blocks = count("data_bytes")? + count("cleaning_bytes")?;
        let overhead = Overhead {
            summaries: count("summary_bytes")? / (blocks + count("summary_bytes")?),
            nodes: count("metadata_bytes")? / blocks,
            sync_interval: job.write.iops * COMMIT_SECONDS,
            empty,
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

    /// Does `work`, and says how many segments were Clean or Drained, on average, while something was
    /// written.
    fn watch_empty<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let watcher = scope.spawn(move || -> Result<f64> {
                let (mut empty, mut written) = (Vec::new(), 0);
                while ended.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    let stat = self.stat()?;
                    let bytes = stat.mount.counters.get("user_bytes_written").copied();
                    if bytes > Some(written) {
                        empty.push(stat.segments.clean + stat.segments.drained);
                    }
                    written = bytes.unwrap_or(0);
                }
                Ok(empty.iter().sum::<u64>() as f64 / empty.len().max(1) as f64)
            });
            let outcome = work();
            drop(end);
            let empty = watcher.join().expect("it does not panic")?;
            Ok((outcome?, empty))
        })
    }

    /// What the simulator makes of the same volume and loads.
    fn predict(
        &self,
        (before, load): (Option<&str>, &str),
        options: &Options,
        is: &Segments,
        written: u64,
        overhead: &Overhead,
    ) -> Result<f64> {
        let segments = is.clean + is.open + is.sealed + is.drained;
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

/// What of the write buffer's 64 MiB waits: it is written from half of it on.
const WRITE_BUFFER_BLOCKS: u64 = (32 << 20) / BLOCK_LEN;
