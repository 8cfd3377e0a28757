//! `cargo xtask`: what developers and CI run.
//!
//! Owns the commands below, one file each. Promises to undo every mount and loop device that it made,
//! and to name whatever it skips. Never changes the sources; only `bench` writes into `docs/`.
#![forbid(unsafe_code)]

mod age;
mod apps;
mod bench;
mod cargo;
mod cleanup;
mod crash;
mod demo;
mod device;
mod filesystem;
mod fio;
mod fsx;
mod imports;
mod machine;
mod mount;
mod pjdfstest;
mod report;
mod run;
mod scratch;
#[cfg(test)]
mod semantics;
mod test;
mod tree;
mod where_page;
mod words;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{filesystem::Kind, report::Tally, workspace::Workspace};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "What developers and CI of SFS run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Looks for circles of imports and for imports of an upper layer.
    Imports,
    /// Looks for comments and messages whose subject is a pronoun or a relative clause.
    Words,
    /// Looks up every `path::function` that docs/WHERE.md names.
    Where,
    /// Everything CI asks: format, lints, docs, tests, and the suites on a mounted volume.
    Test {
        /// More operations, more files, more kills: for a night, not for a commit.
        #[arg(long)]
        long: bool,
    },
    /// Makes a volume, copies a source tree onto it, compares, checks: see it work.
    Demo,
    /// A source tree, git and cargo on a volume; compared again after an unmount.
    Apps {
        /// As in `test --long`: at least 20,000 files, and this project is built on the volume.
        #[arg(long)]
        long: bool,
        /// The filesystem to try.
        #[arg(long, default_value = "sfs")]
        on: Kind,
    },
    /// The POSIX suite.
    Pjdfstest {
        /// The filesystem to try.
        #[arg(long, default_value = "sfs")]
        on: Kind,
        /// Only the cases whose names contain this.
        pattern: Option<String>,
    },
    /// The file system exerciser, with and without the kernel's writeback cache.
    Fsx {
        /// The filesystem to try.
        #[arg(long, default_value = "sfs")]
        on: Kind,
        /// Operations of each run.
        #[arg(long, default_value_t = fsx::OPS_SHORT)]
        ops: u64,
        /// Replays the run that had this seed.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Kills the daemon with SIGKILL, over and over, and checks what is left.
    Kill {
        /// How often.
        #[arg(long, default_value_t = 100)]
        count: u32,
    },
    /// 64 threads do everything at once, with mounts, unmounts and signals between.
    Stress {
        /// For how long.
        #[arg(long, default_value_t = 600)]
        secs: u32,
    },
    /// Cuts the power under fio, sqlite and postmark, and checks what is left.
    Cut {
        /// How often, for each of two devices and two caches.
        #[arg(long, default_value_t = 25)]
        count: u32,
    },
    /// Mounts after a crash, and prints the time and the memory that it takes.
    Recovery {
        /// MiB of log since the checkpoint.
        #[arg(long, default_value_t = test::RECOVERY_LOG_MIB)]
        log: u64,
    },
    /// Crash states in deterministic worlds: `--states N --seed S`, or `--replay CASE --state N`;
    /// `-- --help` lists everything.
    Crash {
        /// What the simulator is told.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A volume that is full is overwritten at random, several times over: every byte verified, no
    /// write too long, and the counters as the simulator predicts.
    Age(age::Options),
    /// Measures.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// SFS beside the null filesystem, ext4, fuse2fs and ntfs-3g; writes `docs/benchmarks.md`.
    Fuse(bench::Options),
    /// The rows of `fuse` for two builds of SFS that take turns, with the spread of each.
    Compare(bench::compare::Options),
    /// What the daemon executes for a call: instructions and system calls, by perf(1); writes
    /// `docs/benchmarks.md`.
    Counts(bench::counts::Options),
    /// Where the processor time of a call goes, by perf(1); writes `docs/benchmarks.md`.
    Profile(bench::profile::Options),
    /// How long requests take while the volume is cleaned: yielding to them, and not.
    Pacing(bench::pacing::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = cleanup::on_signal() {
        eprintln!("Ctrl-C will leave mounts behind: {error}");
    }
    match run(arguments.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False: it ran, and something failed.
fn run(command: Command) -> anyhow::Result<bool> {
    let workspace = Workspace::find()?;
    let mut tally = Tally::default();
    match command {
        Command::Test { long } => test::run(&workspace, long, &mut tally),
        Command::Imports => tally.step("imports", || imports::run(&workspace)),
        Command::Words => tally.step("words", || words::run(&workspace)),
        Command::Where => tally.step("docs/WHERE.md", || where_page::run(&workspace)),
        Command::Demo => return demo::run(&workspace).map(|()| true),
        Command::Apps { long, on } => apps::run(&workspace, on.into(), long, &mut tally),
        Command::Pjdfstest { on, pattern } => {
            pjdfstest::run(&workspace, on.into(), pattern.as_deref(), &mut tally);
        }
        Command::Fsx { on, ops, seed } => fsx::run(&workspace, on.into(), ops, seed, &mut tally),
        Command::Crash { arguments } => {
            tally.step("crash states", || crash::run(&workspace, &arguments));
        }
        Command::Age(options) => tally.step("age", || age::run(&workspace, &options)),
        Command::Kill { count } => test::kill(&workspace, count, &mut tally),
        Command::Stress { secs } => test::stress(&workspace, secs, &mut tally),
        Command::Cut { count } => test::cut(&workspace, count, &mut tally),
        Command::Recovery { log } => test::recovery(&workspace, log, &mut tally),
        Command::Bench(Bench::Fuse(options)) => {
            return bench::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Compare(options)) => {
            return bench::compare::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Counts(options)) => {
            return bench::counts::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Profile(options)) => {
            return bench::profile::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Pacing(options)) => {
            return bench::pacing::run(&workspace, &options).map(|()| true);
        }
    }
    Ok(tally.close())
}
