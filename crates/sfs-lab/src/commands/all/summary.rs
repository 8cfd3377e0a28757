//! The summary of all experiments: a table with a row for each, and their messages below it.

use std::time::Duration;

use sfs_lab::report::table;

use super::process::Ending;

/// Files of one experiment that the table names; of more it has the number.
const NAMED: usize = 3;

/// One experiment that has ended.
pub(super) struct Outcome {
    /// Its command line.
    pub(super) shown: String,
    pub(super) ending: Ending,
    /// Its lines on standard error: parts that it left out, with the reasons.
    pub(super) messages: Vec<String>,
    pub(super) took: Duration,
    /// Names of the documents that it changed.
    pub(super) changed: Vec<String>,
}

/// Returns the number of experiments that failed.
pub(super) fn failures(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.ending != Ending::Made).count()
}

/// Returns the table, and lists of failures and of messages.
pub(super) fn summary(outcomes: &[Outcome]) -> String {
    let heading = ["experiment", "ended", "minutes", "messages", "files that changed"];
    let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
    let mut text = table(&heading.map(str::to_owned), &rows);
    let took: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    let (all, failed) = (outcomes.len(), failures(outcomes));
    text += &format!("\n{all} experiments, {failed} failed, {} minutes.\n", minutes(took));
    let mut list = Vec::new();
    for Outcome { shown, ending, messages, .. } in outcomes {
        if let Ending::Failed(reason) = ending {
            list.push(format!("* `{shown}` failed: {reason}\n"));
        }
        let mut messages: Vec<&String> = messages.iter().collect();
        messages.dedup();
        list.extend(messages.iter().map(|message| format!("* `{shown}`: {message}\n")));
    }
    if !list.is_empty() {
        text.push('\n');
        text.extend(list);
    }
    text
}

fn row(outcome: &Outcome) -> Vec<String> {
    let ended = match outcome.ending {
        Ending::Made => "made",
        Ending::Failed(_) => "failed",
    };
    let changed = match outcome.changed.len() {
        0..=NAMED => outcome.changed.join(", "),
        many => many.to_string(),
    };
    let messages = outcome.messages.len().to_string();
    vec![format!("`{}`", outcome.shown), ended.into(), minutes(outcome.took), messages, changed]
}

fn minutes(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_messages_are_named_below_the_table() {
        let outcome = |shown: &str, ending, messages: &[&str], changed: &[&str]| Outcome {
            shown: shown.into(),
            ending,
            messages: messages.iter().map(|&text| text.into()).collect(),
            took: Duration::from_secs(90),
            changed: changed.iter().map(|&name| name.into()).collect(),
        };
        let outcomes = [
            outcome("sfs-lab table", Ending::Made, &[], &["lab.md"]),
            outcome("sfs-lab evidence", Ending::Failed("no room".into()), &[], &[]),
            outcome("sfs-lab reproduce sfs", Ending::Made, &["a", "a"], &["1", "2", "3", "4"]),
        ];
        assert_eq!(failures(&outcomes), 1);
        let expected = "\
| experiment | ended | minutes | messages | files that changed |
|---|---:|---:|---:|---:|
| `sfs-lab table` | made | 1.5 | 0 | lab.md |
| `sfs-lab evidence` | failed | 1.5 | 0 |  |
| `sfs-lab reproduce sfs` | made | 1.5 | 2 | 4 |

3 experiments, 1 failed, 4.5 minutes.

* `sfs-lab evidence` failed: no room
* `sfs-lab reproduce sfs`: a
";
        assert_eq!(summary(&outcomes), expected);
    }
}
