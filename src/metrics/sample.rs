//! Samples of metrics, made from a report.

use std::collections::BTreeMap;

use crate::stat_report::{
    ActivityReport, ErrorReport, GroupReport, HealthState, Holds, LatencyReport, VolumeReport,
    WearReport,
};

/// End of the first octave of latencies, in seconds.
const FIRST_OCTAVE_SECS: f64 = 1.024e-6;

/// Number of octaves among whose ends the bounds of histograms are: the last bound is 17 s.
const OCTAVES: usize = 25;

/// Value of a metric, with its labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// Part of the name after that of the metric: `_bucket`, `_sum` or `_count` for a histogram.
    pub(super) suffix: &'static str,
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: f64,
}

impl Sample {
    pub(super) fn plain(value: f64) -> Vec<Self> {
        vec![Self { suffix: "", labels: Vec::new(), value }]
    }

    pub(super) fn count(value: u64) -> Vec<Self> {
        Self::plain(value as f64)
    }

    pub(super) fn labelled(label: &'static str, name: impl Into<String>, value: f64) -> Self {
        Self { suffix: "", labels: vec![(label, name.into())], value }
    }
}

pub(super) fn bytes(report: &VolumeReport, blocks: u64) -> u64 {
    blocks.saturating_mul(report.space.block_bytes)
}

pub(super) fn info(report: &VolumeReport) -> Vec<Sample> {
    let policies = report.policies.as_ref();
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let labels = vec![
        ("mountpoint", text(report.mount_point.as_ref())),
        ("uuid", report.uuid.clone()),
        ("volume", report.label.clone()),
        ("policy", text(policies.map(|policies| &policies.grouping))),
        ("victim", text(policies.map(|policies| &policies.victims))),
        ("transport", text(report.transport.as_ref().map(|transport| &transport.name))),
    ];
    vec![Sample { suffix: "", labels, value: 1.0 }]
}

pub(super) fn segments(report: &VolumeReport) -> Vec<Sample> {
    let counts = &report.segments;
    let states = [
        ("clean", counts.clean),
        ("open", counts.open),
        ("sealed", counts.sealed),
        ("drained", counts.drained),
        ("bad", counts.bad),
        ("placed", counts.placed),
    ];
    states.map(|(state, count)| Sample::labelled("state", state, count.into())).into()
}

pub(super) fn groups(
    report: &VolumeReport,
    value: impl Fn(&GroupReport, u64) -> u64,
) -> Vec<Sample> {
    let sample = |group: &GroupReport| {
        let holds = match group.holds {
            Holds::Data => "data",
            Holds::Metadata => "metadata",
        };
        let labels = vec![("group", group.group.to_string()), ("holds", holds.to_owned())];
        Sample { suffix: "", labels, value: value(group, report.space.block_bytes) as f64 }
    };
    report.groups.iter().map(sample).collect()
}

/// Returns the counter `name` of the mount; nothing for a volume that is not mounted.
pub(super) fn of_mount(report: &VolumeReport, name: &str) -> Vec<Sample> {
    let count = |mount: &ActivityReport| Sample::count(mount.counter(name));
    report.mount.as_ref().map_or(Vec::new(), count)
}

/// Returns the parts of the bytes on the device, whose sum is all of them.
pub(super) fn device_bytes(report: &VolumeReport) -> Vec<Sample> {
    let Some(mount) = &report.mount else { return Vec::new() };
    ["data", "cleaning", "metadata", "summary"]
        .map(|kind| Sample::labelled("kind", kind, mount.counter(&format!("{kind}_bytes")) as f64))
        .into()
}

pub(super) fn errors(report: &VolumeReport) -> Vec<Sample> {
    let sample =
        |error: &ErrorReport| Sample::labelled("kind", error.kind.clone(), error.count as f64);
    report.errors.iter().map(sample).collect()
}

/// Returns the histogram of each operation. The bounds are the same for all, and every second octave has one.
pub(super) fn latencies(report: &VolumeReport) -> Vec<Sample> {
    report.latencies.iter().flat_map(histogram).collect()
}

fn histogram(latency: &LatencyReport) -> Vec<Sample> {
    let sample = |suffix, bound: Option<String>, value| {
        let operation = ("operation", latency.operation.clone());
        let labels = [Some(operation), bound.map(|bound| ("le", bound))];
        Sample { suffix, labels: labels.into_iter().flatten().collect(), value }
    };
    let bucket = |octave: usize| {
        let below: u64 = latency.octaves.iter().take(octave + 1).sum();
        let bound = FIRST_OCTAVE_SECS * (1_u64 << octave) as f64;
        sample("_bucket", Some(format!("{bound}")), below as f64)
    };
    // The octaves were counted one after another while requests came; their sum is a consistent number.
    let count = latency.octaves.iter().sum::<u64>() as f64;
    let buckets = (0..OCTAVES).step_by(2).map(bucket);
    let rest = [
        sample("_bucket", Some("+Inf".to_owned()), count),
        sample("_sum", None, latency.total_us as f64 / 1e6),
        sample("_count", None, count),
    ];
    buckets.chain(rest).collect()
}

/// Returns a number of the wear; nothing if the volume keeps none, or the number is not known.
pub(super) fn wear(
    report: &VolumeReport,
    value: impl Fn(&WearReport) -> Option<f64>,
) -> Vec<Sample> {
    report.wear.as_ref().and_then(value).map_or(Vec::new(), Sample::plain)
}

pub(super) fn health(report: &VolumeReport) -> Vec<Sample> {
    let Some(health) = &report.health else { return Vec::new() };
    let states = [
        ("ok", HealthState::Ok),
        ("warning", HealthState::Warning),
        ("failing", HealthState::Failing),
    ];
    let sample =
        |(name, state)| Sample::labelled("state", name, u8::from(health.state == state).into());
    states.map(sample).into()
}

/// Returns the events of each kind of finding.
pub(super) fn findings(report: &VolumeReport) -> Vec<Sample> {
    let mut counts = BTreeMap::<&str, u64>::new();
    for finding in report.health.iter().flat_map(|health| &health.findings) {
        *counts.entry(&finding.kind).or_default() += finding.count;
    }
    let sample = |(kind, count)| Sample::labelled("kind", kind, count as f64);
    counts.into_iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative() {
        let latency = LatencyReport {
            operation: "read".to_owned(),
            count: 10,
            total_us: 1500,
            octaves: vec![1, 0, 2, 3, 4],
            ..LatencyReport::default()
        };
        let samples = histogram(&latency);
        let bucket = |bound: &str| {
            let is_it = |sample: &&Sample| {
                sample.suffix == "_bucket" && sample.labels[1] == ("le", bound.to_owned())
            };
            samples
                .iter()
                .find(is_it)
                .unwrap_or_else(|| panic!("no bucket {bound}: {samples:?}"))
                .value
        };
        assert_eq!(bucket("0.000001024"), 1.0);
        assert_eq!(bucket("0.000004096"), 3.0);
        assert_eq!(bucket("0.000016384"), 10.0);
        assert_eq!(bucket("17.179869184"), 10.0);
        assert_eq!(bucket("+Inf"), 10.0);
        let named =
            |suffix| samples.iter().find(|sample| sample.suffix == suffix).map(|one| one.value);
        assert_eq!((named("_sum"), named("_count")), (Some(0.0015), Some(10.0)));
        assert!(samples.iter().all(|sample| sample.labels[0] == ("operation", "read".to_owned())));
    }
}
