//! What an experiment says, and how it is printed.
//!
//! Owns: the outcome and its forms: text, JSON, CSV.
//! Promises: every form has every figure of the text but the histograms, which CSV leaves out.
//! Never: rounds what JSON has.

use std::fmt::Write;

use crate::closed_form;
use crate::run::Experiment;
use crate::simulation::{Buffering, Counters, HISTOGRAM_BINS, Space};

/// The outcome of an experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Name of the workload.
    pub workload: String,
    /// Name of the grouping.
    pub grouping: &'static str,
    /// Name of the victim selection.
    pub victims: &'static str,
    /// Groups asked for.
    pub groups: Option<u8>,
    /// Seed of the workload.
    pub seed: u64,
    /// Utilization asked for.
    pub utilization: f64,
    /// The volume.
    pub space: Space,
    /// The write buffer.
    pub buffering: Buffering,
    /// Blocks written to the log over those of users that came to it.
    pub amplification_log: f64,
    /// Blocks written to the log over those that users wrote.
    pub amplification_user: f64,
    /// The same with summaries and tree nodes: blocks that the device is given.
    pub amplification_device: f64,
    /// [`closed_form::known_rates`], unbuffered and without dummies, where rates are constant.
    pub amplification_known_rates: Option<f64>,
    /// Part of the users' writes that was overwritten in the buffer.
    pub coalesced: f64,
    /// The SFS paper's write cost on its SSD-M.
    pub write_cost: f64,
    /// Mean live fraction of victims.
    pub victim_utilization: f64,
    /// Time of the processor for each block that users wrote, everything included.
    pub nanoseconds_per_write: f64,
    /// What was counted.
    pub counters: Counters,
}

impl Outcome {
    pub(crate) fn new(
        experiment: &Experiment<'_>,
        space: Space,
        (grouping, victims): (&'static str, &'static str),
        counters: Counters,
        nanoseconds_per_write: f64,
    ) -> Self {
        Self {
            workload: experiment.workload.clone(),
            grouping,
            victims,
            groups: experiment.groups,
            seed: experiment.seed,
            utilization: experiment.space.utilization,
            space,
            buffering: experiment.buffering,
            amplification_log: counters.amplification_log(),
            amplification_user: counters.amplification_user(),
            amplification_device: counters.amplification_user() * experiment.metadata.per_block(),
            amplification_known_rates: known_rates(experiment, &space),
            coalesced: counters.coalesced(),
            write_cost: counters.write_cost(),
            victim_utilization: counters.victim_utilization(space.segment_blocks),
            nanoseconds_per_write,
            counters,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let space = &self.space;
        let mut line = |args: std::fmt::Arguments<'_>| {
            text.write_fmt(args).and_then(|()| text.write_char('\n')).expect("memory");
        };
        line(format_args!("{}: {} with {}", self.workload, self.grouping, self.victims));
        line(format_args!(
            "  {} blocks in {} segments of {}, {} in reserve, buffer of {} segments",
            space.blocks,
            space.segments,
            space.segment_blocks,
            space.reserve,
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
        line(format_args!("  segments by utilization, %    at cleaning   in the volume"));
        let counters = &self.counters;
        let (cleaning, volume) = (counters.histogram_cleaning, counters.histogram_volume);
        for bin in 0..HISTOGRAM_BINS {
            let low = bin as f64 / 10.0;
            line(format_args!(
                "    {low:.1} to {:.1}                  {:8.1}        {:8.1}",
                low + 0.1,
                share(&cleaning, bin) * 100.0,
                share(&volume, bin) * 100.0
            ));
        }
        text
    }

    /// The heading of [`Outcome::csv`].
    pub const CSV_HEADING: &str = "workload,grouping,victims,groups,utilization,segments,\
        segment_blocks,buffer_segments,writing,seed,amplification_log,amplification_user,amplification_device,\
        coalesced,write_cost,victim_utilization,nanoseconds_per_write";

    /// One line of a table.
    pub fn csv(&self) -> String {
        format!(
            "{},{},{},{},{},{},{},{},{},{},{:.4},{:.4},{:.4},{:.4},{:.3},{:.4},{:.0}",
            self.workload,
            self.grouping,
            self.victims,
            self.groups.map_or(String::new(), |groups| groups.to_string()),
            self.utilization,
            self.space.segments,
            self.space.segment_blocks,
            self.buffering.segments,
            self.buffering.writing,
            self.seed,
            self.amplification_log,
            self.amplification_user,
            self.amplification_device,
            self.coalesced,
            self.write_cost,
            self.victim_utilization,
            self.nanoseconds_per_write
        )
    }
}

fn known_rates(experiment: &Experiment<'_>, space: &Space) -> Option<f64> {
    let unbuffered = experiment.buffering.capacity(space.segment_blocks) == 0;
    let classes = experiment.source.rates(space.blocks)?;
    let least = || closed_form::known_rates(&classes, space.utilization_within_reserve());
    (unbuffered && experiment.dummy == 0.0).then(least)
}

/// A bin's part of the whole.
pub fn share(histogram: &[u64; HISTOGRAM_BINS], bin: usize) -> f64 {
    histogram[bin] as f64 / histogram.iter().sum::<u64>().max(1) as f64
}
