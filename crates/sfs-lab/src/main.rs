//! `sfs-lab`: tries policies.
#![forbid(unsafe_code)]

mod commands;
mod experiments;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sfs_mkfs::output;

use crate::commands::{age, model, replay, simulate, ssd};
use crate::experiments::{
    atc09, fast09, kernel_filesystems, policy_table, postmark, sfs, sfs_flash, sync_remainder,
};

#[derive(Parser)]
#[command(name = "sfs-lab", version, about = "The policy laboratory of SFS")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one workload with one grouping and one victim selection.
    Simulate(simulate::Arguments),
    /// Replay a block trace on the model of a flash device, and show the figures of the trace.
    Replay(replay::Arguments),
    /// Measure a model as sfs-mkfs would, and fit the write cost model of the FAST 2009 paper.
    Model(model::Arguments),
    /// Make the model of a flash device a block device of this machine, for any filesystem.
    Ssd(ssd::Arguments),
    /// Fill a mounted filesystem, and delete files at random until it is as full as wanted.
    Age(age::Arguments),
    /// Run a paper's experiments, and show its figures beside ours.
    #[command(subcommand)]
    Reproduce(Paper),
    /// Compare where a sync writes what waits.
    Remainder(sync_remainder::Arguments),
    /// Run every policy on every generator and every trace.
    Table(policy_table::Arguments),
}

#[derive(Subcommand)]
enum Paper {
    /// SFS: Random Write Considered Harmful in Solid State Drives (FAST 2012).
    Sfs(sfs::Arguments),
    /// Of the same: the kernel's filesystems and SFS, on one device, and what its flash does.
    SfsFlash(sfs_flash::Arguments),
    /// A Performance Model and Space Allocation Schemes for SSDs (FAST 2009): figures 2 and 3.
    Fast09(fast09::Arguments),
    /// Of the same: figures 5 to 9, the schemes on aged filesystems.
    Fast09Schemes(fast09::schemes::Arguments),
    /// Block Management in Solid-State Devices (ATC 2009): its tables.
    Atc09(atc09::Arguments),
    /// About SSD (Shin 2008): Postmark over filesystems.
    Shin(postmark::Arguments),
    /// The kernel's filesystems and SFS under one overwriting job, on two flash models.
    Peers(kernel_filesystems::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("sfs-lab: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Model(arguments) => model::run(&arguments),
        Command::Ssd(arguments) => ssd::run(&arguments),
        Command::Age(arguments) => age::run(&arguments),
        Command::Reproduce(Paper::Sfs(arguments)) => sfs::run(&arguments),
        Command::Reproduce(Paper::SfsFlash(arguments)) => sfs_flash::run(&arguments),
        Command::Reproduce(Paper::Fast09(arguments)) => fast09::run(&arguments),
        Command::Reproduce(Paper::Fast09Schemes(arguments)) => fast09::schemes::run(&arguments),
        Command::Reproduce(Paper::Atc09(arguments)) => atc09::run(&arguments),
        Command::Reproduce(Paper::Shin(arguments)) => postmark::run(&arguments),
        Command::Remainder(arguments) => sync_remainder::run(&arguments),
        Command::Reproduce(Paper::Peers(arguments)) => kernel_filesystems::run(&arguments),
        Command::Table(arguments) => policy_table::run(&arguments),
    }
}
