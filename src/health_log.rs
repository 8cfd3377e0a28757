//! Early warning in the log: a line at warning level for each new kind of finding about a volume.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sfs_core::Volume;

use crate::stat_report::VolumeReport;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(10);

/// Findings that were logged, and the time of the last look.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    logged: BTreeSet<String>,
    looked: Option<Instant>,
}

impl HealthLog {
    /// Logs the findings about `volume` that are new, if the last look was long ago.
    pub(crate) fn look(&mut self, volume: &Volume, device: &str) {
        if self.looked.is_none_or(|looked| looked.elapsed() >= INTERVAL) {
            self.looked = Some(Instant::now());
            let findings = VolumeReport::of_device(volume, device).health;
            for finding in findings.into_iter().flat_map(|health| health.findings) {
                let line = finding.line();
                if self.logged.insert(finding.kind) {
                    tracing::warn!("{device}: {line}");
                }
            }
        }
    }
}
