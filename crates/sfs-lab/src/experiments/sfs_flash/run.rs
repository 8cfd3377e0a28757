//! Runs of a filesystem under a workload, and their replays on the models.

use std::path::Path;

use anyhow::Result;
use sfs_lab::flash::{Comparison, ModelOutcome, RecordedRequests};
use sfs_lab::host::Filesystem;
use sfs_lab::workload::Source;
use sfs_mkfs::{Human, output};
use sfs_ssd::SsdConfig;

use super::arguments::FlashModels;

/// The outcome of a filesystem under a workload. The outcomes on models are `None` if the filesystem ran out of
/// space.
pub(super) struct FilesystemRun {
    pub(super) filesystem: String,
    pub(super) user_mib: u64,
    pub(super) simulator: Option<[ModelOutcome; 4]>,
    pub(super) devices: Option<[ModelOutcome; 3]>,
}

impl FilesystemRun {
    /// Returns the throughputs in MB/s on the three devices.
    pub(super) fn speeds(&self) -> Option<[f64; 3]> {
        self.devices.as_ref().map(|devices| devices.each_ref().map(ModelOutcome::user_mb_per_s))
    }
}

/// Returns the throughputs in MB/s on the three devices at a utilization; `None` if the filesystem ran out of
/// space.
pub(super) fn curve(
    (comparison, lab, models): (&Comparison, &Path, &FlashModels),
    (filesystem, source, utilization): (&Filesystem, &Source, f64),
    progress: &mut dyn FnMut(u64),
) -> Result<Option<[f64; 3]>> {
    let recording = comparison.record(lab, filesystem, source, utilization, progress);
    let Some(recording) = unless_full(&filesystem.name(), recording)? else { return Ok(None) };
    let mut speeds = [0.0; 3];
    for (speed, config) in speeds.iter_mut().zip(&models.devices) {
        *speed = recording.on(config)?.user_mb_per_s();
    }
    Ok(Some(speeds))
}

/// Returns the recorded requests; `None` if the filesystem ran out of space before any counted
/// request.
fn unless_full(name: &str, recorded: Result<RecordedRequests>) -> Result<Option<RecordedRequests>> {
    match recorded {
        Ok(recording) if recording.user_bytes() == 0 => {
            output::complain(format_args!("{name}: out of space while warming up"));
            Ok(None)
        }
        Ok(recording) => {
            if recording.is_full() {
                output::complain(format_args!(
                    "{name}: out of space after {}",
                    Human(recording.user_bytes())
                ));
            }
            Ok(Some(recording))
        }
        Err(error) => {
            let full = error.chain().any(|cause| {
                let io = cause.downcast_ref::<std::io::Error>();
                io.is_some_and(|io| io.kind() == std::io::ErrorKind::StorageFull)
            });
            match full {
                true => {
                    output::complain(format_args!("{name}: {error:#}"));
                    Ok(None)
                }
                false => Err(error.context(name.to_owned())),
            }
        }
    }
}

/// Replays the recorded requests on all models.
pub(super) fn on_models(
    filesystem: &Filesystem,
    recorded: Result<RecordedRequests>,
    models: &FlashModels,
) -> Result<FilesystemRun> {
    let name = filesystem.name();
    let recording = unless_full(&name, recorded)?;
    let Some(recording) = recording else {
        return Ok(FilesystemRun { filesystem: name, user_mib: 0, simulator: None, devices: None });
    };
    let on = |config: &SsdConfig| recording.on(config);
    let [a, b, c, d] = &models.simulator;
    let simulator = Some([on(a)?, on(b)?, on(c)?, on(d)?]);
    let [h, m, l] = &models.devices;
    let devices = Some([on(h)?, on(m)?, on(l)?]);
    Ok(FilesystemRun {
        filesystem: name,
        user_mib: recording.user_bytes() >> 20,
        simulator,
        devices,
    })
}
