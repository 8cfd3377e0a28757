//! `sfs-lab reproduce kernel-filesystems`: the kernel's filesystems and SFS under one overwriting job, on two
//! flash models.
//!
//! The requests of the kernel's filesystems come from the traces `peers/`. Without these traces the
//! experiment is skipped, with a message.

use std::path::PathBuf;

use anyhow::{Context, Result};
use sfs_core::request::VolumeOptions;
use sfs_lab::flash::{JobOnFlash, RecordedFilesystem, pages, sfs};
use sfs_lab::report::{Document, run_parallel, table};
use sfs_mkfs::{output, parse_size};
use sfs_ssd::ftl::{Collection, Isolation, Layer};
use sfs_ssd::{SsdConfig, SsdProfile};

use sfs_lab::block_trace::TraceFolder;

/// Names of the recorded filesystems.
const RECORDED: [&str; 8] =
    ["f2fs-lfs", "f2fs-opu", "f2fs-default", "nilfs2", "ext4", "xfs", "btrfs-nodatacow", "btrfs"];

/// Size of the device, in bytes.
const CAPACITY: u64 = 1 << 30;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traces: TraceFolder,
    /// Number of random log blocks of the FAST model.
    #[arg(long, default_value_t = 64)]
    log_blocks: u32,
    /// Number of streams that the page-mapped model separates; only SFS names streams.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    streams: u8,
    /// Size of a segment of SFS; by default the choice of sfs-mkfs for 1 GiB.
    #[arg(long, value_parser = parse_size, default_value = "4M")]
    segment_size: u64,
    /// Grouping policies of SFS, each with its default victim policy.
    #[arg(long, value_delimiter = ',', default_value = "sfs-fast12,sfs,sfs-log,sepbit")]
    policies: Vec<String>,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

impl Arguments {
    fn models(&self) -> Result<[SsdConfig; 2]> {
        let profile = SsdProfile::by_name("fast12").context("the profile of the SFS paper")?;
        let page_mapped = Layer::PageMapped {
            collection: Collection::Greedy,
            streams: self.streams,
            isolation: Isolation::Persistent,
        };
        let layers = [page_mapped, Layer::Fast { log_blocks: self.log_blocks }];
        let model = |layer| profile.clone().with_layer(layer).with_capacity(CAPACITY).config();
        Ok(layers.map(model))
    }
}

/// A filesystem of the table.
enum ComparedFilesystem<'a> {
    /// SFS with a grouping policy.
    Sfs(&'a str),
    /// A recorded filesystem of the kernel.
    Recorded(&'a str),
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Some(traces) = arguments.traces.find("peers") else { return Ok(()) };
    let models = arguments.models()?;
    let pages = pages(&traces)?;
    let job_bytes = pages.len() as u64 * 4096;
    let segment_blocks = arguments.segment_size / 4096;
    let ours = arguments.policies.iter().map(|policy| ComparedFilesystem::Sfs(policy));
    let subjects: Vec<ComparedFilesystem<'_>> =
        ours.chain(RECORDED.map(ComparedFilesystem::Recorded)).collect();
    let rows = run_parallel(&subjects, |subject| match subject {
        ComparedFilesystem::Sfs(policy) => {
            let options =
                || VolumeOptions { grouping: (*policy).to_owned(), ..VolumeOptions::default() };
            let outcomes = both(&models, |config| sfs(config, options(), segment_blocks, &pages))?;
            Ok(row(&format!("SFS, {policy}"), &outcomes))
        }
        ComparedFilesystem::Recorded(name) => {
            let recorded = RecordedFilesystem::open(&traces, name, job_bytes)?;
            Ok(row(name, &both(&models, |config| recorded.replay(config))?))
        }
    })?;
    let text = format!(
        "Erases and seconds of device time for each GiB that the user wrote. Flash as in the SFS paper: blocks of \
         512 KiB, 10% to spare, a device of 1 GiB; FAST with {} random log blocks; one element, one request at a \
         time.\n\n{}",
        arguments.log_blocks,
        table(&heading(), &rows)
    );
    output::print(&text)?;
    match &arguments.docs {
        Some(docs) => Document::new(docs).section("kernel-filesystems", &text),
        None => Ok(()),
    }
}

fn both(
    models: &[SsdConfig; 2],
    run: impl Fn(&SsdConfig) -> Result<JobOnFlash>,
) -> Result<[JobOnFlash; 2]> {
    Ok([run(&models[0])?, run(&models[1])?])
}

fn heading() -> Vec<String> {
    let names = ["filesystem", "user MiB", "write KiB", "device/user"];
    let of = |model: &str| {
        ["flash WA", "total WA", "erases", "seconds"].map(|name| format!("{model}: {name}"))
    };
    let names = names.map(str::to_owned).into_iter();
    names.chain(of("page-mapped")).chain(of("FAST")).collect()
}

fn row(name: &str, outcomes: &[JobOnFlash; 2]) -> Vec<String> {
    let first = &outcomes[0];
    let counters = &first.counters;
    let write_kib =
        counters.host_bytes_written as f64 / counters.write_requests.max(1) as f64 / 1024.0;
    let mut cells = vec![
        name.to_owned(),
        (first.user_bytes >> 20).to_string(),
        format!("{write_kib:.1}"),
        format!("{:.3}", first.log_amplification()),
    ];
    for outcome in outcomes {
        cells.push(format!("{:.3}", outcome.flash_amplification));
        cells.push(format!("{:.2}", outcome.total_amplification()));
        cells.push(format!("{:.0}", outcome.per_gib(outcome.counters.erases)));
        cells.push(format!("{:.0}", outcome.per_gib(outcome.elapsed_ns) / 1e9));
    }
    cells
}
