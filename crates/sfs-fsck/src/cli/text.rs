//! Reports, losses and recorded errors as lines of text. Each line begins with the name of the device.

use std::mem::{Discriminant, discriminant};
use std::path::Path;

use sfs_core::format::Remembered;

use crate::check::report::CheckReport;
use crate::repair::loss::Loss;
use crate::repair::run::RepairOutcome;

/// Maximum number of findings of one kind that are listed without `-v`.
const FINDINGS_OF_KIND_MAX: usize = 5;

/// Returns the lines for a check, and for the repair if there was one. `is_verbose` adds notes, and the
/// length of the log past the checkpoint.
pub(crate) fn outcome_to_text(path: &Path, outcome: &RepairOutcome, is_verbose: bool) -> String {
    let (device, report) = (path.display(), &outcome.before);
    let mut text = String::new();
    let shown = report.shown().filter(|finding| is_verbose || finding.is_error());
    let bound = if is_verbose { usize::MAX } else { FINDINGS_OF_KIND_MAX };
    for line in grouped(shown, bound, |finding| report.line(finding)) {
        text += &format!("{device}: {line}\n");
    }
    let all = report.findings.errors() + report.findings.notes();
    let shown = report.shown().count() as u64;
    if all > shown {
        text += &format!("{device}: {} more findings\n", all - shown);
    }
    if is_verbose && report.rolled_chunks > 0 {
        text += &format!("{device}: {} chunks past the checkpoint\n", report.rolled_chunks);
    }
    for line in remembered_lines(&report.remembered) {
        text += &format!("{device}: {line}\n");
    }
    text + &format!("{device}: {report}\n") + &repair_to_text(path, outcome, is_verbose)
}

/// Returns the lines for a repair: losses, errors that are left, and recorded errors. Losses are listed in full: after the
/// repair no run can find them again.
pub(crate) fn repair_to_text(path: &Path, outcome: &RepairOutcome, is_verbose: bool) -> String {
    let (device, Some(after)) = (path.display(), &outcome.after) else {
        return remembered_to_text(path, outcome);
    };
    let mut text = String::new();
    for line in grouped(&outcome.losses, usize::MAX, |loss| loss_line(after, loss)) {
        text += &format!("{device}: {line}\n");
    }
    let left = after.shown().filter(|finding| finding.is_error());
    let bound = if is_verbose { usize::MAX } else { FINDINGS_OF_KIND_MAX };
    for line in grouped(left, bound, |finding| after.line(finding)) {
        text += &format!("{device}: left: {line}\n");
    }
    text + &format!("{device}: repaired: {after}\n") + &remembered_to_text(path, outcome)
}

/// Returns lines for `things`, grouped by kind: at most `most` lines for each kind, and a line with
/// the number of the others. The kinds are in the order of their first occurrence.
fn grouped<'a, T: 'a>(
    things: impl IntoIterator<Item = &'a T>,
    most: usize,
    line: impl Fn(&T) -> String,
) -> Vec<String> {
    let mut groups: Vec<(Discriminant<T>, Vec<String>, usize)> = Vec::new();
    for thing in things {
        let kind = discriminant(thing);
        let index = groups.iter().position(|group| group.0 == kind).unwrap_or_else(|| {
            groups.push((kind, Vec::new(), 0));
            groups.len() - 1
        });
        let (_, lines, others) = &mut groups[index];
        match lines.len() < most {
            true => lines.push(line(thing)),
            false => *others += 1,
        }
    }
    for (_, lines, others) in &mut groups {
        if *others > 0 {
            lines.push(format!("and {others} more of this kind; -v lists all"));
        }
    }
    groups.into_iter().flat_map(|(_, lines, _)| lines).collect()
}

/// Returns the line for `loss`, with the path if one is known.
fn loss_line(report: &CheckReport, loss: &Loss) -> String {
    match loss.ino().and_then(|ino| report.path(ino)) {
        Some(path) => format!("lost: {}: {loss}", path.escape_ascii()),
        None => format!("lost: {loss}"),
    }
}

/// Returns a line for each kind of recorded error, and for the error that ended writing.
fn remembered_lines(remembered: &Remembered) -> Vec<String> {
    let Remembered { errors, failure, is_damaged } = remembered;
    let mut lines: Vec<String> =
        errors.iter().map(|count| format!("earlier error: {count}")).collect();
    lines.extend(failure.map(|failure| format!("error that ended writing: {failure}")));
    if *is_damaged {
        lines.push("the record of earlier errors is damaged".to_owned());
    }
    lines
}

/// Returns the line about the recorded errors after a repair: all removed, or some kept.
fn remembered_to_text(path: &Path, outcome: &RepairOutcome) -> String {
    let (device, before) = (path.display(), &outcome.before.remembered);
    match &outcome.remembered {
        Some(left) if !left.is_empty() => format!(
            "{device}: recorded errors of data stay, because data was not read; -y --data reads it\n"
        ),
        Some(_) if !before.is_empty() => {
            format!("{device}: the recorded errors are removed\n")
        }
        _ => String::new(),
    }
}
