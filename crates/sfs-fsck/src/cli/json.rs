//! Reports, losses and recorded errors as JSON.

use serde_json::{Value, json};
use sfs_core::format::{ErrorCount, ErrorKind, Failure, Occurrence, Remembered};

use crate::check::report::CheckReport;
use crate::finding::Finding;
use crate::repair::loss::Loss;
use crate::repair::run::RepairOutcome;

/// Returns the report of a check as one JSON object.
pub fn report_to_json(report: &CheckReport) -> Value {
    let findings: Vec<Value> =
        report.shown().map(|finding| finding_to_json(report, finding)).collect();
    json!({
        "clean": report.errors() == 0,
        "errors": report.errors(),
        "notes": report.findings.notes(),
        "files": report.files,
        "directories": report.directories,
        "used_bytes": report.used_bytes,
        "rolled_chunks": report.rolled_chunks,
        "unmounted": report.unmounted,
        "data_read": report.data_read,
        "remembered": remembered_to_json(&report.remembered),
        "findings": findings,
    })
}

/// Returns the result of a check or repair as one JSON object: the report of the check, and the
/// effects of the repair.
pub(crate) fn outcome_to_json(outcome: &RepairOutcome) -> Value {
    let report = &outcome.before;
    let with_paths = outcome.after.as_ref().unwrap_or(report);
    let losses = outcome.losses.iter().map(|loss| loss_to_json(with_paths, loss));
    let mut value = report_to_json(report);
    value["repaired"] = json!(outcome.after.is_some());
    value["errors_left"] = json!(outcome.errors_left());
    value["losses"] = losses.collect();
    if let Some(left) = &outcome.remembered {
        value["remembered_left"] = remembered_to_json(left);
    }
    value
}

fn finding_to_json(report: &CheckReport, finding: &Finding) -> Value {
    let mut value = json!(finding);
    value["severity"] = json!(finding.severity());
    value["message"] = json!(finding.to_string());
    if let Some(path) = finding.ino().and_then(|ino| report.path(ino)) {
        value["path"] = json!(path.escape_ascii().to_string());
    }
    value
}

fn loss_to_json(report: &CheckReport, loss: &Loss) -> Value {
    let mut value = json!(loss);
    value["message"] = json!(loss.to_string());
    if let Some(path) = loss.ino().and_then(|ino| report.path(ino)) {
        value["path"] = json!(path.escape_ascii().to_string());
    }
    value
}

/// Returns the recorded errors of a volume as one JSON object.
pub(crate) fn remembered_to_json(remembered: &Remembered) -> Value {
    let errors: Vec<Value> = remembered.errors.iter().map(count_to_json).collect();
    json!({
        "errors": errors,
        "failure": remembered.failure.map(failure_to_json),
        "damaged": remembered.is_damaged,
    })
}

fn count_to_json(count: &ErrorCount) -> Value {
    let show = |Occurrence { secs, at }| json!({ "secs": secs, "at": at });
    let ErrorCount { kind, count, first, last } = *count;
    json!({ "kind": kind_name(kind), "count": count, "first": show(first), "last": show(last) })
}

/// Returns the error that ended writing as a JSON object.
pub(crate) fn failure_to_json(failure: Failure) -> Value {
    json!({ "kind": kind_name(failure.kind), "at": failure.at, "secs": failure.secs })
}

/// Returns the name of a kind of error; for a kind of a newer program its number.
fn kind_name(kind: ErrorKind) -> String {
    kind.name().map_or_else(|| kind.code().to_string(), str::to_owned)
}
