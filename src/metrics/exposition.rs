//! The text format of Prometheus (version 0.0.4), and the same numbers as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::metric::{INFO, METRICS, Metric, MetricKind, Naming};
use super::sample::Sample;
use crate::stat_report::VolumeReport;

/// Returns the metrics of a volume as text that Prometheus reads.
pub fn exposition(report: &VolumeReport, naming: Naming) -> String {
    let mut text = String::new();
    for (metric, samples) in all(report, naming) {
        let kind = name(metric.kind);
        let write = writeln!(text, "# HELP {0} {1}\n# TYPE {0} {kind}", metric.name, metric.help);
        write.expect("memory");
        for Sample { suffix, labels, value } in samples {
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
                .collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            writeln!(text, "{}{suffix}{labels} {value}", metric.name).expect("memory");
        }
    }
    text
}

/// Returns the metrics of a volume as a JSON array: an object for each metric with `name`, `type`, `help` and
/// `samples`, each of which has `name`, `labels` and `value`.
pub fn to_json(report: &VolumeReport, naming: Naming) -> String {
    let sample = |metric: &Metric, Sample { suffix, labels, value }: Sample| {
        let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
        let name = format!("{}{suffix}", metric.name);
        json!({ "name": name, "labels": labels.collect::<Map<_, _>>(), "value": value })
    };
    let metrics = all(report, naming).map(|(metric, samples)| {
        let samples: Vec<_> = samples.into_iter().map(|one| sample(metric, one)).collect();
        let kind = name(metric.kind);
        json!({ "name": metric.name, "type": kind, "help": metric.help, "samples": samples })
    });
    serde_json::to_string_pretty(&metrics.collect::<Vec<_>>()).expect("numbers and text are JSON")
}

/// Returns the metrics that the report has numbers for.
fn all(
    report: &VolumeReport,
    naming: Naming,
) -> impl Iterator<Item = (&'static Metric, Vec<Sample>)> {
    let metrics = METRICS.iter().filter(move |metric| match naming {
        Naming::Named => true,
        Naming::Anonymous => metric.name != INFO,
    });
    let with_samples = move |metric: &'static Metric| {
        let mut samples = (metric.samples)(report);
        if naming == Naming::Named {
            let device = || ("device", report.device.clone());
            samples.iter_mut().for_each(|sample| sample.labels.insert(0, device()));
        }
        (metric, samples)
    };
    metrics.map(with_samples).filter(|(_, samples)| !samples.is_empty())
}

fn name(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

/// Escapes the value of a label. Other control characters are replaced: the text may be printed on a terminal.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for char in value.chars() {
        match char {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            char if char.is_control() => escaped.push('?'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_its_value() {
        assert_eq!(escape("a\"b\\c\nd\u{1b}"), "a\\\"b\\\\c\\nd?");
    }

    #[test]
    fn names_follow_the_conventions() {
        for Metric { name, kind, help, .. } in METRICS {
            let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(is_plain && name.starts_with("sfs_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\']), "{name}: {help}");
        }
    }
}
