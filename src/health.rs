//! `sfs-ctl health`: the health of a volume as an exit status, for cron and monitoring.

use std::path::Path;

use crate::exit_error::ExitError;
use crate::stat::stat;
use crate::stat_report::{HealthReport, HealthState};

/// Exit status if the health is unknown, as monitoring plugins have it.
const UNKNOWN: u8 = 3;

/// Returns the health of the volume at `path`, whose cells endure `cycles` cycles.
///
/// # Errors
///
/// [`ExitError`] as [`stat`], with status 3.
pub fn health(path: &Path, cycles: u32) -> Result<HealthReport, ExitError> {
    let report = stat(path).map_err(|error| ExitError::with_status(UNKNOWN, error))?;
    let report = report.assuming_endurance(cycles);
    report.health.ok_or_else(|| ExitError::with_status(UNKNOWN, "the health is unknown"))
}

/// Returns the text of `health` for people: a line for each finding.
pub fn text(health: &HealthReport) -> String {
    let lines = health.findings.iter().map(|finding| format!("\n{}", finding.line()));
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    lines.fold(health.state.to_string(), |text, line| text + &line).chars().map(shown).collect()
}

/// Returns `error` as one after which the health is unknown.
pub fn unknown(error: &ExitError) -> ExitError {
    ExitError::with_status(UNKNOWN, error)
}

/// Returns the exit status of `health`: none if it is fine, 1 for a warning, 2 for a device that is failing.
///
/// # Errors
///
/// An [`ExitError`] without a line, unless the health is fine.
pub fn status(health: &HealthReport) -> Result<(), ExitError> {
    match health.state {
        HealthState::Ok => Ok(()),
        HealthState::Warning => Err(ExitError::with_status(1, "")),
        HealthState::Failing => Err(ExitError::with_status(2, "")),
    }
}
