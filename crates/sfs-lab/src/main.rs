//! `sfs-lab`: tries policies.
#![forbid(unsafe_code)]

mod simulate;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "sfs-lab", version, about = "The policy laboratory of SFS")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one workload with one placement and one victim selection.
    Simulate(simulate::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Simulate(arguments) => simulate::run(&arguments),
    }
}
