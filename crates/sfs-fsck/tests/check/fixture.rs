//! Checks and repairs of forged volumes, as the tests use them.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::Timestamp;
use sfs_device::Device;
use sfs_fsck::{
    CheckOptions, CheckReport, Finding, FsckError, RepairOptions, RepairOutcome, check, repair,
};

use super::forge::Forge;
use super::forged_volume::ForgedVolume;

pub(crate) const NOW: Timestamp = Timestamp { secs: 2_000_000_000, nanos: 0 };

/// Checks the volume on `device`; with `data`, reads all data.
pub(crate) fn check_device(device: &dyn Device, data: bool) -> Result<CheckReport, FsckError> {
    check(device, &CheckOptions { data }, &mut |_| ControlFlow::Continue(()))
}

/// Returns the errors of `volume`, without notes.
pub(crate) fn errors(volume: &ForgedVolume) -> Vec<Finding> {
    let report = check_device(&volume.device, true).expect("a volume");
    let kept = report.findings.kept().iter();
    kept.filter(|finding| finding.is_error()).cloned().collect()
}

/// Returns the errors of a populated volume after `change`.
pub(crate) fn forged(change: impl FnOnce(&mut Forge)) -> Vec<Finding> {
    let mut forge = populated();
    change(&mut forge);
    errors(&forge.build())
}

/// Returns a sound volume with files of several kinds.
pub(crate) fn populated() -> Forge {
    let mut forge = Forge::populated();
    forge.map_data();
    forge
}

/// Repairs the volume on `device`.
pub(crate) fn repair_with(device: &Arc<dyn Device>, preen: bool, data: bool) -> RepairOutcome {
    let options = RepairOptions { data, preen, now: NOW };
    repair(device, &options, &mut |_| ControlFlow::Continue(())).expect("a repair")
}
