//! The program `sfs-lab`: parses the command line, and reports an error on standard error.
#![forbid(unsafe_code)]

mod commands;
mod experiments;

use std::process::ExitCode;

use clap::Parser;
use sfs_mkfs::output;

fn main() -> ExitCode {
    match commands::Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("sfs-lab: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
