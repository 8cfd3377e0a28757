//! `sfs-lab reproduce all`: every experiment that fills the documents, one after another, and a summary.
//!
//! Each experiment is a process of its own, so that one that fails, or needs all memory, costs the others nothing. The
//! list is what the command line knows: the papers, and every other command with an option `--docs`.

mod changes;
mod process;
mod summary;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
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
struct Experiment {
    /// Words of the command line after `sfs-lab`.
    words: Vec<String>,
    takes_traces: bool,
}

impl Experiment {
    /// Returns all experiments: the papers first, each in the order of `sfs-lab --help`.
    fn all() -> Vec<Experiment> {
        let lab = super::Arguments::command();
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
    fn shown(&self) -> String {
        format!("sfs-lab {}", self.words.join(" "))
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let experiments = arguments.experiments()?;
    let lab = std::env::current_exe().context("this program's own path")?;
    let signals = Signals::catch()?;
    let mut outcomes = Vec::new();
    for (no, experiment) in experiments.iter().enumerate() {
        if signals.arrived().is_some() {
            break;
        }
        let shown = experiment.shown();
        output::complain(format_args!("{} of {}: {shown}", no + 1, experiments.len()));
        let (before, began) = (Contents::of(arguments.docs.as_deref())?, Instant::now());
        let mut command = std::process::Command::new(&lab);
        command.args(&experiment.words);
        if let Some(docs) = &arguments.docs {
            command.arg("--docs").arg(docs);
        }
        if let Some(traces) = arguments.traces.folder().filter(|_| experiment.takes_traces) {
            command.arg("--traces").arg(traces);
        }
        let (ending, left_out) = process::run(&mut command, &signals)?;
        let changed = Contents::of(arguments.docs.as_deref())?.changed_since(&before);
        outcomes.push(Outcome { shown, ending, left_out, took: began.elapsed(), changed });
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
    /// Returns the experiments to run.
    fn experiments(&self) -> Result<Vec<Experiment>> {
        let mut experiments = Experiment::all();
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

    fn shown(arguments: &Arguments) -> Vec<String> {
        arguments.experiments().expect("known names").iter().map(Experiment::shown).collect()
    }

    #[test]
    fn every_paper_and_every_command_that_fills_a_section_is_run() {
        let all = shown(&arguments(&[], &[]));
        let lab = super::super::Arguments::command();
        let papers = lab.find_subcommand("reproduce").expect("papers").get_subcommands().count();
        let of_papers = all.iter().filter(|shown| shown.starts_with("sfs-lab reproduce ")).count();
        assert_eq!(of_papers, papers - 1, "{all:?}");
        for other in ["table", "evidence", "sync-remainder", "wear-levelling", "objects"] {
            assert!(all.contains(&format!("sfs-lab {other}")), "{other} is not in {all:?}");
        }
        assert!(!all.iter().any(|shown| shown.contains("redraw") || shown.ends_with(" all")));
    }

    #[test]
    fn names_select_experiments_and_an_unknown_one_is_an_error() {
        let only = shown(&arguments(&["objects", "sfs"], &[]));
        assert_eq!(only, ["sfs-lab reproduce sfs", "sfs-lab objects"]);
        assert!(!shown(&arguments(&[], &["objects"])).contains(&"sfs-lab objects".to_owned()));
        let error = arguments(&["nothing"], &[]).experiments().err().expect("an unknown name");
        assert!(error.to_string().starts_with("nothing: no such experiment; there are"), "{error}");
    }
}
