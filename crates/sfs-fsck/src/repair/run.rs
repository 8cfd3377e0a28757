//! Repair from beginning to end: passes until no copy waits for space, a last check, removal of recorded
//! errors.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::Remembered;
use sfs_device::Device;

use crate::check::report::CheckReport;
use crate::check::volume::VolumeCheck;
use crate::error::FsckError;
use crate::findings::Findings;
use crate::progress::{CheckProgress, ProgressListener};
use crate::read::recovery_point::RecoveryPoint;
use crate::read::volume::VolumeReader;
use crate::repair::forget_errors::forget_errors;
use crate::repair::loss::Loss;
use crate::repair::options::RepairOptions;
use crate::repair::pass::{PassResult, run_pass};

/// Maximum number of passes over a volume that is so full that copies wait for each other.
const PASSES_MAX: usize = 256;

/// Result of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOutcome {
    /// Report of the check before the repair.
    pub before: CheckReport,
    /// Report of the check after the repair, if anything was written.
    pub after: Option<CheckReport>,
    /// Losses, each once.
    pub losses: Vec<Loss>,
    /// Recorded errors that stay on the volume; `None` if errors are left.
    pub remembered: Option<Remembered>,
}

impl RepairOutcome {
    /// Returns the number of errors that are left.
    pub fn errors_left(&self) -> u64 {
        self.after.as_ref().unwrap_or(&self.before).errors()
    }
}

/// Repairs the volume on `device`, which nothing else may use meanwhile. If no error is left,
/// recorded errors are removed; recorded errors of data are removed only if all data was read.
///
/// # Errors
///
/// Errors of a check and of the device; `NoSpace`, `NotConverging`, `Write`, `Cancelled`. The volume is then
/// as it was, or as an earlier pass of the repair left it.
pub fn repair(
    device: &Arc<dyn Device>,
    options: &RepairOptions,
    progress: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
) -> Result<RepairOutcome, FsckError> {
    let mut outcome = run_passes(device, options, progress)?;
    if outcome.errors_left() == 0 {
        outcome.remembered = Some(forget_errors(&**device, options.data)?);
    }
    Ok(outcome)
}

/// Repairs in as many passes as the space requires.
fn run_passes(
    device: &Arc<dyn Device>,
    options: &RepairOptions,
    progress: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
) -> Result<RepairOutcome, FsckError> {
    let mut losses = BTreeSet::new();
    let mut options = *options;
    let first = run_pass(device, &options, &mut losses, progress)?;
    let data = std::mem::take(&mut options.data);
    if !first.has_written {
        return Ok(RepairOutcome { before: first.before, ..RepairOutcome::default() });
    }
    // From here on the volume has changed, and `Cancelled` would claim the opposite.
    let listener = &mut |at| {
        let _ = progress(at);
        ControlFlow::Continue(())
    };
    let mut copies = first.copies;
    for _ in 0..PASSES_MAX {
        if copies.postponed == 0 {
            break;
        }
        copies = match run_pass(device, &options, &mut losses, listener) {
            Ok(PassResult { copies, .. }) if copies.made > 0 => copies,
            // No pass frees more space. The last check finds the remaining errors.
            Ok(_) | Err(FsckError::NoSpace) => break,
            Err(error) => return Err(error),
        };
    }
    let losses: Vec<Loss> = losses.into_iter().collect();
    let after = check_again(&**device, data, &losses, listener)?;
    Ok(RepairOutcome { before: first.before, after: Some(after), losses, remembered: None })
}

/// Checks the repaired volume, and finds paths for the inodes of `losses`.
fn check_again(
    device: &dyn Device,
    data: bool,
    losses: &[Loss],
    listener: ProgressListener<'_>,
) -> Result<CheckReport, FsckError> {
    let mut findings = Findings::default();
    let volume = VolumeReader::open(device, &mut findings)?;
    let Some(point) = RecoveryPoint::find(&volume, &mut findings, listener)? else {
        return Ok(CheckReport { findings, ..CheckReport::default() });
    };
    let checked = VolumeCheck::run(&volume, point, data, listener)?;
    checked.report(findings, losses.iter().filter_map(Loss::ino).collect(), listener)
}
