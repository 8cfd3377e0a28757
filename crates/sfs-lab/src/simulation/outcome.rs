//! The outcome of an experiment, as text, JSON and CSV. CSV leaves the histograms out; JSON is not
//! rounded.

use std::fmt::Write;

use super::buffering::Buffering;
use super::counters::{HISTOGRAM_BINS, SimulationCounters};
use super::space::VolumeSize;

/// A Sealed segment at the end of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct SegmentRank {
    /// Hotness as the SFS paper defines it: the mean write count of the live blocks over their mean age in ticks.
    pub hotness: f64,
    /// Live blocks over all blocks, 0..=1.
    pub utilization: f64,
    /// Group of the segment.
    pub group: u8,
}

/// The outcome of an experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SimulationOutcome {
    /// Name of the workload.
    pub workload: String,
    /// Name of the grouping policy.
    pub grouping_policy: &'static str,
    /// Name of the victim policy.
    pub victim_policy: &'static str,
    /// Wanted number of groups, if it was given.
    pub groups: Option<u8>,
    /// Seed of the workload.
    pub seed: u64,
    /// Wanted utilization, 0..1.
    pub utilization: f64,
    /// Sizes of the volume.
    pub space: VolumeSize,
    /// The write buffer.
    pub buffering: Buffering,
    /// Blocks written to the log over users' blocks that reached the log.
    pub amplification_log: f64,
    /// Blocks written to the log over blocks that users wrote.
    pub amplification_user: f64,
    /// Blocks written to the device over blocks that users wrote: `amplification_user` with summaries
    /// and tree nodes.
    pub amplification_device: f64,
    /// Result of [`crate::closed_form::known_rates`], for constant rates without a buffer and without
    /// dummies.
    pub amplification_known_rates: Option<f64>,
    /// Part of the users' writes, 0..=1, that was overwritten in the buffer.
    pub coalesced: f64,
    /// The SFS paper's write cost on its SSD-M.
    pub write_cost: f64,
    /// Mean live fraction of victims, 0..=1.
    pub victim_utilization: f64,
    /// Processor time for each block that users wrote, workload and cleaning included.
    pub nanoseconds_per_write: f64,
    /// Counts since the end of the warm-up.
    pub counters: SimulationCounters,
    /// Sealed segments with live blocks at the end, the hottest first; not in the JSON.
    #[serde(skip)]
    pub ranks: Vec<SegmentRank>,
}

impl SimulationOutcome {
    /// Returns the outcome as text of several lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let space = &self.space;
        let mut line = |args: std::fmt::Arguments<'_>| {
            text.write_fmt(args).and_then(|()| text.write_char('\n')).expect("memory");
        };
        line(format_args!(
            "{}: {} with {}",
            self.workload, self.grouping_policy, self.victim_policy
        ));
        line(format_args!(
            "  {} blocks in {} segments of {}, {} in reserve, buffer of {} segments",
            space.blocks,
            space.segments,
            space.segment_blocks,
            space.reserve_segments,
            self.buffering.segments
        ));
        line(format_args!("  log write amplification       {:8.3}", self.amplification_log));
        line(format_args!("  ... over users' writes        {:8.3}", self.amplification_user));
        line(format_args!("  ... and with metadata         {:8.3}", self.amplification_device));
        if let Some(least) = self.amplification_known_rates {
            line(format_args!("  least, if rates were known    {least:8.3}"));
        }
        line(format_args!("  coalesced                     {:8.1} %", self.coalesced * 100.0));
        line(format_args!("  write cost (SFS paper, SSD-M) {:8.2}", self.write_cost));
        line(format_args!("  live fraction of victims      {:8.3}", self.victim_utilization));
        line(format_args!("  processor time a write        {:8.0} ns", self.nanoseconds_per_write));
        text + &self.histograms()
    }

    fn histograms(&self) -> String {
        let mut text = "  segments by utilization, %    at cleaning   in the volume\n".to_owned();
        let counters = &self.counters;
        for bin in 0..HISTOGRAM_BINS {
            let low = bin as f64 / 10.0;
            writeln!(
                text,
                "    {low:.1} to {:.1}                  {:8.1}        {:8.1}",
                low + 0.1,
                share(&counters.histogram_cleaning, bin) * 100.0,
                share(&counters.histogram_volume, bin) * 100.0
            )
            .expect("memory");
        }
        text
    }

    /// Headings of the columns of [`SimulationOutcome::csv`].
    const CSV_HEADING: [&str; 17] = [
        "workload",
        "grouping_policy",
        "victim_policy",
        "groups",
        "utilization",
        "segments",
        "segment_blocks",
        "buffer_segments",
        "writing",
        "seed",
        "amplification_log",
        "amplification_user",
        "amplification_device",
        "coalesced",
        "write_cost",
        "victim_utilization",
        "nanoseconds_per_write",
    ];

    /// Returns CSV with a heading, and a line for each outcome.
    pub fn csv<'a>(outcomes: impl IntoIterator<Item = &'a Self>) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(Self::CSV_HEADING).expect("a vector takes every row");
        for outcome in outcomes {
            writer.write_record(outcome.csv_row()).expect("a vector takes every row");
        }
        let bytes = writer.into_inner().expect("a vector takes every row");
        String::from_utf8(bytes).expect("all fields are UTF-8")
    }

    fn csv_row(&self) -> [String; 17] {
        [
            self.workload.clone(),
            self.grouping_policy.to_owned(),
            self.victim_policy.to_owned(),
            self.groups.map_or(String::new(), |groups| groups.to_string()),
            self.utilization.to_string(),
            self.space.segments.to_string(),
            self.space.segment_blocks.to_string(),
            self.buffering.segments.to_string(),
            self.buffering.writing.to_string(),
            self.seed.to_string(),
            format!("{:.4}", self.amplification_log),
            format!("{:.4}", self.amplification_user),
            format!("{:.4}", self.amplification_device),
            format!("{:.4}", self.coalesced),
            format!("{:.3}", self.write_cost),
            format!("{:.4}", self.victim_utilization),
            format!("{:.0}", self.nanoseconds_per_write),
        ]
    }
}

/// Returns the part of a histogram's total that is in `bin`, 0..=1.
pub fn share(histogram: &[u64; HISTOGRAM_BINS], bin: usize) -> f64 {
    histogram[bin] as f64 / histogram.iter().sum::<u64>().max(1) as f64
}
