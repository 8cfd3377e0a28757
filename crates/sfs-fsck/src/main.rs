//! `sfs-fsck`: checks an SFS volume.
//!
//! Owns: the exit codes of fsck(8) and what is printed.
//! Promises: 0 clean, 4 damage, 8 no check was possible, 16 wrong usage, 32 cancelled.
//! Never: writes to the device.

mod bar;
mod command;
#[expect(unsafe_code, reason = "the only way to hear of an interrupt")]
mod interrupt;

use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use sfs_device::{Access, FileDevice, OpenErrorKind};
use sfs_fsck::{FsckError, Options, Report, Severity, check};

use crate::bar::Bar;
use crate::command::Command;

const CLEAN: u8 = 0;
const DAMAGED: u8 = 4;
const FAILED: u8 = 8;
const USAGE: u8 = 16;
const CANCELLED: u8 = 32;

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => return usage(&error),
    };
    ExitCode::from(run(&command))
}

fn usage(error: &clap::Error) -> ExitCode {
    // If the terminal is gone, nobody is there to be told.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(USAGE),
    }
}

fn run(command: &Command) -> u8 {
    let device = match FileDevice::open(&command.device, Access::ReadOnly) {
        Ok(device) => device,
        Err(error) => {
            let remedy = match error.kind {
                OpenErrorKind::Busy => "; unmount it first",
                _ => "",
            };
            eprintln!("sfs-fsck: {error}{remedy}");
            return FAILED;
        }
    };
    interrupt::listen();
    let mut bar = Bar::new();
    let result = check(&device, &Options { data: command.data }, &mut |progress| {
        bar.show(progress);
        match interrupt::heard() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.clear();
    match result {
        Ok(report) => finish(command, &report),
        Err(error) => {
            eprintln!("sfs-fsck: {}: {error}", command.device.display());
            match error {
                FsckError::Cancelled => CANCELLED,
                FsckError::SuperblocksLost => DAMAGED,
                _ => FAILED,
            }
        }
    }
}

fn finish(command: &Command, report: &Report) -> u8 {
    if command.json {
        println!("{}", report.to_json());
    } else {
        print(command, report);
    }
    if report.errors() == 0 {
        return CLEAN;
    }
    if command.wants_repair() {
        eprintln!("sfs-fsck: repair is not part of this version");
    }
    DAMAGED
}

fn print(command: &Command, report: &Report) {
    let device = command.device.display();
    let shown = report.findings.kept().iter();
    for finding in shown.filter(|f| command.verbose || f.severity() == Severity::Error) {
        println!("{device}: {}", report.line(finding));
    }
    let all = report.findings.errors() + report.findings.notes();
    let kept = report.findings.kept().len() as u64;
    if all > kept {
        println!("{device}: {} more findings", all - kept);
    }
    if command.verbose && report.rolled_chunks > 0 {
        println!("{device}: {} chunks past the checkpoint", report.rolled_chunks);
    }
    println!("{device}: {report}");
}
