//! `sfs-lab reproduce file-runs`: the runs in which a file lies on the device after one overwriting job, on F2FS, NILFS2 and SFS.
//!
//! F2FS and NILFS2 by their traces `peers/`. Without these traces the experiment is skipped, with a message.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use sfs_core::request::VolumeOptions;
use sfs_lab::block_trace::{BlockTrace, TraceFolder};
use sfs_lab::flash::{is_in_place, pages, runs_by_order, runs_of_trace, sfs_reading};
use sfs_lab::report::{Document, table};
use sfs_mkfs::{output, parse_size};
use sfs_ssd::SsdProfile;

/// Size of the device, in bytes.
const CAPACITY: u64 = 1 << 30;

/// Number of pages that NILFS2 had overwritten when its trace ended: 640 MiB.
const NILFS2_PAGES: usize = (640 << 20) / 4096;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traces: TraceFolder,
    /// Size of a segment of SFS; by default the choice of sfs-mkfs for 1 GiB.
    #[arg(long, value_parser = parse_size, default_value = "4M")]
    segment_size: u64,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Some(traces) = arguments.traces.find("peers") else { return Ok(()) };
    let pages = pages(&traces)?;
    let trace = |name: &str| BlockTrace::open(&traces.join(format!("{name}.rand.csv.zst")));
    let in_place = is_in_place(&trace("f2fs-default")?, &pages)?;
    ensure!(in_place, "f2fs-default has written a page to two places");
    let out_of_place = runs_of_trace(&trace("f2fs-opu")?, &pages)?;
    let until_nilfs2_ended = &pages[..NILFS2_PAGES.min(pages.len())];
    let sfs = |pages: &[u32]| {
        let profile = SsdProfile::by_name("fast12").context("the profile of the SFS paper")?;
        let config = profile.with_capacity(CAPACITY).config();
        sfs_reading(&config, VolumeOptions::default(), arguments.segment_size / 4096, pages)
    };
    let (whole, early) = (sfs(&pages)?, sfs(until_nilfs2_ended)?);
    let by_order = "order of the writes";
    let row = |name: &str, mib: usize, from: &str, runs: u64, requests: Option<u64>| {
        let requests = requests.map_or_else(String::new, |requests| requests.to_string());
        vec![name.to_owned(), mib.to_string(), from.to_owned(), runs.to_string(), requests]
    };
    let mib = |pages: &[u32]| (pages.len() * 4096) >> 20;
    let (all, part) = (mib(&pages), mib(until_nilfs2_ended));
    let rows = [
        row("F2FS, default (in place)", all, "trace", 1, None),
        row("F2FS, out of place", all, "trace", out_of_place, None),
        row("F2FS, mode=lfs", all, by_order, runs_by_order(&pages), None),
        row("SFS", all, "its tree", whole.runs, Some(whole.requests)),
        row("NILFS2", part, by_order, runs_by_order(until_nilfs2_ended), None),
        row("SFS", part, "its tree", early.runs, Some(early.requests)),
    ];
    let heading = ["filesystem", "user MiB", "from", "runs", "requests, windows of 4 MiB"];
    let text = format!(
        "Runs of a file of 768 MiB after the job. \"From the order of the writes\" takes each fsync for one run, and cleaning for \
         leaving runs as they are.\n\n{}",
        table(&heading.map(str::to_owned), &rows)
    );
    output::print(&text)?;
    match &arguments.docs {
        Some(docs) => Document::new(docs).section("file-runs", &text),
        None => Ok(()),
    }
}
