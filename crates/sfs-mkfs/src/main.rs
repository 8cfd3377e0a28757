//! `sfs-mkfs`: makes an SFS volume.
//!
//! Owns: exit codes (0 made, 1 not) and what is printed.
//! Promises: errors are one line on stderr that begins with the program's name.
//! Never: decides anything.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use sfs_mkfs::{Made, Options, make};

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return usage(&error),
    };
    match make(&options) {
        Ok(made) => {
            report(&options, &made);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("sfs-mkfs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// mkfs(8) knows one code for every failure; help and version are none.
fn usage(error: &clap::Error) -> ExitCode {
    // If the terminal is gone, nobody is there to be told.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn report(options: &Options, made: &Made) {
    if options.json {
        println!("{}", serde_json::json!(made));
    } else if !options.quiet {
        println!("{made}");
    }
}
