//! The table of all metrics: name, type, help, and the samples of a report.
//!
//! A metric that is new gets a row in [`METRICS`]; docs/sfs-ctl.md lists the rows, and a test compares them.

use super::sample::{self, Sample};
use crate::stat_report::{DAYS_PER_YEAR, VolumeReport};

/// Metric of a volume. Units are seconds and bytes, as the name says.
pub struct Metric {
    /// Name, with the prefix `sfs_`.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: MetricKind,
    /// One line that explains the metric.
    pub help: &'static str,
    /// Function that returns the samples of a report; none if the report lacks the number.
    pub(super) samples: fn(&VolumeReport) -> Vec<Sample>,
}

/// Type of a metric, as Prometheus names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Number that only grows, until the daemon ends.
    Counter,
    /// Number that goes up and down.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
}

/// Whether the samples name the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Every sample has the device as a label, and `sfs_volume_info` names the mount point and the volume: for the
    /// owner of the mount.
    Named,
    /// No sample has a path, label or UUID: for every user of the machine.
    Anonymous,
}

/// Seconds in a year, as the ledger counts it.
const SECS_PER_YEAR: f64 = DAYS_PER_YEAR * 86_400.0;

/// Name of the metric whose labels name the volume.
pub(super) const INFO: &str = "sfs_volume_info";

/// All metrics, in the order of the text.
pub const METRICS: &[Metric] = &[
    Metric {
        name: INFO,
        kind: MetricKind::Gauge,
        help: "Names of the volume and its policies; the value is 1.",
        samples: sample::info,
    },
    Metric {
        name: "sfs_size_bytes",
        kind: MetricKind::Gauge,
        help: "Bytes for files and metadata.",
        samples: |report| Sample::count(sample::bytes(report, report.space.total_blocks)),
    },
    Metric {
        name: "sfs_free_bytes",
        kind: MetricKind::Gauge,
        help: "Free bytes.",
        samples: |report| Sample::count(sample::bytes(report, report.space.free_blocks)),
    },
    Metric {
        name: "sfs_available_bytes",
        kind: MetricKind::Gauge,
        help: "Free bytes that data can have.",
        samples: |report| Sample::count(sample::bytes(report, report.space.available_blocks)),
    },
    Metric {
        name: "sfs_files",
        kind: MetricKind::Gauge,
        help: "Files of all kinds.",
        samples: |report| Sample::count(report.space.files),
    },
    Metric {
        name: "sfs_read_only",
        kind: MetricKind::Gauge,
        help: "1 if nothing can be written.",
        samples: |report| Sample::count(report.read_only.into()),
    },
    Metric {
        name: "sfs_failed",
        kind: MetricKind::Gauge,
        help: "1 if writing has stopped after a failure or a shutdown.",
        samples: |report| Sample::count(report.has_failed.into()),
    },
    Metric {
        name: "sfs_segment_bytes",
        kind: MetricKind::Gauge,
        help: "Bytes in a segment.",
        samples: |report| Sample::count(sample::bytes(report, report.segments.blocks.into())),
    },
    Metric {
        name: "sfs_segments",
        kind: MetricKind::Gauge,
        help: "Segments by state.",
        samples: sample::segments,
    },
    Metric {
        name: "sfs_group_segments",
        kind: MetricKind::Gauge,
        help: "Open and Sealed segments of a group.",
        samples: |report| sample::groups(report, |group, _| group.segments.into()),
    },
    Metric {
        name: "sfs_group_live_bytes",
        kind: MetricKind::Gauge,
        help: "Live bytes in the Open and Sealed segments of a group.",
        samples: |report| {
            sample::groups(report, |group, block| group.live_blocks.saturating_mul(block))
        },
    },
    Metric {
        name: "sfs_user_written_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes that users have written since the mount.",
        samples: |report| sample::of_mount(report, "user_bytes_written"),
    },
    Metric {
        name: "sfs_device_written_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes written to the device since the mount, by kind.",
        samples: sample::device_bytes,
    },
    Metric {
        name: "sfs_syncs_total",
        kind: MetricKind::Counter,
        help: "Requests to make something durable since the mount.",
        samples: |report| sample::of_mount(report, "syncs"),
    },
    Metric {
        name: "sfs_commits_total",
        kind: MetricKind::Counter,
        help: "Flushes of the device for such requests since the mount.",
        samples: |report| sample::of_mount(report, "commits"),
    },
    Metric {
        name: "sfs_checkpoints_total",
        kind: MetricKind::Counter,
        help: "Checkpoints since the mount.",
        samples: |report| sample::of_mount(report, "checkpoints"),
    },
    Metric {
        name: "sfs_segments_cleaned_total",
        kind: MetricKind::Counter,
        help: "Segments cleaned since the mount.",
        samples: |report| sample::of_mount(report, "segments_cleaned"),
    },
    Metric {
        name: "sfs_stalls_total",
        kind: MetricKind::Counter,
        help: "Times that a writer had to clean or wait for a checkpoint since the mount.",
        samples: |report| sample::of_mount(report, "stalls"),
    },
    Metric {
        name: "sfs_nodes_read_total",
        kind: MetricKind::Counter,
        help: "Tree nodes read from the device since the mount, those read along included.",
        samples: |report| sample::of_mount(report, "nodes_read"),
    },
    Metric {
        name: "sfs_lifetime_user_written_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes that users have written in all mounts.",
        samples: |report| Sample::count(report.life.counter("user_bytes_written")),
    },
    Metric {
        name: "sfs_lifetime_device_written_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes written to the device in all mounts.",
        samples: |report| Sample::count(report.life.counter("device_bytes_written")),
    },
    Metric {
        name: "sfs_mounts_total",
        kind: MetricKind::Counter,
        help: "Mounts for writing since the volume was made.",
        samples: |report| Sample::count(report.life.counter("mounts")),
    },
    Metric {
        name: "sfs_errors_total",
        kind: MetricKind::Counter,
        help: "Errors since sfs-fsck last cleared them, by kind.",
        samples: sample::errors,
    },
    Metric {
        name: "sfs_referenced_inodes",
        kind: MetricKind::Gauge,
        help: "References to inodes that the kernel holds.",
        samples: |report| {
            let references = report.transport.as_ref().map(|transport| transport.references);
            references.map_or(Vec::new(), Sample::count)
        },
    },
    Metric {
        name: "sfs_kernel_dirty_limit_bytes",
        kind: MetricKind::Gauge,
        help: "Bound on the kernel's dirty bytes for the mount.",
        samples: |report| {
            let bound = report.cache.and_then(|cache| cache.dirty_bytes_max);
            bound.map_or(Vec::new(), Sample::count)
        },
    },
    Metric {
        name: "sfs_request_duration_seconds",
        kind: MetricKind::Histogram,
        help: "Time that the daemon worked on a request, by operation.",
        samples: sample::latencies,
    },
    Metric {
        name: "sfs_times_written",
        kind: MetricKind::Gauge,
        help: "Bytes written to the device over its size, in the life of the volume.",
        samples: |report| sample::wear(report, |wear| Some(wear.times_written)),
    },
    Metric {
        name: "sfs_segment_erases_total",
        kind: MetricKind::Counter,
        help: "Times that segments were taken into use, in the life of the volume.",
        samples: |report| sample::wear(report, |wear| Some(wear.erases.total as f64)),
    },
    Metric {
        name: "sfs_segment_erases_mean",
        kind: MetricKind::Gauge,
        help: "Mean of the times that a segment was taken into use.",
        samples: |report| sample::wear(report, |wear| Some(wear.erases.mean)),
    },
    Metric {
        name: "sfs_segment_erases_max",
        kind: MetricKind::Gauge,
        help: "Times that the most used segment was taken into use.",
        samples: |report| sample::wear(report, |wear| Some(wear.erases.max.into())),
    },
    Metric {
        name: "sfs_endurance_cycles",
        kind: MetricKind::Gauge,
        help: "Erase cycles that the cells of the device endure, by assumption.",
        samples: |report| sample::wear(report, |wear| Some(wear.endurance_cycles.into())),
    },
    Metric {
        name: "sfs_life_left_seconds",
        kind: MetricKind::Gauge,
        help: "Time until every cell has had these cycles at the rate of the last 30 days.",
        samples: |report| {
            sample::wear(report, |wear| wear.years_left.map(|years| years * SECS_PER_YEAR))
        },
    },
    Metric {
        name: "sfs_device_life_used_ratio",
        kind: MetricKind::Gauge,
        help: "Used part of the life of the device, as the kernel states it.",
        samples: |report| {
            sample::wear(report, |wear| {
                Some(f64::from(wear.device.as_ref()?.life_used_percent?) / 100.0)
            })
        },
    },
    Metric {
        name: "sfs_health_state",
        kind: MetricKind::Gauge,
        help: "1 for the present state of health.",
        samples: sample::health,
    },
    Metric {
        name: "sfs_health_findings",
        kind: MetricKind::Gauge,
        help: "Events behind the state of health, by kind.",
        samples: sample::findings,
    },
];
