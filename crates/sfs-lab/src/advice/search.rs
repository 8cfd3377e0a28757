//! The search for better settings, in bounded time: policies, then segment sizes, then write buffers.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_core::policy::{GROUPING_POLICIES, default_victim_policy};
use sfs_core::request::VolumeOptions;
use sfs_mkfs::Human;

use super::candidate::{Candidate, CandidateOutcome};
use super::model::{Assumptions, VolumeModel};

/// Sizes of segments that are tried, in bytes.
const SEGMENT_SIZES: [u64; 6] = [1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23];

/// Number of segments of a model that is scaled down: with fewer, the number and not the size of segments decides.
const SEGMENTS_MIN: u64 = 256;

/// Sizes of the write buffer that are tried, in bytes.
const WRITE_BUFFERS: [u64; 3] = [16 << 20, 64 << 20, 256 << 20];

/// Part of the bytes by which a candidate must be better to be worth a change.
const WORTHWHILE: f64 = 0.03;

/// Advice for a volume.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Sizes.
    pub assumptions: Assumptions,
    /// Settings of the traced mount, and their cost.
    pub present: CandidateOutcome,
    /// The other candidates that were run, in that order.
    pub others: Vec<CandidateOutcome>,
    /// Candidates that failed, with the reason.
    pub failures: Vec<(Candidate, String)>,
    /// Number of candidates for which there was no time.
    pub left_out: usize,
}

/// Compares the settings of `present`, those of the traced mount, with others. Segments smaller than `segment_bytes_min`
/// are not tried. No candidate begins after `time`; `progress` gets the number of candidates that were run.
///
/// # Errors
///
/// If the load cannot be run with the settings of the mount.
pub fn advise(
    model: &VolumeModel,
    present: &Candidate,
    segment_bytes_min: u64,
    time: Duration,
    progress: &mut dyn FnMut(usize),
) -> Result<Advice> {
    let begun = Instant::now();
    let outcome = model.run(present).context("the settings of the traced mount")?;
    let mut advice = Advice {
        assumptions: *model.assumptions(),
        present: outcome,
        others: Vec::new(),
        failures: Vec::new(),
        left_out: 0,
    };
    let policies = GROUPING_POLICIES.iter().map(|policy| Candidate {
        policy: (*policy).to_owned(),
        victim: default_victim_policy(policy).to_owned(),
        ..present.clone()
    });
    let mut try_all = |advice: &mut Advice, candidates: Vec<Candidate>| {
        for candidate in candidates.into_iter().filter(|one| *one != advice.present.candidate) {
            if advice.others.iter().any(|one| one.candidate == candidate) {
                continue;
            }
            if begun.elapsed() >= time {
                advice.left_out += 1;
                continue;
            }
            match model.run(&candidate) {
                Ok(outcome) => advice.others.push(outcome),
                Err(error) => advice.failures.push((candidate, format!("{error:#}"))),
            }
            progress(advice.others.len() + 1);
        }
    };
    try_all(&mut advice, policies.collect());
    let best = advice.best().candidate.clone();
    let is_scaled = model.assumptions().factor > 1;
    let has_enough = |bytes: u64| !is_scaled || model.segments(bytes) >= SEGMENTS_MIN;
    let sizes = SEGMENT_SIZES.iter().filter(|bytes| **bytes >= segment_bytes_min);
    let sizes = sizes.filter(|bytes| has_enough(**bytes) && has_enough(present.segment_bytes));
    let of_size = |bytes: &u64| Candidate { segment_bytes: *bytes, ..best.clone() };
    try_all(&mut advice, sizes.map(of_size).collect());
    let best = advice.best().candidate.clone();
    let of_buffer = |bytes: &u64| Candidate { write_buffer_bytes: *bytes, ..best.clone() };
    try_all(&mut advice, WRITE_BUFFERS.iter().map(of_buffer).collect());
    Ok(advice)
}

impl Candidate {
    /// Returns the settings of a mount without options.
    pub fn default_of(segment_bytes: u64) -> Self {
        let options = VolumeOptions::default();
        Self {
            victim: default_victim_policy(&options.grouping).to_owned(),
            policy: options.grouping,
            segment_bytes,
            write_buffer_bytes: options.write_buffer as u64,
        }
    }
}

impl Advice {
    /// Returns the candidate that writes least.
    pub fn best(&self) -> &CandidateOutcome {
        let by_bytes = |a: &&CandidateOutcome, b: &&CandidateOutcome| {
            a.amplification.total_cmp(&b.amplification)
        };
        self.others
            .iter()
            .min_by(by_bytes)
            .filter(|one| self.gain(one) > 0.0)
            .unwrap_or(&self.present)
    }

    /// Returns the part of the bytes, 0..=1, that `outcome` writes less than the present settings; negative if it writes
    /// more.
    fn gain(&self, outcome: &CandidateOutcome) -> f64 {
        1.0 - outcome.amplification / self.present.amplification
    }

    /// Returns the conclusion: one sentence.
    pub fn conclusion(&self) -> String {
        let (best, present) = (self.best(), &self.present);
        let gain = self.gain(best);
        if gain < WORTHWHILE {
            return format!(
                "Keep the settings: no other writes even {:.0}% less than the {:.2} bytes for each \
                 byte of programs.",
                100.0 * WORTHWHILE,
                present.amplification
            );
        }
        let options = best.candidate.options(&present.candidate);
        let mount = (!options.is_empty()).then(|| format!("mount it with -o {options}"));
        let size = best.candidate.segment_bytes;
        let make = (size != present.candidate.segment_bytes)
            .then(|| format!("make the volume anew with sfs-mkfs --segment-size {}K", size >> 10));
        let actions: Vec<String> = make.into_iter().chain(mount).collect();
        let actions = actions.join(", and ");
        let mut chars = actions.chars();
        let first = chars.next().map(|first| first.to_ascii_uppercase());
        let actions: String = first.into_iter().chain(chars).collect();
        format!(
            "{actions}: {:.2} bytes instead of {:.2} for each byte of programs, {:.0}% less.",
            best.amplification,
            present.amplification,
            100.0 * gain
        )
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Exact runs of the whole core in RAM: {}.\n", self.assumptions)?;
        writeln!(
            f,
            "{:<16}{:<18}{:>9}{:>9}{:>8}{:>7}{:>7}{:>10}{:>8}{:>9}",
            "policy",
            "victim",
            "segment",
            "buffer",
            "bytes",
            "data",
            "moved",
            "metadata",
            "stalls",
            "less"
        )?;
        for outcome in std::iter::once(&self.present).chain(&self.others) {
            self.fmt_row(f, outcome)?;
        }
        for (candidate, reason) in &self.failures {
            let Candidate { policy, segment_bytes, .. } = candidate;
            writeln!(f, "{policy} with segments of {}: {reason}", Human(*segment_bytes))?;
        }
        if self.left_out > 0 {
            writeln!(
                f,
                "there was no time for {} candidates; --seconds gives more",
                self.left_out
            )?;
        }
        writeln!(
            f,
            "\nBytes are on the device for each byte that programs write. {}",
            self.conclusion()
        )
    }
}

impl Advice {
    fn fmt_row(&self, f: &mut fmt::Formatter<'_>, outcome: &CandidateOutcome) -> fmt::Result {
        let CandidateOutcome { candidate, amplification, data, moved, metadata, stalls } = outcome;
        let Candidate { policy, victim, segment_bytes, write_buffer_bytes } = candidate;
        let less = match outcome == &self.present {
            true => "present".to_owned(),
            false => format!("{:.1} %", 100.0 * self.gain(outcome)),
        };
        let (segment, buffer) =
            (Human(*segment_bytes).to_string(), Human(*write_buffer_bytes).to_string());
        writeln!(
            f,
            "{policy:<16}{victim:<18}{segment:>9}{buffer:>9}{amplification:>8.3}{data:>7.3}{moved:>7.3}\
             {metadata:>10.3}{stalls:>8}{less:>9}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_load::RequestLoad;

    /// Returns a load on one file: rarely written data between often written data.
    fn load() -> RequestLoad {
        let mut lines = String::new();
        for write in 0_u64..4000 {
            let random = write.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let block = if write % 10 < 9 { random % 256 } else { 256 + random % 4096 };
            let (at, offset) = (write * 500, block * 4096);
            lines += &format!("{at},write,9,{offset},4096,0,0,0\n");
            if write % 128 == 0 {
                lines += &format!("{at},fsync,9,0,0,0,0,0\n");
            }
        }
        let heading = sfs_trace::TraceProperties::default();
        RequestLoad::parse(&format!("{heading}{lines}")).expect("a trace")
    }

    #[test]
    fn the_best_candidate_is_advised_in_one_sentence() {
        let model = VolumeModel::new(&load(), 48 << 20, 0.85, 512 << 20).expect("a model");
        let present = Candidate {
            policy: "none".to_owned(),
            victim: "greedy".to_owned(),
            ..Candidate::default_of(512 << 10)
        };
        let run = || advise(&model, &present, 256 << 10, Duration::MAX, &mut |_| {});
        let advice = run().expect("advice");
        assert_eq!(advice.left_out, 0);
        assert_eq!(advice.to_string(), run().expect("advice").to_string(), "the runs are exact");
        let best = advice.best();
        assert!(best.amplification < advice.present.amplification, "{advice}");
        let again = model.run(&best.candidate).expect("the candidate runs");
        assert_eq!(again.amplification, best.amplification);
        let words = advice.conclusion();
        assert!(words.contains("instead of") && words.ends_with("% less."), "{words}");
        assert_eq!(words.matches(". ").count(), 0, "{words}");
    }

    #[test]
    fn the_time_is_bounded_and_impossible_volumes_are_refused() {
        let model = VolumeModel::new(&load(), 48 << 20, 0.7, 512 << 20).expect("a model");
        let present = Candidate::default_of(1 << 20);
        let advice = advise(&model, &present, 1 << 20, Duration::ZERO, &mut |_| {});
        let advice = advice.expect("advice");
        assert!(advice.others.is_empty() && advice.left_out > 5, "{advice}");
        assert!(advice.conclusion().starts_with("Keep the settings"), "{advice}");
        let refused = |size, full| {
            VolumeModel::new(&load(), size, full, 512 << 20).expect_err("no model").to_string()
        };
        assert!(refused(0, 0.5).contains("give --size"));
        assert!(refused(1 << 30, 1.0).contains("a full volume"));
    }
}
