//! `sfs-lab reproduce postmark`: Postmark over the kernel's filesystems and SFS (About SSD, Shin 2008).
//!
//! The requests are recorded below each filesystem, and replayed on a model for their time. The
//! tables have no figures of the slides, which show their results only as pictures.

mod pattern;
mod recorded;

use std::path::PathBuf;

use anyhow::{Context, Result};
use sfs_lab::block_trace::{BlockTrace, Syncs, TraceFolder, TraceStatistics};
use sfs_lab::flash::{RecordedRequests, scaled};
use sfs_lab::host::{Disk, DiskRequest, Filesystem, Postmark, need_disks};
use sfs_lab::report::{Document, Series, table, with_bar};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::{SsdConfig, SsdProfile};

use super::installed::installed;

/// Name, number of files, their sizes in bytes, and number of transactions (slide "Test environment
/// (2/2)").
pub(super) const WORKLOADS: [(&str, u32, (u64, u64), u32); 4] = [
    ("SS", 10_000, (9_216, 15_360), 100_000),
    ("SL", 100_000, (9_216, 15_360), 100_000),
    ("LS", 1_000, (104_858, 3_145_728), 10_000),
    ("LL", 4_250, (104_858, 3_145_728), 10_000),
];

/// Number of bytes of dirty memory at which the machine of the slides writes back: a tenth of its 1
/// GiB.
pub(super) const WRITE_BACK_BYTES: u64 = (1 << 30) / 10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Divisor of the numbers of files, transactions, and bytes of dirty memory.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// Size of the device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Size of a segment of SFS; by default the erase block of mtron, scaled.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1M")]
    segment_size: u64,
    /// Grouping policy of SFS.
    #[arg(long, default_value = "sfs")]
    policy: String,
    #[command(flatten)]
    traces: TraceFolder,
    /// Folder of lab/flash.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// The outcome of one filesystem under one workload.
struct PostmarkOutcome {
    /// The requests from the first that Postmark made.
    trace: BlockTrace,
    seconds: f64,
    statistics: TraceStatistics,
    flash_amplification: f64,
}

/// Divisor of the size of erase blocks.
pub(super) const ERASE_BLOCK_DIVISOR: u32 = 4;

impl Arguments {
    fn filesystems(&self) -> Vec<Filesystem> {
        let sfs = Filesystem::Sfs {
            policy: self.policy.clone(),
            victims: None,
            segment_size: self.segment_size,
            layout: "log",
        };
        let theirs = [
            Filesystem::Ext2,
            Filesystem::Ext3,
            Filesystem::Ext4,
            Filesystem::Xfs,
            Filesystem::Btrfs,
        ];
        installed(std::iter::once(sfs).chain(theirs))
    }

    fn model(&self) -> Result<SsdConfig> {
        let profile = SsdProfile::by_name("mtron").context("a profile")?;
        Ok(scaled(profile, self.size, ERASE_BLOCK_DIVISOR).config())
    }

    fn outcome(&self, filesystem: &Filesystem, postmark: &Postmark) -> Result<PostmarkOutcome> {
        let lab = std::env::current_exe().context("this program's own path")?;
        let disk = Disk::start(&lab, &DiskRequest { profile: "fast12", size: self.size })?;
        filesystem.make(disk.device())?;
        // A sync of the whole filesystem does not reach a FUSE daemon, so its write buffer is
        // bounded instead.
        let buffer = format!("write_buffer={}", postmark.sync_bytes);
        let options: &[&str] = match filesystem {
            Filesystem::Sfs { .. } => &[&buffer],
            _ => &[],
        };
        let mounted = filesystem.mount_with(options, disk.device(), disk.folder())?;
        let from = disk.status()?.recorded;
        postmark.run(mounted.dir(), &disk)?;
        mounted.unmount()?;
        let trace = disk.finish()?;
        let to = trace.records.len() as u64;
        let counted = BlockTrace { records: trace.records[from as usize..].to_vec() };
        let statistics = TraceStatistics::of(&counted, self.segment_size, Syncs::Flushes);
        let on = RecordedRequests::of(trace, from, to).on(&self.model()?)?;
        Ok(PostmarkOutcome {
            seconds: on.elapsed_ns as f64 / 1e9,
            trace: counted,
            statistics,
            flash_amplification: on.flash_amplification,
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Err(error) = need_disks().and(Postmark::need()) {
        output::complain(format_args!("skipped: {error:#}"));
        return Ok(());
    }
    let filesystems = arguments.filesystems();
    let document = arguments.docs.as_deref().map(Document::flash);
    let total = (WORKLOADS.len() * filesystems.len()) as u64;
    let mut done = 0;
    let (mut text, mut series) = (String::new(), Vec::<Series>::new());
    with_bar(|progress| {
        for (no, (name, files, sizes, transactions)) in WORKLOADS.into_iter().enumerate() {
            let postmark = Postmark {
                files: (files / arguments.scale).max(1),
                sizes,
                transactions: (transactions / arguments.scale).max(1),
                folders: 0,
                sync_bytes: WRITE_BACK_BYTES / u64::from(arguments.scale),
            };
            let mut rows = Vec::new();
            for filesystem in &filesystems {
                let outcome = arguments
                    .outcome(filesystem, &postmark)
                    .with_context(|| format!("{name} on {}", filesystem.name()))?;
                let point = (no as f64, outcome.statistics.segmented_sequentiality);
                Series::add(&mut series, &filesystem.name(), point);
                if let (Some(document), 0) = (&document, no) {
                    pattern::draw(document, &filesystem.name(), &outcome.trace)?;
                }
                rows.push(row(filesystem, &outcome));
                done += 1;
                progress(done, total);
            }
            let heading = [
                name,
                "device time, s",
                "written, MiB",
                "mean write, KiB",
                "segmented sequentiality",
                "flushes",
                "read, MiB",
                "flash WA",
            ];
            text += &format!("{}\n", table(&heading.map(str::to_owned), &rows));
        }
        anyhow::Ok(())
    })?;
    let model = arguments.model()?;
    let recorded = recorded::text(&arguments.traces, &model, arguments.segment_size)?;
    if let (Some(document), Some((_, trace))) = (&document, &recorded) {
        pattern::draw(document, "NILFS2", trace)?;
    }
    let recorded = recorded.map_or_else(String::new, |(text, _)| text);
    let text = format!(
        "The loads have {} times fewer files and transactions than on the slides. The device has {} of Mtron's flash, \
         full before, with erase blocks of {} (a quarter of the real size). The filesystem is synced after every {} \
         that Postmark writes; SFS has a write buffer of this size instead.\n\n{text}{recorded}",
        arguments.scale,
        Human(arguments.size),
        Human(model.geometry.cluster_size()),
        Human(WRITE_BACK_BYTES / u64::from(arguments.scale)),
    );
    output::print(&text)?;
    let Some(document) = document else { return Ok(()) };
    document.figure("postmark-sequentiality", &series)?;
    document.section("postmark", &text)
}

fn row(filesystem: &Filesystem, outcome: &PostmarkOutcome) -> Vec<String> {
    let s = &outcome.statistics;
    vec![
        filesystem.name(),
        format!("{:.2}", outcome.seconds),
        (s.written_bytes >> 20).to_string(),
        format!("{:.1}", s.write_kib()),
        format!("{:.3}", s.segmented_sequentiality),
        s.flushes.to_string(),
        (s.read_bytes >> 20).to_string(),
        format!("{:.2}", outcome.flash_amplification),
    ]
}
