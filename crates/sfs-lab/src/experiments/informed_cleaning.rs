//! Table 5 of Block Management in Solid-State Devices: cleaning with free-page information.
//!
//! Postmark runs on ext3 with discards. Two models serve the same requests; one of them ignores discards. The kernel writes
//! back at other times in every run, so the table has the median of several runs, and the least and greatest.

use anyhow::{Context, Result};
use sfs_lab::block_trace::BlockTrace;
use sfs_lab::host::{Disk, DiskRequest, Filesystem, Postmark, need_disks};
use sfs_lab::report::{MedianRange, table};
use sfs_mkfs::output;
use sfs_ssd::{RequestQueue, Ssd, SsdConfig, SsdCounters, SsdProfile};

/// Size of the device in bytes: a thirty-second of the paper's 8 GB.
const SIZE: u64 = 256 << 20;

/// Number of bytes that are written between two syncs.
const SYNC_BYTES: u64 = 16 << 20;

/// Number of transactions, and the paper's pages moved and cleaning time, relative to cleaning
/// without information.
const TABLE: [(u32, f64, f64); 4] =
    [(5000, 0.31, 0.69), (6000, 0.25, 0.60), (7000, 0.35, 0.63), (8000, 0.50, 0.69)];

/// Returns table 5. If the table cannot be made, reports the reason on standard error and returns
/// an empty text.
pub(crate) fn table5(runs: u32) -> Result<String> {
    let filesystem = Filesystem::Ext3;
    let missing = filesystem.missing().map(|name| anyhow::anyhow!("{name} is not installed"));
    if let Err(error) = need_disks().and(Postmark::need()).and(missing.map_or(Ok(()), Err)) {
        output::complain(format_args!("table 5 skipped: {error:#}"));
        return Ok(String::new());
    }
    let mut rows = Vec::new();
    for (transactions, pages, time) in TABLE {
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..runs {
            let trace = record(&filesystem, transactions)?;
            let [informed, uninformed] = [clean(&trace, true)?, clean(&trace, false)?];
            let ratio = |informed: u64, uninformed: u64| informed as f64 / uninformed.max(1) as f64;
            found[0].push(ratio(informed.pages_moved, uninformed.pages_moved));
            found[1].push(ratio(informed.moving_ns, uninformed.moving_ns));
            found[2].push(uninformed.pages_moved as f64);
        }
        let [moved, cleaning, without] = found.map(MedianRange::of);
        rows.push(vec![
            transactions.to_string(),
            format!("{pages:.2}"),
            moved.text(2),
            format!("{time:.2}"),
            cleaning.text(2),
            without.text(0),
        ]);
    }
    let heading = [
        "table 5: transactions",
        "relative pages moved: paper",
        "ours",
        "relative cleaning time: paper",
        "ours",
        "pages moved without information",
    ];
    Ok(format!(
        "Postmark, 900 files of 100 to 300 KB to begin with, on ext3 with discards, 256 MiB; page-mapped, blocks of \
         512 KiB, 10% to spare; medians of {runs} runs, and the least and greatest.\n\n{}\n",
        table(&heading.map(str::to_owned), &rows)
    ))
}

/// Returns the requests of Postmark with this number of transactions.
fn record(filesystem: &Filesystem, transactions: u32) -> Result<BlockTrace> {
    let lab = std::env::current_exe().context("this program's own path")?;
    let disk = Disk::start(&lab, &DiskRequest { profile: "fast12", size: SIZE })?;
    filesystem.make(disk.device())?;
    let mounted = filesystem.mount_with(&["discard"], disk.device(), disk.folder())?;
    let sizes = (100_000, 300_000);
    Postmark { files: 900, sizes, transactions, folders: 0, sync_bytes: SYNC_BYTES }
        .run(mounted.dir(), &disk)?;
    mounted.unmount()?;
    disk.finish()
}

/// Returns the counters of a model that serves the trace.
fn clean(trace: &BlockTrace, informed: bool) -> Result<SsdCounters> {
    let profile = SsdProfile::by_name("fast12").context("a profile")?.with_capacity(SIZE);
    let config = SsdConfig { informed, ..profile.config() };
    let mut ssd = Ssd::new(&config).context("too few spare blocks")?;
    let requests = trace.records.iter().map(|record| record.request());
    RequestQueue::SYNCHRONOUS.run(&mut ssd, 0, requests, |_, _| {});
    Ok(*ssd.counters())
}
