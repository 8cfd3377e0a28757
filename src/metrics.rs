//! Metrics of a volume for Prometheus.
//!
//! [`exposition`] makes the text from a [`crate::stat_report::VolumeReport`], by the one table of all metrics.
//! `MetricsServer` serves the text over HTTP: always on a Unix socket beside the control socket, for root and the
//! mount's owner, and with `-o metrics=` on a loopback address, without any name. docs/sfs-ctl.md describes both.

mod exposition;
mod http;
mod metric;
mod sample;
mod server;

pub use exposition::{exposition, to_json};
pub use metric::{METRICS, Metric, MetricKind, Naming};
pub(crate) use server::{MetricsServer, MetricsSockets};
