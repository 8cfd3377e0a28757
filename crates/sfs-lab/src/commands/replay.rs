//! `sfs-lab replay`: prints statistics of a trace, and the cost of a replay on a model of flash; or repeats the load of a
//! volume in a directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use sfs_lab::block_trace::{BlockTrace, Syncs, TraceRecord, TraceStatistics};
use sfs_lab::flash::{FlashOutcome, FlashReplay};
use sfs_lab::request_load::RequestLoad;
use sfs_lab::request_replay::{self, ReplayCounts};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{Arrivals, RequestQueue, Scheduling, SsdProfile, profiles};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Trace: the requests of a volume (sfs-ctl trace), CSV (us,op,offset,len or op,offset,len), blkparse's text, fio's
    /// iolog, or system calls (Mobibench's text); plain or zstd.
    trace: PathBuf,
    /// Repeat the requests of a volume, or system calls, in this directory, of any mounted filesystem, instead of on a
    /// model: a file for each inode.
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "profile", "ftl", "size", "erased", "warm_up", "rounds", "depth", "swtf", "merging", "shift", "logical_block",
        "sync_writes", "statistics",
    ])]
    mount: Option<PathBuf>,
    /// Device: ssd-h, ssd-m, ssd-l, sandisk, samsung, mtron, sd, emmc, fast12.
    #[arg(long, default_value = "fast12")]
    profile: String,
    /// Translation layer: page-mapped[:STREAMS], page-mapped-fifo, fast[:LOG_BLOCKS],
    /// bast[:LOG_BLOCKS], superblock[:LOG_BLOCKS[:WIDTH]]; by default the profile's.
    #[arg(long)]
    ftl: Option<Layer>,
    /// Size of the device; by default the erase blocks that the trace touches.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Begin with an erased device instead of a full one.
    #[arg(long)]
    erased: bool,
    /// Number of replays of the whole trace before counting.
    #[arg(long, default_value_t = 0)]
    warm_up: u32,
    /// Number of replays of the whole trace that are counted.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Largest number of requests in flight.
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Send requests at the times of the trace instead of as soon as possible.
    #[arg(long)]
    timed: bool,
    /// Serve the queued request whose element is free first (shortest wait time first).
    #[arg(long)]
    swtf: bool,
    /// Merge queued writes that continue one another within a page.
    #[arg(long)]
    merging: bool,
    /// Number of bytes to subtract from every offset: 3584 aligns a partition that begins at sector
    /// 63.
    #[arg(long, default_value_t = 0)]
    shift: u64,
    /// Size of a logical block for the focal factor; by default the device's erase block.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    logical_block: Option<u64>,
    /// Number of writes that count as a sync, for a trace without flushes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    sync_writes: Option<u64>,
    /// Print only the statistics of the trace.
    #[arg(long)]
    statistics: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Output of the command.
#[derive(Serialize)]
struct ReplayReport {
    statistics: TraceStatistics,
    outcome: Option<FlashOutcome>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(directory) = &arguments.mount {
        return replay_in(arguments, directory);
    }
    let profile = SsdProfile::by_name(&arguments.profile).with_context(|| {
        let names: Vec<&str> = profiles().iter().map(|profile| profile.name).collect();
        format!("no profile {}: there are {}", arguments.profile, names.join(", "))
    })?;
    let erase_block = profile.geometry.cluster_size();
    let trace = shifted(BlockTrace::open(&arguments.trace)?, arguments.shift);
    let syncs = arguments.sync_writes.map_or(Syncs::Flushes, Syncs::EveryWrites);
    let logical_block = arguments.logical_block.unwrap_or(erase_block);
    ensure!(logical_block > 0, "--logical-block 0: a logical block has at least one byte");
    let statistics = TraceStatistics::of(&trace, logical_block, syncs);
    let outcome = match arguments.statistics {
        true => None,
        false => Some(replay(arguments, profile, &trace)?),
    };
    let report = ReplayReport { statistics, outcome };
    match arguments.json {
        true => output::print(format_args!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => output::print(report.text())?,
    }
    Ok(())
}

/// Repeats the requests of a volume in `directory`.
fn replay_in(arguments: &Arguments, directory: &Path) -> Result<()> {
    let load = RequestLoad::open(&arguments.trace)?;
    let counts = request_replay::replay(&load, directory, arguments.timed)?;
    if arguments.json {
        output::print(format_args!("{}\n", serde_json::to_string_pretty(&counts)?))?;
        return Ok(());
    }
    let ReplayCounts { written_bytes, read_bytes, syncs, deletions, secs } = counts;
    output::print(format_args!(
        "{} written, {} read, {syncs} syncs, {deletions} deletions in {secs:.1} s\n",
        Human(written_bytes),
        Human(read_bytes)
    ))?;
    Ok(())
}

fn shifted(trace: BlockTrace, shift: u64) -> BlockTrace {
    let shifted =
        |record: TraceRecord| TraceRecord { offset: record.offset.saturating_sub(shift), ..record };
    BlockTrace { records: trace.records.into_iter().map(shifted).collect() }
}

fn replay(arguments: &Arguments, profile: SsdProfile, trace: &BlockTrace) -> Result<FlashOutcome> {
    let erase_block = profile.geometry.cluster_size();
    let compact;
    let (trace, capacity) = match arguments.size {
        Some(size) => (trace, size),
        None => {
            compact = trace.compact(erase_block);
            (&compact, compact.end().next_multiple_of(erase_block))
        }
    };
    let layer = arguments.ftl.unwrap_or(profile.layer);
    let replay = FlashReplay {
        config: profile.with_layer(layer).with_capacity(capacity).config(),
        queue: RequestQueue {
            scheduling: if arguments.swtf { Scheduling::Swtf } else { Scheduling::Fcfs },
            depth: arguments.depth,
            arrivals: if arguments.timed { Arrivals::Timed } else { Arrivals::Eager },
            merging: arguments.merging,
        },
        filled: !arguments.erased,
        warm_up: arguments.warm_up,
        rounds: arguments.rounds,
    };
    replay.run(trace)
}

impl ReplayReport {
    fn text(&self) -> String {
        let s = &self.statistics;
        let mut text = format!(
            "requests      {} reads (mean {:.1} KiB), {} writes (mean {:.1} KiB), {} trims, {} flushes\n\
             written       {}, {:.1}% segmentally sequential\n",
            s.reads,
            s.read_kib(),
            s.writes,
            s.write_kib(),
            s.trims,
            s.flushes,
            Human(s.written_bytes),
            s.segmented_sequentiality * 100.0,
        );
        text += &match s.syncs {
            0 => "syncs         none; use --sync-writes for a trace without flushes\n".to_owned(),
            syncs => format!(
                "syncs         {syncs}; R {:.1} blocks of 4 KiB, f {:.4}, f R {:.2}\n",
                s.sync_blocks,
                s.focal_factor,
                s.sync_blocks * s.focal_factor
            ),
        };
        text + &self.outcome.as_ref().map_or(String::new(), flash_text)
    }
}

fn flash_text(outcome: &FlashOutcome) -> String {
    let c = &outcome.counters;
    let (least, mean, most) = outcome.erases;
    format!(
        "device        {}\n\
         flash pages   {} programmed, {} read; {} pages moved; write amplification {:.3}\n\
         erases        {} counted; of a block since it was new {least} to {most}, mean {mean:.1}\n\
         merges        {} switch, {} partial, {} full; {} cleanings\n\
         virtual time  {:.3} s, {:.1} MB/s written; mean response of writes {:.3} ms (longest \
         {:.1}), of reads {:.3} ms\n",
        Human(outcome.capacity),
        c.flash_pages_programmed,
        c.flash_pages_read,
        c.pages_moved,
        outcome.write_amplification,
        c.erases,
        c.merges_switch,
        c.merges_partial,
        c.merges_full,
        c.cleanings,
        outcome.elapsed_ns as f64 / 1e9,
        outcome.write_mb_per_s(),
        outcome.writes.mean_ms(),
        outcome.writes.max_ns as f64 / 1e6,
        outcome.reads.mean_ms(),
    )
}
