//! Runs one load on a mounted filesystem, and prints the latency of its requests as JSON.

use std::{
    env,
    path::PathBuf,
    process::{Command as Process, ExitCode},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use sfs_bench::tail::{
    Amounts, Outcome, Playground,
    background::{Background, RunningBackground},
    foreground::{self, Arrivals, Choice, Overwriting},
    prepare,
};

#[derive(Parser)]
#[command(name = "tail-load", about = "Latency of single requests on a mounted filesystem")]
struct Arguments {
    /// Directory on the filesystem under test.
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Make the files that the other loads use; afterwards the filesystem has to be mounted anew.
    Prepare(Amounts),
    /// Run a background program until standard input ends.
    Background {
        program: Background,
        #[command(flatten)]
        amounts: Amounts,
    },
    /// Read, stat, create, and now and then append and sync.
    Rounds(Timed),
    /// List cold directories with the attributes of all names.
    Listing(Timed),
    /// Overwrite and sync random blocks of one file.
    Database(Timed),
    /// Fill a part of the space with one file.
    Fill {
        /// Part of the space, in percent.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=99))]
        percent: u64,
    },
    /// Overwrite random blocks of the file of `fill`, untimed.
    Age {
        /// Amount, in MiB.
        #[arg(long)]
        mib: u64,
    },
    /// Overwrite and sync random blocks of the file of `fill`, by Zipf's law.
    Overwrite {
        /// Number of requests.
        #[arg(long)]
        requests: u64,
        /// Number of overwrites with this seed that were made earlier.
        #[arg(long, default_value_t = 0)]
        skipped: u64,
    },
    /// Make the requests of `overwrite` at random times, whether or not earlier ones have ended.
    Arrivals {
        /// Number of requests.
        #[arg(long)]
        requests: u64,
        /// Mean number of arrivals in a second.
        #[arg(long)]
        rate: f64,
        /// Number of overwrites with this seed that were made earlier.
        #[arg(long, default_value_t = 0)]
        skipped: u64,
    },
}

/// A foreground load for some time.
#[derive(clap::Args)]
struct Timed {
    /// Duration in seconds.
    #[arg(long)]
    seconds: f64,
    /// Duration of the background programs alone beforehand, in seconds.
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Background programs.
    #[arg(long, value_delimiter = ',')]
    beside: Vec<Background>,
    #[command(flatten)]
    amounts: Amounts,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tail-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Name of the file that fills the space.
const FILLING: &str = "filling";

fn run(arguments: Arguments) -> Result<()> {
    let Arguments { dir, command, seed } = arguments;
    let place = Playground::new(dir);
    let filling = place.dir().join(FILLING);
    let zipf = |skipped| Overwriting::open(&filling, Choice::Zipf, seed, skipped);
    let outcome = match command {
        Command::Prepare(amounts) => return prepare(&place, &amounts, seed),
        Command::Background { program, amounts } => return program.run(&place, &amounts, seed),
        Command::Fill { percent } => return foreground::fill(&filling, percent, seed),
        Command::Age { mib } => return zipf(0)?.age(mib),
        Command::Overwrite { requests, skipped } => {
            zipf(skipped)?.measure(requests, Duration::MAX)?
        }
        Command::Arrivals { requests, rate, skipped } => {
            ensure!(rate > 0.0, "--rate {rate}: must be above zero");
            let arrivals = Arrivals { requests, rate, seed };
            foreground::arrivals(&filling, &mut zipf(skipped)?, arrivals)?
        }
        Command::Rounds(timed) => timed
            .run(&place, seed, |time| foreground::rounds(&place, &timed.amounts, time, seed))?,
        Command::Listing(timed) => {
            timed.run(&place, seed, |time| foreground::listing(&place, &timed.amounts, time))?
        }
        Command::Database(timed) => timed.run(&place, seed, |time| {
            Overwriting::open(&place.database(), Choice::Uniform, seed, 0)?.measure(u64::MAX, time)
        })?,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

impl Timed {
    /// Runs `load` beside the background programs, and adds their rates to the outcome.
    fn run(
        &self,
        place: &Playground,
        seed: u64,
        load: impl FnOnce(Duration) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let start = |&background| {
            RunningBackground::start(background, self.command(background, place, seed)?)
        };
        let mut programs = self.beside.iter().map(start).collect::<Result<Vec<_>>>()?;
        if !programs.is_empty() {
            thread::sleep(Duration::try_from_secs_f64(self.warm_up)?);
        }
        programs.iter_mut().try_for_each(RunningBackground::begin)?;
        let outcome = load(Duration::try_from_secs_f64(self.seconds)?)?;
        let background = programs.iter_mut().map(RunningBackground::rate).collect::<Result<_>>()?;
        Ok(Outcome { background, ..outcome })
    }

    fn command(&self, background: Background, place: &Playground, seed: u64) -> Result<Process> {
        use clap::ValueEnum as _;
        let name = background.to_possible_value().expect("every program has a name");
        let Amounts { cold_mib, names, stream_mib, database_mib, tree_files } = self.amounts;
        let mut command = Process::new(env::current_exe()?);
        command.arg(place.dir()).arg("background").arg(name.get_name());
        command.args(["--seed", &seed.to_string()]);
        for (option, amount) in [
            ("--cold-mib", cold_mib),
            ("--names", names),
            ("--stream-mib", stream_mib),
            ("--database-mib", database_mib),
            ("--tree-files", tree_files),
        ] {
            command.args([option, &amount.to_string()]);
        }
        Ok(command)
    }
}
