//! The volume on which candidates run: the traced one, or a smaller one with a part of the load.

use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;
use sfs_core::policy;
use sfs_core::request::VolumeOptions;
use sfs_mkfs::Human;

use super::candidate::{Candidate, CandidateOutcome};
use crate::in_memory::TracedJob;
use crate::request_load::RequestLoad;

/// Smallest write buffer, in bytes: the smallest that a mount accepts.
const WRITE_BUFFER_MIN: u64 = 1 << 20;

/// Number of times that the load writes the free space of the model before counting.
const WARM_UP: f64 = 1.5;

/// Number of times that the load writes the free space of the model while counting.
const MEASURED: f64 = 2.0;

/// Size of the traced volume and of the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Bytes of the volume's device.
    pub size_bytes: u64,
    /// Part of the volume that is in use when the load has its most files, in 0..1.
    pub full: f64,
    /// The model and the load are this part of the volume and of the trace: one of `factor`.
    pub factor: u64,
    /// Bytes of the model's device.
    pub model_bytes: u64,
    /// Bytes that programs wrote in the trace.
    pub written_bytes: u64,
    /// Seconds of the trace.
    pub secs: f64,
}

impl fmt::Display for Assumptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the volume has {} and is {:.0}% full at most; the trace writes {} in {:.0} s, repeated as a whole \
             until the free space was written {MEASURED} times, after {WARM_UP} times for warming up",
            Human(self.size_bytes),
            100.0 * self.full,
            Human(self.written_bytes),
            self.secs,
        )?;
        if self.factor > 1 {
            write!(
                f,
                "; everything is scaled down by {} to {}: whole files up to 1 MiB, parts of 1 MiB \
                 of larger ones",
                self.factor,
                Human(self.model_bytes)
            )?;
        }
        Ok(())
    }
}

/// Largest load that is repeated only as a whole, in sizes of the model.
const WHOLE_MAX: u64 = 4;

/// Returns the number of bytes that a load of `load_bytes` writes so that `wanted` bytes are written: in whole
/// repetitions, as the parts of a load differ; of a very long load, at least as many as the model has.
fn in_whole_repetitions(load_bytes: u64, wanted: f64, model_bytes: u64) -> u64 {
    let wanted = wanted as u64;
    match load_bytes <= WHOLE_MAX * model_bytes {
        true => wanted.div_ceil(load_bytes).max(1) * load_bytes,
        false => wanted.max(model_bytes),
    }
}

/// A volume in RAM, and the load for it.
#[derive(Clone, Debug)]
pub struct VolumeModel {
    load: RequestLoad,
    assumptions: Assumptions,
}

impl VolumeModel {
    /// Returns a model of at most `model_bytes_max` bytes for a volume of `size_bytes`, of which the part `full` is in use.
    ///
    /// # Errors
    ///
    /// If the sizes are impossible, or the part of the load that fits writes nothing.
    pub fn new(
        load: &RequestLoad,
        size_bytes: u64,
        full: f64,
        model_bytes_max: u64,
    ) -> Result<Self> {
        ensure!(size_bytes > 0, "the trace does not state the size of the volume: give --size");
        ensure!(model_bytes_max > 0, "the model has no room");
        ensure!((0.0..1.0).contains(&full), "a full volume leaves nothing to compare");
        let factor = size_bytes.div_ceil(model_bytes_max).max(1);
        let sample = load.sampled(factor);
        ensure!(
            sample.written_bytes() > 0,
            "one of {factor} parts of the trace writes nothing: give a larger --model-size"
        );
        let assumptions = Assumptions {
            size_bytes,
            full,
            factor,
            model_bytes: size_bytes / factor,
            written_bytes: load.written_bytes(),
            secs: load.duration_us() as f64 / 1e6,
        };
        Ok(Self { load: sample, assumptions })
    }

    /// Returns the sizes.
    pub fn assumptions(&self) -> &Assumptions {
        &self.assumptions
    }

    /// Returns the number of segments of `bytes` in the model.
    pub(super) fn segments(&self, bytes: u64) -> u64 {
        self.assumptions.model_bytes / bytes
    }

    /// Runs the load with the settings of `candidate`.
    ///
    /// # Errors
    ///
    /// Those of [`TracedJob::run`].
    pub fn run(&self, candidate: &Candidate) -> Result<CandidateOutcome> {
        let Assumptions { full, factor, model_bytes, .. } = self.assumptions;
        let (free, load_bytes) = (model_bytes as f64 * (1.0 - full), self.load.written_bytes());
        let write_buffer = (candidate.write_buffer_bytes / factor).max(WRITE_BUFFER_MIN);
        let is_default = candidate.victim == policy::default_victim_policy(&candidate.policy);
        let job = TracedJob {
            device_bytes: model_bytes,
            segment_bytes: Some(candidate.segment_bytes),
            // An empty volume has at least what the load overwrites.
            full: full.max(f64::MIN_POSITIVE),
            warm_up_bytes: in_whole_repetitions(load_bytes, free * WARM_UP, model_bytes),
            measured_bytes: in_whole_repetitions(load_bytes, free * MEASURED, model_bytes),
            options: VolumeOptions {
                grouping: candidate.policy.clone(),
                victim: (!is_default).then(|| candidate.victim.clone()),
                write_buffer: write_buffer as usize,
                ..VolumeOptions::default()
            },
        };
        Ok(CandidateOutcome::new(candidate, &job.run(&self.load)?))
    }
}
