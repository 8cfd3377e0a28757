//! What the programs' `main` have in common.
//!
//! Owns: how a command line is read, and how a program ends.
//! Promises: a failure is one line on standard error that begins with the program's name.
//! Never: knows what a program does.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser};
use sfs_system::output;

use crate::exit_error::ExitError;

/// What mount(8) and umount(8) give their helpers and has no meaning here.
#[derive(Args, Clone, Debug)]
pub struct IgnoredFlags {
    /// Leave /etc/mtab alone
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// The type, with its subtype
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    /// The namespace
    #[arg(short = 'N', hide = true)]
    namespace: Option<String>,
}

/// Reads the command line, lets `work` do what it says, and says how it went.
pub fn run<A: Parser>(work: impl FnOnce(A) -> Result<(), ExitError>) -> ExitCode {
    let outcome = match A::try_parse() {
        Ok(arguments) => work(arguments),
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            // If the terminal is gone, nobody is there to be told.
            let _ = error.print();
            Ok(())
        }
        Err(error) => Err(ExitError::arguments(&error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(format_args!("{}: {failure}", A::command().get_name()));
            ExitCode::from(failure.status)
        }
    }
}
