//! `sfs-lab reproduce sfs-flash`: section 4.4 of the SFS paper, its filesystems and ours on one device.
//!
//! Owns: which filesystems, workloads and models.
//! Promises: every figure that is called ours has just been measured; what cannot be run here is
//! named.
//! Never: says whether they agree: docs/lab/flash.md does.

mod paper;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sfs_lab::comparison::{Comparison, OnModel, Recording, scaled};
use sfs_lab::document::Document;
use sfs_lab::host::{Filesystem, need_disks};
use sfs_lab::workload::Source;
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{SsdConfig, SsdProfile};

use crate::commands::progress::with_bar;
use crate::commands::traces::TraceFolder;
use paper::{SWEEP, UTILIZATIONS};
use report::text;

/// What the paper compares at.
const FULL: f64 = 0.85;

/// Trace that stands for the paper's RES, which is not to be had.
const TRACE: &str = "cloudphysics-vm.csv.zst";

/// The erase blocks of H, M and L are smaller by this, as the device is.
const ERASE_BLOCK_DIVISOR: u32 = 16;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Size of the device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Bytes of a segment of SFS: the erase block of ssd-m, scaled.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2M")]
    segment_size: u64,
    /// Grouping policies of SFS; throughput against utilization is measured with the last.
    #[arg(long, value_delimiter = ',', default_value = "sfs,lifetime")]
    policies: Vec<String>,
    /// Part of the device that is overwritten; the rest of the data is written once.
    #[arg(long, default_value_t = 0.21)]
    working_set: f64,
    /// Overwrites before counting, in working sets.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Overwrites that count, in the same.
    #[arg(long, default_value_t = 1.0)]
    measure: f64,
    /// Random log blocks of the FAST model.
    #[arg(long, default_value_t = 64)]
    log_blocks: u32,
    /// Leave out throughput against utilization.
    #[arg(long)]
    no_sweep: bool,
    #[command(flatten)]
    traces: TraceFolder,
    /// Folder with lab/flash.md, to be written into.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// The models: what they are called, and how they are built.
struct Models {
    /// Page-mapped and FAST, as in the paper's simulator; without discards, and with.
    simulator: [SsdConfig; 4],
    /// SSD-H, SSD-M and SSD-L, without discards.
    devices: [SsdConfig; 3],
}

/// A filesystem under a workload: nothing if it cannot be run, or ran out of space.
struct Run {
    filesystem: String,
    user_mib: u64,
    simulator: Option<[OnModel; 4]>,
    devices: Option<[OnModel; 3]>,
}

impl Arguments {
    fn models(&self) -> Result<Models> {
        let layers = [Layer::GREEDY, Layer::Fast { log_blocks: self.log_blocks }];
        let fast12 = SsdProfile::by_name("fast12").context("the profile of the SFS paper")?;
        let on = |layer: Layer, informed: bool| {
            let profile = fast12.clone().with_layer(layer).with_capacity(self.size);
            SsdConfig { informed, ..profile.config() }
        };
        let device = |name: &str| -> Result<SsdConfig> {
            let profile = SsdProfile::by_name(name).context("a profile")?;
            let config = scaled(profile, self.size, ERASE_BLOCK_DIVISOR).config();
            Ok(SsdConfig { informed: false, ..config })
        };
        Ok(Models {
            simulator: [
                on(layers[0], false),
                on(layers[1], false),
                on(layers[0], true),
                on(layers[1], true),
            ],
            devices: [device("ssd-h")?, device("ssd-m")?, device("ssd-l")?],
        })
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            size: self.size,
            working_set: self.working_set,
            warm_up: self.warm_up,
            measured: self.measure,
            seed: 1,
        }
    }

    fn ours(&self) -> Vec<Filesystem> {
        let segment_size = self.segment_size;
        let sfs = |policy: &String| Filesystem::Sfs {
            policy: policy.clone(),
            segment_size,
            layout: "log",
        };
        self.policies.iter().map(sfs).collect()
    }

    /// Those that can be run here; says which cannot.
    fn filesystems(&self) -> Vec<Filesystem> {
        let theirs =
            [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs, Filesystem::BtrfsNodatacow];
        let is_here = |filesystem: &Filesystem| match filesystem.missing() {
            None => true,
            Some(program) => {
                output::complain(format_args!(
                    "skipped: {}: {program} is not installed",
                    filesystem.name()
                ));
                false
            }
        };
        self.ours().into_iter().chain(theirs).filter(is_here).collect()
    }

    fn workloads(&self) -> Result<Vec<(&'static str, Source)>> {
        let mut workloads = Vec::new();
        for name in ["zipf:0.99", "uniform", "tpcc"] {
            workloads.push((name, Source::open(name)?));
        }
        if let Some(path) = self.traces.find(TRACE) {
            let source = Source::open(&format!("trace:{}", path.display()))?;
            workloads.push(("cloudphysics-vm", source));
        }
        Ok(workloads)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Err(error) = need_disks() {
        output::complain(format_args!("skipped: {error:#}"));
        return Ok(());
    }
    let lab = std::env::current_exe().context("this program's own path")?;
    let (models, workloads) = (arguments.models()?, arguments.workloads()?);
    let filesystems = arguments.filesystems();
    let comparison = arguments.comparison();
    let sweeps: &[f64] = if arguments.no_sweep { &[] } else { &UTILIZATIONS };
    let ours: Vec<Filesystem> = arguments.ours().pop().into_iter().collect();
    let swept = workloads.iter().take(SWEEP.len());
    let runs = workloads.len() * filesystems.len()
        + swept.clone().count() * ours.len() * sweeps.len().saturating_sub(1);
    let (mut compared, mut curves) = (Vec::new(), Vec::new());
    with_bar(|progress| {
        let total = runs as u64 * comparison.writes();
        let mut done = 0;
        for (name, source) in &workloads {
            let mut rows = Vec::new();
            for filesystem in &filesystems {
                let recorded = comparison.record(&lab, filesystem, source, FULL, &mut |writes| {
                    progress(done + writes, total);
                });
                rows.push(row(filesystem, recorded, &models)?);
                done += comparison.writes();
            }
            compared.push((*name, rows));
        }
        for (name, source) in swept {
            for filesystem in ours.iter().filter(|_| !sweeps.is_empty()) {
                let mut points = Vec::new();
                for &utilization in sweeps {
                    let at = |writes| progress(done + writes, total);
                    let recorded = curve(
                        (&comparison, &lab, &models),
                        (filesystem, source, utilization),
                        &mut { at },
                    )?;
                    done += comparison.writes() * u64::from(utilization != FULL);
                    points.push(recorded);
                }
                curves.push((*name, filesystem.name(), points));
            }
        }
        anyhow::Ok(())
    })?;
    let document = arguments.docs.as_deref().map(Document::flash);
    let text = text(arguments, &compared, &curves, document.as_ref())?;
    output::print(&text)?;
    document.map_or(Ok(()), |document| document.section("sfs-flash", &text))
}

/// MB/s on the three devices at a utilization; nothing if there was no room.
fn curve(
    (comparison, lab, models): (&Comparison, &Path, &Models),
    (filesystem, source, utilization): (&Filesystem, &Source, f64),
    progress: &mut dyn FnMut(u64),
) -> Result<Option<[f64; 3]>> {
    let recording = comparison.record(lab, filesystem, source, utilization, progress);
    let Some(recording) = room(&filesystem.name(), recording)? else { return Ok(None) };
    let mut speeds = [0.0; 3];
    for (speed, config) in speeds.iter_mut().zip(&models.devices) {
        *speed = recording.on(config)?.user_mb_per_s();
    }
    Ok(Some(speeds))
}

/// What was recorded, unless there was no room for it.
fn room(name: &str, recorded: Result<Recording>) -> Result<Option<Recording>> {
    match recorded {
        Ok(recording) if recording.user_bytes() == 0 => {
            output::complain(format_args!("{name}: out of space while warming up"));
            Ok(None)
        }
        Ok(recording) => {
            if recording.is_full() {
                output::complain(format_args!(
                    "{name}: out of space after {}",
                    Human(recording.user_bytes())
                ));
            }
            Ok(Some(recording))
        }
        Err(error) => {
            let full = error.chain().any(|cause| {
                let io = cause.downcast_ref::<std::io::Error>();
                io.is_some_and(|io| io.kind() == std::io::ErrorKind::StorageFull)
            });
            match full {
                true => {
                    output::complain(format_args!("{name}: {error:#}"));
                    Ok(None)
                }
                false => Err(error.context(name.to_owned())),
            }
        }
    }
}

fn row(filesystem: &Filesystem, recorded: Result<Recording>, models: &Models) -> Result<Run> {
    let name = filesystem.name();
    let recording = room(&name, recorded)?;
    let Some(recording) = recording else {
        return Ok(Run { filesystem: name, user_mib: 0, simulator: None, devices: None });
    };
    let on = |config: &SsdConfig| recording.on(config);
    let [a, b, c, d] = &models.simulator;
    let simulator = Some([on(a)?, on(b)?, on(c)?, on(d)?]);
    let [h, m, l] = &models.devices;
    let devices = Some([on(h)?, on(m)?, on(l)?]);
    Ok(Run { filesystem: name, user_mib: recording.user_bytes() >> 20, simulator, devices })
}
