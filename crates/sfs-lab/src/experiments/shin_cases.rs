//! `sfs-lab reproduce shin-cases`: the case studies of About SSD (Shin 2008): options of ext4, btrfs and XFS, partitions
//! at sector 63, and command queues.
//!
//! Each filesystem runs once under each workload of Postmark. The recorded requests are replayed on a model twice, from
//! an aligned sector and from sector 63. The queues are measured without a filesystem.

mod cases;
mod queue;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_lab::block_trace::{BlockTrace, Syncs, TraceStatistics};
use sfs_lab::flash::{ModelOutcome, RecordedRequests, scaled};
use sfs_lab::host::{Disk, DiskRequest, Interrupted, Postmark, need_disks};
use sfs_lab::report::{Document, MedianRange, Series, table, with_bar};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::SsdProfile;

use super::postmark::{ERASE_BLOCK_DIVISOR, WORKLOADS, WRITE_BACK_BYTES};
use cases::{CASES, Case, NOT_RUN};

/// First sectors of the partition in bytes: LBA 16384, as on the slides, and LBA 63, as partitions were made then.
const ALIGNED: u64 = 16_384 * 512;
const UNALIGNED: u64 = 63 * 512;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Divisor of the numbers of files, transactions, and bytes of dirty memory.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// Number of runs of each case; the kernel writes back at other times in each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Size of the partition.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    size: u64,
    /// Folder of lab/flash.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// The outcome of a case under a workload.
struct CaseOutcome {
    statistics: TraceStatistics,
    aligned: ModelOutcome,
    unaligned: ModelOutcome,
}

/// A line of the CSV.
#[derive(Serialize)]
struct CsvRow<'a> {
    case: &'a str,
    workload: &'a str,
    run: usize,
    written_bytes: u64,
    mean_write_kib: f64,
    segmented_sequentiality: f64,
    flushes: u64,
    aligned_seconds: f64,
    aligned_flash_amplification: f64,
    unaligned_seconds: f64,
    unaligned_flash_amplification: f64,
}

impl Arguments {
    /// Returns the outcomes of all runs, the fastest first.
    fn outcomes(&self, case: &Case, postmark: &Postmark) -> Result<Vec<CaseOutcome>> {
        let runs = (0..self.runs).map(|_| self.outcome(case, postmark));
        let mut outcomes = runs.collect::<Result<Vec<_>>>()?;
        outcomes.sort_by_key(|outcome| outcome.aligned.elapsed_ns);
        Ok(outcomes)
    }

    fn outcome(&self, case: &Case, postmark: &Postmark) -> Result<CaseOutcome> {
        let lab = std::env::current_exe().context("this program's own path")?;
        let disk = Disk::start(&lab, &DiskRequest { profile: "fast12", size: self.size })?;
        case.filesystem.make(disk.device())?;
        let mounted = case.filesystem.mount_with(case.options, disk.device(), disk.folder())?;
        let from = disk.status()?.recorded;
        postmark.run(mounted.dir(), &disk)?;
        mounted.unmount()?;
        let trace = disk.finish()?;
        let counted = BlockTrace { records: trace.records[from as usize..].to_vec() };
        Ok(CaseOutcome {
            statistics: TraceStatistics::of(&counted, self.size, Syncs::Flushes),
            aligned: self.replayed(&trace, from, ALIGNED)?,
            unaligned: self.replayed(&trace, from, UNALIGNED)?,
        })
    }

    /// Replays a trace on a partition that begins at byte `first` of the device.
    fn replayed(&self, trace: &BlockTrace, from: u64, first: u64) -> Result<ModelOutcome> {
        let mut moved = trace.clone();
        moved.records.iter_mut().for_each(|record| record.offset += first);
        let profile = SsdProfile::by_name("mtron").context("a profile")?;
        let config = scaled(profile, self.size + ALIGNED, ERASE_BLOCK_DIVISOR).config();
        let to = moved.records.len() as u64;
        RecordedRequests::of(moved, from, to).on(&config)
    }

    fn workloads(&self) -> impl Iterator<Item = (&'static str, Postmark)> {
        WORKLOADS.into_iter().map(|(name, files, sizes, transactions)| {
            let postmark = Postmark {
                files: (files / self.scale).max(1),
                sizes,
                transactions: (transactions / self.scale).max(1),
                folders: 0,
                sync_bytes: WRITE_BACK_BYTES / u64::from(self.scale),
            };
            (name, postmark)
        })
    }
}

/// The outcomes of a case, for each workload those of all runs, or the reason why it did not run.
type CaseOutcomes = Result<Vec<Vec<CaseOutcome>>, String>;

/// Returns the run with the median of the times.
fn median(runs: &[CaseOutcome]) -> &CaseOutcome {
    &runs[(runs.len() - 1) / 2]
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let document = arguments.docs.as_deref().map(Document::flash);
    let queue = queue::text(document.as_ref())?;
    if let Err(error) = need_disks().and(Postmark::need()) {
        output::complain(format_args!("skipped: {error:#}"));
        output::print(&queue)?;
        return Ok(());
    }
    let total = (CASES.len() * WORKLOADS.len()) as u64;
    let mut outcomes: Vec<CaseOutcomes> = Vec::new();
    with_bar(|progress| {
        for (no, case) in (0..).zip(&CASES) {
            let mut found = Vec::new();
            let mut reason =
                case.filesystem.missing().map(|name| format!("{name} is not installed"));
            for (workload_no, (_, postmark)) in (1..).zip(arguments.workloads()) {
                if reason.is_none() {
                    match arguments.outcomes(case, &postmark) {
                        Ok(outcome) => found.push(outcome),
                        Err(error) if error.is::<Interrupted>() => return Err(error),
                        Err(error) => reason = Some(format!("{error:#}")),
                    }
                }
                progress(no * WORKLOADS.len() as u64 + workload_no, total);
            }
            outcomes.push(reason.map_or(Ok(found), Err));
        }
        anyhow::Ok(())
    })?;
    let text = format!("{}\n{queue}", by_case(arguments, &outcomes));
    output::print(&text)?;
    let Some(document) = document else { return Ok(()) };
    document.file("shin-cases.csv", &csv(&outcomes)?)?;
    document.figure("shin-alignment", &alignment_series(&outcomes))?;
    document.section("shin-cases", &text)
}

/// Returns the tables of the cases: device time, sequentiality, and the price of sector 63.
fn by_case(arguments: &Arguments, outcomes: &[CaseOutcomes]) -> String {
    let seconds = |on: &ModelOutcome| on.elapsed_ns as f64 / 1e9;
    let time = rows(outcomes, |runs| {
        let times = runs.iter().map(|outcome| seconds(&outcome.aligned)).collect();
        let flash_amplification = median(runs).aligned.flash_amplification;
        format!("{}, WA {flash_amplification:.2}", MedianRange::of(times).text(2))
    });
    let sequentiality = rows(outcomes, |runs| {
        let s = &median(runs).statistics;
        format!(
            "{:.3} ({:.0} KiB, {} flushes)",
            s.segmented_sequentiality,
            s.write_kib(),
            s.flushes
        )
    });
    let price = rows(outcomes, |runs| {
        let flash_amplification = median(runs).unaligned.flash_amplification;
        format!("{}, WA {flash_amplification:.2}", price(runs).text(2))
    });
    let heading = |what: &str| -> Vec<String> {
        let names = WORKLOADS.iter().map(|(name, ..)| *name);
        std::iter::once(what).chain(names).map(str::to_owned).collect()
    };
    format!(
        "The loads have {} times fewer files and transactions than on the slides, on a partition of {} of Mtron's flash, full before. \
         Medians of {} runs, and the least and greatest; the other figures are those of the median run.\n\n{}\n{}\n{}",
        arguments.scale,
        Human(arguments.size),
        arguments.runs,
        table(&heading("device time, s"), &time),
        table(&heading("segmented sequentiality (mean write, flushes)"), &sequentiality),
        table(&heading("time from sector 63 over aligned"), &price),
    )
}

/// Returns a row for each case, and for each that this kernel does not have.
fn rows(outcomes: &[CaseOutcomes], cell: impl Fn(&[CaseOutcome]) -> String) -> Vec<Vec<String>> {
    let refused = |name: &str, reason: &str| {
        let mut row = vec![name.to_owned(), reason.to_owned()];
        row.resize(WORKLOADS.len() + 1, String::new());
        row
    };
    let row = |(case, outcome): (&Case, &CaseOutcomes)| match outcome {
        Ok(found) => std::iter::once(case.name.to_owned())
            .chain(found.iter().map(|runs| cell(runs)))
            .collect(),
        Err(reason) => refused(case.name, reason),
    };
    let not_run = NOT_RUN.iter().map(|(name, reason)| refused(name, reason));
    CASES.iter().zip(outcomes).map(row).chain(not_run).collect()
}

/// Returns the time from sector 63 over the aligned time.
fn price(runs: &[CaseOutcome]) -> MedianRange {
    let price = |CaseOutcome { aligned, unaligned, .. }: &CaseOutcome| {
        unaligned.elapsed_ns as f64 / aligned.elapsed_ns as f64
    };
    MedianRange::of(runs.iter().map(price).collect())
}

/// Returns the same by the number of the workload, for one case of each filesystem.
fn alignment_series(outcomes: &[CaseOutcomes]) -> Vec<Series> {
    let mut series = Vec::new();
    for (case, found) in CASES.iter().zip(outcomes).filter(|(case, _)| case.is_drawn) {
        let name = case.name.split(',').next().unwrap_or(case.name);
        for (no, runs) in found.iter().flatten().enumerate() {
            Series::add(&mut series, name, (no as f64, price(runs).median()));
        }
    }
    series
}

fn csv(outcomes: &[CaseOutcomes]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (case, found) in CASES.iter().zip(outcomes) {
        let workloads = WORKLOADS.iter().zip(found.iter().flatten());
        let runs = workloads.flat_map(|((workload, ..), runs)| {
            runs.iter().enumerate().map(move |(no, outcome)| (*workload, no + 1, outcome))
        });
        for (workload, run, CaseOutcome { statistics, aligned, unaligned }) in runs {
            writer.serialize(CsvRow {
                case: case.name,
                workload,
                run,
                written_bytes: statistics.written_bytes,
                mean_write_kib: statistics.write_kib(),
                segmented_sequentiality: statistics.segmented_sequentiality,
                flushes: statistics.flushes,
                aligned_seconds: aligned.elapsed_ns as f64 / 1e9,
                aligned_flash_amplification: aligned.flash_amplification,
                unaligned_seconds: unaligned.elapsed_ns as f64 / 1e9,
                unaligned_flash_amplification: unaligned.flash_amplification,
            })?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use sfs_lab::block_trace::TraceRecord;
    use sfs_ssd::RequestKind;

    use super::*;

    #[test]
    fn every_case_has_a_row_with_as_many_cells_as_the_heading() {
        let outcomes: Vec<CaseOutcomes> =
            CASES.iter().map(|_| Err("a reason".to_owned())).collect();
        let rows = rows(&outcomes, |_| String::new());
        assert_eq!(rows.len(), CASES.len() + NOT_RUN.len());
        assert!(rows.iter().all(|row| row.len() == 1 + WORKLOADS.len() && !row[1].is_empty()));
    }

    #[test]
    fn a_write_of_a_page_from_sector_63_programs_two_pages() {
        let arguments = Arguments { scale: 20, runs: 1, size: 64 << 20, docs: None };
        let write = |offset| TraceRecord {
            at_us: 0,
            kind: RequestKind::Write,
            offset,
            len: 4096,
            stream: 0,
        };
        let trace = BlockTrace { records: vec![write(4 << 20), write(8 << 20)] };
        let programmed = |first| {
            let outcome = arguments.replayed(&trace, 0, first).expect("a model");
            outcome.counters.host_pages_written
        };
        assert_eq!((programmed(ALIGNED), programmed(UNALIGNED)), (2, 4));
    }
}
