//! `sfs-lab in-memory`: prints the bytes on the device for each byte that a workload writes, of the real
//! filesystem on a device in RAM. The same arguments give the same figures on every machine.

use anyhow::Result;
use serde::Serialize;
use sfs_core::policy;
use sfs_core::request::VolumeOptions;
use sfs_device::BLOCK_SIZE;
use sfs_lab::in_memory::{Job, JobCounts};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Workload: zipf:THETA, uniform, hotcold:90/10, shift, tpcc, sequential, pieces:BLOCKS or streams.
    #[arg(long, default_value = "zipf:0.99")]
    workload: String,
    /// Size of the volume in MiB.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(16..=65536))]
    mib: u64,
    /// Size of a segment in KiB; by default that of sfs-mkfs.
    #[arg(long)]
    segment_kib: Option<u64>,
    /// Part of the blocks that `df` shows that the file takes.
    #[arg(long, default_value_t = 0.85)]
    full: f64,
    /// Number of writes from one sync to the next.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    sync_interval: u64,
    /// Grouping policy.
    #[arg(long = "policy", default_value = "sfs", value_parser = policy::GROUPING_POLICIES)]
    grouping: String,
    /// Victim policy; by default that of the grouping policy.
    #[arg(long, value_parser = policy::VICTIM_POLICIES)]
    victim: Option<String>,
    /// Number of groups, for a grouping policy with a choice.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8))]
    groups: Option<u8>,
    /// Number of overwrites before counting, in sizes of the file.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Number of overwrites that are counted, in sizes of the file.
    #[arg(long, default_value_t = 2.0)]
    measure: f64,
    /// Virtual time of a write in nanoseconds.
    #[arg(long, default_value_t = 20_000)]
    write_nanos: u64,
    /// Largest number of background steps after a sync; by default until nothing is due.
    #[arg(long, default_value_t = u32::MAX)]
    background_steps: u32,
    /// Defragment the file at the end, and print the figures of reading it once more.
    #[arg(long)]
    defrag: bool,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Figures of a run: parts of bytes for each byte that the workload wrote, and numbers.
#[derive(Serialize)]
struct Report {
    device: f64,
    data: f64,
    moved: f64,
    metadata: f64,
    summaries: f64,
    checkpoints: u64,
    segments_cleaned: u64,
    stalls: u64,
    live_blocks: u32,
    segments: u32,
    segment_blocks: u32,
    withheld_segments: f64,
    /// Average run of the file on the device, in blocks.
    mean_run_blocks: f64,
    /// Number of device requests that read the file from end to end.
    read_requests: u64,
    /// Bytes that these requests read for each byte of the file.
    read_bytes: f64,
    /// The same after a defragmentation, if it was asked for.
    defragmented: Option<Defragmented>,
}

/// Figures of a defragmentation: bytes are for each byte of the file.
#[derive(Serialize)]
struct Defragmented {
    device_bytes: f64,
    mean_run_blocks: f64,
    read_requests: u64,
    read_bytes: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { grouping, victim, groups, .. } = arguments;
    let job = Job {
        device_bytes: arguments.mib << 20,
        segment_bytes: arguments.segment_kib.map(|kib| kib << 10),
        full: arguments.full,
        sync_writes: arguments.sync_interval,
        warm_up: arguments.warm_up,
        measure: arguments.measure,
        write_nanos: arguments.write_nanos,
        background_steps: arguments.background_steps,
        defragments: arguments.defrag,
        options: VolumeOptions {
            grouping: grouping.clone(),
            victim: victim.clone(),
            groups: *groups,
            ..VolumeOptions::default()
        },
    };
    let counts = job.run(&Source::open(&arguments.workload)?, arguments.seed)?;
    let report = Report::of(&counts);
    let text = match arguments.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => report.text(),
    };
    output::print(text)?;
    Ok(())
}

impl Report {
    fn of(counts: &JobCounts) -> Self {
        let JobCounts { written_bytes, counters, reading, .. } = counts;
        let part = |bytes: u64| bytes as f64 / *written_bytes as f64;
        Self {
            device: part(counters.device_bytes_written),
            data: part(counters.data_bytes),
            moved: part(counters.cleaning_bytes),
            metadata: part(counters.metadata_bytes),
            summaries: part(counters.summary_bytes),
            checkpoints: counters.checkpoints,
            segments_cleaned: counters.segments_cleaned,
            stalls: counters.stalls,
            live_blocks: counts.live_blocks,
            segments: counts.segments,
            segment_blocks: counts.segment_blocks,
            withheld_segments: counts.withheld_segments,
            mean_run_blocks: reading.blocks as f64 / reading.runs as f64,
            read_requests: reading.requests,
            read_bytes: reading.read_blocks as f64 / reading.blocks as f64,
            defragmented: counts.defragmented.map(|(written_bytes, reading)| Defragmented {
                device_bytes: written_bytes as f64 / (reading.blocks * BLOCK_SIZE as u64) as f64,
                mean_run_blocks: reading.blocks as f64 / reading.runs as f64,
                read_requests: reading.requests,
                read_bytes: reading.read_blocks as f64 / reading.blocks as f64,
            }),
        }
    }

    fn text(&self) -> String {
        let Self { device, data, moved, metadata, summaries, .. } = self;
        let Self { checkpoints, segments_cleaned, stalls, withheld_segments, .. } = self;
        let Self { mean_run_blocks, read_requests, read_bytes, .. } = self;
        let mut text = format!(
            "{device:.4} on the device: data {data:.4}, moved {moved:.4}, metadata {metadata:.4}, \
             summaries {summaries:.4}; {checkpoints} checkpoints, {segments_cleaned} segments \
             cleaned, {stalls} stalls, {withheld_segments:.1} segments withheld\n\
             reading the file: runs of {mean_run_blocks:.3} blocks on average; {read_requests} requests for \
             {read_bytes:.3} times its bytes, where gaps of at most 64 KiB are read along\n"
        );
        if let Some(after) = &self.defragmented {
            let Defragmented { device_bytes, mean_run_blocks, read_requests, read_bytes } = after;
            text += &format!(
                "defragmentation wrote {device_bytes:.3} times the bytes of the file: runs of {mean_run_blocks:.3} \
                 blocks on average; {read_requests} requests for {read_bytes:.3} times its bytes\n"
            );
        }
        text
    }
}
