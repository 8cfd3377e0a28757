//! `sfs-lab reproduce fast09-schemes`: figures 5 to 9 of the FAST 2009 paper, its space allocation schemes on
//! aged filesystems.
//!
//! All filesystems under one load are aged with the same files. Every model serves exactly the requests that
//! the filesystem sent.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sfs_lab::block_trace::BlockTrace;
use sfs_lab::block_trace::{Syncs, TraceStatistics};
use sfs_lab::flash::{ModelOutcome, RecordedRequests, scaled};
use sfs_lab::host::{
    Ageing, Disk, DiskRequest, Filesystem, Interrupted, Postmark, RandomAccessJobs, need_disks,
};
use sfs_lab::report::{Document, Series, table, with_bar};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{RequestKind, Responses, SsdConfig, SsdProfile};

mod response_classes;

use super::installed::installed;
use response_classes::{ResponseClasses, ResponseRow};

/// Loads of figures 5 and 6, on aged filesystems (table 4).
const AGED: [(&str, Postmark); 2] = [
    ("figure 5: FSL", postmark(20_000, (512, 10_240), 200_000, 200)),
    ("figure 6: CVFS-Large", postmark(5_000, (512, 328_072), 20_000, 50)),
];

/// Loads of figure 7, on an empty filesystem (table 5).
const NEW: [(&str, Postmark); 4] = [
    ("figure 7: SS", postmark(10_000, (9_216, 15_360), 100_000, 0)),
    ("figure 7: SL", postmark(200_000, (9_216, 15_360), 100_000, 0)),
    ("figure 7: LS", postmark(1_000, (104_858, 3_145_728), 20_000, 0)),
    ("figure 7: LL", postmark(4_250, (104_858, 3_145_728), 20_000, 0)),
];

const fn postmark(files: u32, sizes: (u64, u64), transactions: u32, folders: u32) -> Postmark {
    Postmark { files, sizes, transactions, folders, sync_bytes: WRITE_BACK_BYTES }
}

/// Number of jobs in figures 8 and 9 (table 6).
const JOBS: u32 = 10;

/// Size of each job's file, in bytes.
const JOB_BYTES: u64 = 700 << 20;

/// Utilizations of the filesystem in figures 8 and 9, in percent.
const JOB_UTILIZATIONS: [u8; 3] = [30, 50, 70];

/// The devices.
const DEVICES: [&str; 3] = ["sandisk", "samsung", "mtron"];

/// Size of the paper's smallest device, in bytes; our device is smaller, and so are the loads.
const PAPER_BYTES: u64 = 32 << 30;

/// Index of Mtron's hybrid device among the models.
const MTRON: usize = DEVICES.len() - 1;

/// Divisor of the size of erase blocks, without which the device would have too few erase blocks.
const ERASE_BLOCK_DIVISOR: u32 = 4;

/// Number of bytes of dirty memory at which a machine writes back, before scaling.
const WRITE_BACK_BYTES: u64 = (1 << 30) / 10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Divisor of the numbers of files, transactions and bytes.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// Size of the device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Utilizations of the filesystem in figures 5 and 6, in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,30,50,70,90",
          value_parser = clap::value_parser!(u8).range(0..=95))]
    utilizations: Vec<u8>,
    /// Grouping policy of SFS's log.
    #[arg(long, default_value = "sfs")]
    policy: String,
    /// Run only the figures whose names contain this text. Of the documents only figure 9 is replaced then, if it was run
    /// (with figure 8).
    #[arg(long, default_value = "")]
    only: String,
    /// Folder of lab.md and lab/flash.md, whose sections are replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// The load on an aged filesystem.
enum Load {
    Postmark(Postmark),
    /// Random direct writes and reads of 4 KiB.
    Jobs(RandomAccessJobs),
}

/// A device with a translation layer.
struct SchemeModel {
    name: String,
    config: SsdConfig,
}

/// The outcome of one filesystem under one load.
struct SchemeRun {
    filesystem: String,
    statistics: TraceStatistics,
    on: Vec<ModelOutcome>,
    /// Response times of reads on Mtron's hybrid device.
    reads: Responses,
    /// Writes by class of response time on the same device.
    classes: ResponseClasses,
}

impl SchemeRun {
    fn responses(&self) -> ResponseRow {
        (self.filesystem.clone(), self.classes, self.reads.mean_ms() * 1000.0)
    }
}

impl Arguments {
    fn filesystems(&self, segment_size: u64) -> Vec<Filesystem> {
        let sfs = |layout| Filesystem::Sfs {
            policy: self.policy.clone(),
            victims: None,
            segment_size,
            layout,
        };
        let all = [
            sfs("block-group"),
            sfs("greedy-space"),
            sfs("clock-space"),
            sfs("log"),
            Filesystem::Ext2,
            Filesystem::Ext4,
        ];
        installed(all)
    }

    fn profile(&self, device: &str, layer: Layer) -> Result<SsdProfile> {
        let profile = SsdProfile::by_name(device).context("a profile")?.with_layer(layer);
        Ok(scaled(profile, self.size, ERASE_BLOCK_DIVISOR))
    }

    /// Returns every device with a hybrid translation layer, and Mtron's with two other layers. All
    /// models ignore discards.
    fn models(&self) -> Result<Vec<SchemeModel>> {
        let hybrid = Layer::Fast { log_blocks: 8 };
        let kinds = DEVICES.map(|device| (device, "hybrid", hybrid)).into_iter().chain([
            ("mtron", "block-mapped", Layer::Bast { log_blocks: 5 }),
            ("mtron", "page-mapped", Layer::GREEDY),
        ]);
        kinds
            .map(|(device, name, layer)| {
                let config = self.profile(device, layer)?.config();
                let config = SsdConfig { informed: false, ..config };
                Ok(SchemeModel { name: format!("{device}, {name}"), config })
            })
            .collect()
    }

    fn scaled(&self, postmark: Postmark) -> Load {
        Load::Postmark(Postmark {
            files: (postmark.files / self.scale).max(1),
            transactions: (postmark.transactions / self.scale).max(1),
            folders: postmark.folders / self.scale,
            sync_bytes: postmark.sync_bytes / u64::from(self.scale),
            ..postmark
        })
    }

    /// Returns all figures: name, utilization of the filesystem in percent, and load.
    fn figures(&self) -> Vec<(String, u8, Load)> {
        let mut figures = Vec::new();
        for (name, postmark) in AGED {
            for &full in &self.utilizations {
                figures.push((format!("{name}, {full}% full"), full, self.scaled(postmark)));
            }
        }
        for (name, postmark) in NEW {
            figures.push((name.into(), 0, self.scaled(postmark)));
        }
        for full in JOB_UTILIZATIONS {
            // The size does not depend on the scale: all jobs have to fit beside the aged files.
            let job = RandomAccessJobs {
                count: JOBS,
                len: JOB_BYTES * (self.size >> 20) / (PAPER_BYTES >> 20),
            };
            let name = format!("figure 8: random writes and reads, {full}% full");
            figures.push((name, full, Load::Jobs(job)));
        }
        figures.retain(|(name, ..)| name.contains(&self.only));
        figures
    }

    fn record(&self, filesystem: &Filesystem, full: u8, load: &Load) -> Result<RecordedRequests> {
        let lab = std::env::current_exe().context("this program's own path")?;
        let disk = Disk::start(&lab, &DiskRequest { profile: "fast12", size: self.size })?;
        filesystem.make(disk.device())?;
        let buffer = format!("write_buffer={}", WRITE_BACK_BYTES / u64::from(self.scale));
        let options: &[&str] = match filesystem {
            Filesystem::Sfs { .. } => &[&buffer],
            _ => &[],
        };
        let mounted = filesystem.mount_with(options, disk.device(), disk.folder())?;
        age(mounted.dir(), full)?;
        let from = disk.status()?.recorded;
        match load {
            Load::Postmark(postmark) => postmark.run(mounted.dir(), &disk)?,
            Load::Jobs(job) => job.run(mounted.dir(), &disk)?,
        }
        mounted.unmount()?;
        let trace = disk.finish()?;
        let to = trace.records.len() as u64;
        Ok(RecordedRequests::of(trace, from, to))
    }

    fn outcome(
        &self,
        filesystem: &Filesystem,
        models: &[SchemeModel],
        full: u8,
        load: &Load,
    ) -> Result<SchemeRun> {
        let recording = self.record(filesystem, full, load)?;
        let counted = BlockTrace { records: recording.counted().to_vec() };
        let mtron = self.profile("mtron", Layer::Fast { log_blocks: 8 })?;
        let logical_block = mtron.geometry.cluster_size();
        let (mut writes, mut reads) = (Vec::new(), Responses::default());
        let mut on = Vec::new();
        for model in models {
            let is_mtron = model.name == "mtron, hybrid";
            on.push(recording.on_each(
                &model.config,
                |request, completion| match request.kind {
                    RequestKind::Write if is_mtron => writes.push(completion.service_ns() / 1000),
                    RequestKind::Read if is_mtron => reads.add(completion),
                    _ => {}
                },
            )?);
        }
        Ok(SchemeRun {
            filesystem: filesystem.name(),
            statistics: TraceStatistics::of(&counted, logical_block, Syncs::Flushes),
            on,
            reads,
            classes: ResponseClasses::of(&writes),
        })
    }
}

/// Fills the filesystem, and deletes the same random files each time.
fn age(dir: &Path, full: u8) -> Result<()> {
    if full > 0 {
        let utilization = f64::from(full) / 100.0;
        let ageing = Ageing { seed: 1, smallest: 1 << 10, largest: 16 << 20, utilization };
        ageing.run(dir, &mut |_| ()).context("ageing")?;
    }
    Ok(())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Err(error) = need_disks().and(Postmark::need()) {
        output::complain(format_args!("skipped: {error:#}"));
        return Ok(());
    }
    let segment_size = arguments.profile("mtron", Layer::GREEDY)?.geometry.cluster_size();
    let (filesystems, models) = (arguments.filesystems(segment_size), arguments.models()?);
    let figures = arguments.figures();
    let total = (figures.len() * filesystems.len()) as u64;
    let (mut done, mut text, mut rows) = (0, String::new(), Vec::new());
    let (mut class_text, mut class_series) = (String::new(), Vec::new());
    let mut figure_series: Vec<(&str, Vec<Series>)> =
        AGED.map(|(name, _)| (name, Vec::new())).into();
    with_bar(|progress| {
        for (name, full, load) in &figures {
            let mut runs = Vec::new();
            for filesystem in &filesystems {
                match arguments.outcome(filesystem, &models, *full, load) {
                    Ok(run) => runs.push(run),
                    Err(error) if error.is::<Interrupted>() => return Err(error),
                    Err(error) => {
                        output::complain(format_args!("{name} on {}: {error:#}", filesystem.name()))
                    }
                }
                done += 1;
                progress(done, total);
            }
            text += &format!("{}\n", by_model(name, &models, &runs));
            rows.push(summary_row(name, &filesystems, &runs));
            if matches!(load, Load::Jobs(_)) {
                let rows: Vec<ResponseRow> = runs.iter().map(SchemeRun::responses).collect();
                class_text += &format!("{}\n", response_classes::text(*full, &rows));
                class_series = response_classes::series(&rows);
            }
            if let Some((_, curves)) =
                figure_series.iter_mut().find(|(figure, _)| name.starts_with(figure))
            {
                for run in &runs {
                    let seconds = run.on[MTRON].elapsed_ns as f64 / 1e9;
                    Series::add(curves, &run.filesystem, (f64::from(*full), seconds));
                }
            }
        }
        anyhow::Ok(())
    })?;
    let text = format!(
        "The loads have {} times fewer files, transactions and bytes than in the paper. The device has {}, with erase \
         blocks of a quarter of the real size ({} for Mtron, also the segment size of SFS). R and f are for Mtron. \
         Times are those of the model, with flash write amplification in parentheses.\n\n{text}",
        arguments.scale,
        Human(arguments.size),
        Human(segment_size),
    );
    let mut heading = vec!["Mtron, hybrid: s (f)".to_owned()];
    heading.extend(filesystems.iter().map(Filesystem::name));
    let summary = table(&heading, &rows);
    output::print(format_args!("{text}{class_text}{summary}"))?;
    let Some(docs) = &arguments.docs else { return Ok(()) };
    let document = Document::flash(docs);
    if !class_series.is_empty() {
        document.figure("fast09-figure9", &class_series)?;
        document.section("fast09-figure9", &class_text)?;
    }
    if !arguments.only.is_empty() {
        // The tables of the other figures stay.
        return Ok(());
    }
    Document::new(docs).section("fast09-schemes", &summary)?;
    for (figure, curves) in &figure_series {
        let number = figure.chars().filter(char::is_ascii_digit).collect::<String>();
        document.figure(&format!("fast09-figure{number}"), curves)?;
    }
    document.section("fast09-schemes", &text)
}

/// Returns the table of a load: every filesystem on every model.
fn by_model(name: &str, models: &[SchemeModel], runs: &[SchemeRun]) -> String {
    let mut heading = [name, "written, MiB", "read, MiB", "R", "f"].map(str::to_owned).to_vec();
    heading.extend(models.iter().map(|model| format!("{}, s", model.name)));
    let row = |run: &SchemeRun| {
        let s = &run.statistics;
        let mut row = vec![
            run.filesystem.clone(),
            (s.written_bytes >> 20).to_string(),
            (s.read_bytes >> 20).to_string(),
            format!("{:.0}", s.sync_blocks),
            format!("{:.3}", s.focal_factor),
        ];
        row.extend(run.on.iter().map(|on| {
            format!("{:.1} ({:.2})", on.elapsed_ns as f64 / 1e9, on.flash_amplification)
        }));
        row
    };
    table(&heading, &runs.iter().map(row).collect::<Vec<_>>())
}

/// Returns the row of a load: time on Mtron's hybrid device, and the focal factor, of every
/// filesystem.
fn summary_row(name: &str, filesystems: &[Filesystem], runs: &[SchemeRun]) -> Vec<String> {
    let cell = |filesystem: &Filesystem| {
        let run = runs.iter().find(|run| run.filesystem == filesystem.name());
        let shown = |run: &SchemeRun| {
            let seconds = run.on[MTRON].elapsed_ns as f64 / 1e9;
            format!("{seconds:.1} ({:.3})", run.statistics.focal_factor)
        };
        run.map_or(String::new(), shown)
    };
    std::iter::once(name.to_owned()).chain(filesystems.iter().map(cell)).collect()
}
