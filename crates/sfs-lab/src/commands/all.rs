//! `sfs-lab reproduce all`: every experiment that fills the documents, one after another, and a summary.
//!
//! Each experiment is a process of its own, so that one that fails, or needs all memory, costs the others nothing. The
//! list is what the command line knows: the papers, and every other command with an option `--docs`.

mod changes;
mod process;
mod summary;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sfs_lab::block_trace::TraceFolder;
use sfs_lab::report::Document;
use sfs_mkfs::output;

use changes::Contents;
use process::Signals;
use summary::{Outcome, failures, summary};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Leave out the experiments with these names, such as postmark.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    skip: Vec<String>,
    /// Run only the experiments with these names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "skip")]
    only: Vec<String>,
    #[command(flatten)]
    traces: TraceFolder,
    /// Folder of the documents, whose sections and figures are replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// A command that fills a section of the documents.
pub(super) struct Experiment {
    /// Words of the command line after `sfs-lab`.
    words: Vec<String>,
    takes_traces: bool,
}

impl Experiment {
    /// Returns all experiments of the command line `lab`: the papers first, each in the order of `sfs-lab --help`.
    pub(super) fn all(lab: &clap::Command) -> Vec<Experiment> {
        let papers = lab.find_subcommand("reproduce").into_iter().flat_map(|papers| {
            papers.get_subcommands().filter_map(|paper| Experiment::of(&["reproduce"], paper))
        });
        let others = lab.get_subcommands().filter_map(|command| Experiment::of(&[], command));
        papers.chain(others).collect()
    }

    /// Returns the experiment of a subcommand, if it fills a section.
    fn of(before: &[&str], command: &clap::Command) -> Option<Experiment> {
        let has = |name: &str| command.get_arguments().any(|argument| argument.get_id() == name);
        // This command itself, and the one that only draws again, have the option, too.
        if !has("docs") || ["all", "redraw"].contains(&command.get_name()) {
            return None;
        }
        let words = before.iter().copied().chain([command.get_name()]).map(str::to_owned);
        Some(Experiment { words: words.collect(), takes_traces: has("traces") })
    }

    fn name(&self) -> &str {
        self.words.last().expect("a command has a name")
    }

    /// Returns the command line, for a reader.
    pub(super) fn shown(&self) -> String {
        format!("sfs-lab {}", self.words.join(" "))
    }
}

/// Runs the experiments of the command line `lab`.
pub(super) fn run(arguments: &Arguments, lab: &clap::Command) -> Result<()> {
    let experiments = arguments.chosen(Experiment::all(lab))?;
    let program = std::env::current_exe().context("this program's own path")?;
    let signals = Signals::catch()?;
    let mut outcomes = Vec::new();
    for (no, experiment) in experiments.iter().enumerate() {
        if signals.arrived().is_some() {
            break;
        }
        let shown = experiment.shown();
        output::complain(format_args!("{} of {}: {shown}", no + 1, experiments.len()));
        let (before, began) = (Contents::of(arguments.docs.as_deref())?, Instant::now());
        let mut command = Command::new(&program);
        command.args(&experiment.words);
        if let Some(docs) = &arguments.docs {
            command.arg("--docs").arg(docs);
        }
        if let Some(traces) = arguments.traces.folder().filter(|_| experiment.takes_traces) {
            command.arg("--traces").arg(traces);
        }
        let (ending, messages) = process::run(&mut command, &signals)?;
        let changed = Contents::of(arguments.docs.as_deref())?.changed_since(&before);
        outcomes.push(Outcome { shown, ending, messages, took: began.elapsed(), changed });
    }
    let text = summary(&outcomes);
    output::print(&text)?;
    if let Some(signal) = signals.arrived() {
        bail!("interrupted by {signal} after {} of {}", outcomes.len(), experiments.len());
    }
    let is_whole = arguments.skip.is_empty() && arguments.only.is_empty();
    if let Some(docs) = arguments.docs.as_deref().filter(|_| is_whole) {
        Document::new(docs).section("all", &text)?;
    }
    match failures(&outcomes) {
        0 => Ok(()),
        failed => bail!("{failed} of {} experiments failed", experiments.len()),
    }
}

impl Arguments {
    /// Returns those of the experiments that are to run.
    fn chosen(&self, mut experiments: Vec<Experiment>) -> Result<Vec<Experiment>> {
        if let Some(unknown) =
            self.only.iter().chain(&self.skip).find(|name| {
                experiments.iter().all(|experiment| experiment.name() != name.as_str())
            })
        {
            let names: Vec<&str> = experiments.iter().map(Experiment::name).collect();
            bail!("{unknown}: no such experiment; there are {}", names.join(", "));
        }
        experiments.retain(|experiment| {
            let is_in = |names: &[String]| names.iter().any(|name| name == experiment.name());
            (self.only.is_empty() || is_in(&self.only)) && !is_in(&self.skip)
        });
        Ok(experiments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(only: &[&str], skip: &[&str]) -> Arguments {
        let [only, skip] =
            [only, skip].map(|names| names.iter().map(|&name| name.into()).collect());
        Arguments { only, skip, traces: TraceFolder::default(), docs: None }
    }

    /// Returns the names that are chosen of some commands, of which one fills no section.
    fn chosen(arguments: &Arguments) -> Result<Vec<String>> {
        let docs = || clap::Arg::new("docs").long("docs");
        let papers = clap::Command::new("reproduce")
            .subcommand(clap::Command::new("sfs").arg(docs()))
            .subcommand(clap::Command::new("all").arg(docs()));
        let lab = clap::Command::new("sfs-lab")
            .subcommand(papers)
            .subcommand(clap::Command::new("simulate"))
            .subcommand(clap::Command::new("objects").arg(docs()))
            .subcommand(clap::Command::new("table").arg(docs()).arg(clap::Arg::new("traces")));
        let chosen = arguments.chosen(Experiment::all(&lab))?;
        assert!(chosen.iter().all(|one| one.takes_traces == (one.name() == "table")));
        Ok(chosen.iter().map(Experiment::shown).collect())
    }

    #[test]
    fn names_select_experiments_and_an_unknown_one_is_an_error() {
        let all = ["sfs-lab reproduce sfs", "sfs-lab objects", "sfs-lab table"];
        assert_eq!(chosen(&arguments(&[], &[])).expect("all"), all);
        assert_eq!(chosen(&arguments(&["table", "sfs"], &[])).expect("two"), [all[0], all[2]]);
        assert_eq!(chosen(&arguments(&[], &["objects"])).expect("two"), [all[0], all[2]]);
        let error = chosen(&arguments(&["nothing"], &[])).expect_err("an unknown name");
        let expected = "nothing: no such experiment; there are sfs, objects, table";
        assert_eq!(error.to_string(), expected);
    }
}
